"""The process and its doors: sockets, routes, gates, streams. Knows the wire; no tensors."""
