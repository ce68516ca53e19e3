"""What a request asks for, before any backend fills it: texts in tokens, seeds, time. Knows no model."""
