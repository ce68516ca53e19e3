"""Chooses the text that a model sees: around holes, from related files, never from excluded ones. Knows no engine."""
