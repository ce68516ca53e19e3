"""One fill, from holes to the patch: what may be asked for, which text is taken, how sure it is. Knows no model."""
