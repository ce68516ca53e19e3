"""A run and where it is stored: rows, file, folder, lock. Knows no engine."""
