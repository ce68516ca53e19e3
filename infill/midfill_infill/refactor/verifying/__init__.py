"""Runs the user's command over a copy with fills and finds the fills that make it fail. Knows no engine."""
