"""specctl: speculative decoding on your own machine. Importing this loads nothing heavy."""

__version__ = "0.1.0"
