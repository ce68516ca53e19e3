"""What a model may see: the text around holes, related files, and what is never shown. Knows no engine."""
