"""Writes accepted fills into files and takes them out again, crash-safe. Knows bytes, no engine."""
