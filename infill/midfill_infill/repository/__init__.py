"""What the files of a repository are: listed, ignored, excluded, guarded, replaced. Knows no hole and no model."""
