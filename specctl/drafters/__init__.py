"""Methods that propose tokens; start reading at base.py."""
