"""From packages' source files to rows of token ids. Knows no model and no optimizer."""
