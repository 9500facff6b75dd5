"""An OpenAI-compatible server over our own engine: one model, one context, a fair queue."""
