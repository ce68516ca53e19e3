"""From a request to its fill: canvas, rows, steps, and the scheduler that packs them. Knows no HTTP."""
