"""The language server: LSP on one side, `midfill_infill` on the other. Knows no model, no sampler and no HTTP."""
