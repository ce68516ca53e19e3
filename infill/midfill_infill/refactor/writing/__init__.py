"""Brings accepted fills into files and takes them out, through any crash. Knows bytes, no engine."""
