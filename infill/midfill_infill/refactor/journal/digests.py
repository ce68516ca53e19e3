"""Hashes file contents."""

import hashlib


def digest(data: bytes) -> bytes:
    """SHA-256, 32 bytes."""
    return hashlib.sha256(data).digest()
