"""Text to ids and back. Knows bytes and pieces; no model."""
