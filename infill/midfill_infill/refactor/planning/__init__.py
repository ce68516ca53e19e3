"""Which holes a repository has: walking, selecting, recipes. Knows no engine and writes no file of a tree."""
