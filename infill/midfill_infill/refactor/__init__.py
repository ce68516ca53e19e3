"""Whole repositories: plan, generate, review, apply, verify, undo. Knows files, git and the journal; no model."""
