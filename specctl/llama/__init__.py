"""The only rooms that talk to llama.cpp (ctypes)."""
