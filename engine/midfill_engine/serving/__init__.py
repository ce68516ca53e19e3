"""The engine's process: sockets, routes, authentication, streams. Knows the wire; no tensors."""
