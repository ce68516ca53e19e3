"""Fills requests with a model that reads from the left: drafts, likelihoods, ranks. Knows no canvas, no HTTP."""
