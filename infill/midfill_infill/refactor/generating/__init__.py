"""From planned holes to fills in the journal, by one engine or many. Writes no file of a tree."""
