"""The transformer and its families, one file each; `registry.py` finds them by name."""
