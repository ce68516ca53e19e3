"""Turns planned holes into fills in the journal, with one engine or many. Writes no file of a tree."""
