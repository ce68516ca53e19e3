"""Reads what a model wrote for a hole: finds the text of the hole in it. Knows text and errors, no engine."""
