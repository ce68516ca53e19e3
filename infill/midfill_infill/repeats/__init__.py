"""Finds other places where the last edit fits. Knows two versions of a document, no editor and no engine."""
