"""Workload prompts as data, one JSONL file a family."""
