"""Getting model files, and what is on disk."""
