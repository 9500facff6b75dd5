"""Memory, speed and rank of configurations: arithmetic on plain values."""
