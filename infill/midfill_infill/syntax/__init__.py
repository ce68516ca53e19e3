"""Finds functions, bodies, holes and errors in a document's tree. Knows captures, no engine."""
