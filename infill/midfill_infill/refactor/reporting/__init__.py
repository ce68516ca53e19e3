"""What a run holds, for people and tools: patches, pages, reviews, checks. Writes no file of a tree."""
