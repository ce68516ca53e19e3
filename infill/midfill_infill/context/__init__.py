"""What a model may see: text around holes, related files, and files that are never shown. Knows no engine."""
