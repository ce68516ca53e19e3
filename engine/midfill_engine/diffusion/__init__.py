"""Fills requests by denoising: canvases, denoisers, steps. Knows no drafts from the left, no HTTP."""
