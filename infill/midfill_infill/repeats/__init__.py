"""Where a change that was just made could be made again. Knows two versions of a document, no editor and no engine."""
