"""A run and where it is stored: rows, file, place, lock. Knows no engine."""
