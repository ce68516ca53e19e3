"""Runs the user's command over a copy with fills in it and finds the guilty. Knows no engine."""
