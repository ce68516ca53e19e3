"""Presents a run to people and tools: patches, reviews, checks. Writes no file of the tree."""
