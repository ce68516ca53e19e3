"""Runs the user's command over a copy with fills and finds the guilty ones. Knows no engine."""
