"""The engine: fills holes with a model. Knows tokens, models and requests; no file, language, syntax tree or editor."""
