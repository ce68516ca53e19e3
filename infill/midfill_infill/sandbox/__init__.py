"""Runs a command of the user's over a copy of the tree. Knows no fill and no engine."""
