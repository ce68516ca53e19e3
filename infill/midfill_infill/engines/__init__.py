"""Finds, starts and queries engines. The only package with sockets."""
