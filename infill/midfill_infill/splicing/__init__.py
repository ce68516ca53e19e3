"""Puts fills back into their document. Knows text and errors, no engine."""
