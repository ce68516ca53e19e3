"""Fills until the user's command passes: candidates of ordinary fills, tried in turn. Knows no terminal, no editor."""
