"""Measures models on the user's own code: blanks lines and bodies in copies, fills them, compares. Writes no source."""
