"""The denoising engine. Knows tokens, models and requests; never a file, a language, a syntax tree or an editor."""
