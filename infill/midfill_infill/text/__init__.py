"""Bytes as lines, spans and characters, and a document of them. Knows no syntax."""
