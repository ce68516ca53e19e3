"""Finds the holes of a repository: walking, selecting, recipes. Knows no engine and writes no file of the tree."""
