"""Does speculation pay? Interleaved measurements and their reports."""
