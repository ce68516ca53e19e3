"""Runs a command of the user over a copy of the tree. Knows no fill and no engine."""
