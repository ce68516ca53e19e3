"""Finds, starts and asks engines. The only folder with sockets, all in `connections.py`."""
