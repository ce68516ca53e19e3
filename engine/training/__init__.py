"""Trains the embedded model from source files to a checkpoint folder. Imported by nothing that runs it."""
