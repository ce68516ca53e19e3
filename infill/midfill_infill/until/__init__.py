"""Tries candidates of ordinary fills in turn until the user's command passes. Knows no terminal, no editor."""
