"""The way to an engine: finding it, starting it, asking it. The only room with sockets."""
