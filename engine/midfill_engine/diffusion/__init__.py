"""Fills requests by denoising: canvases, rows, steps. Knows no drafts from the left, no HTTP."""
