"""Finds, downloads and loads models: from a name to a model on a device. Knows files and devices; no requests."""
