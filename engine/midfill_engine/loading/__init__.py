"""From a name or a folder to a loaded model on a device. Knows files and devices; no requests."""
