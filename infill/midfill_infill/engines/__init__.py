"""The way to an engine: finding it, starting it, asking it. The only room with sockets."""

import sys

# httpx imports its own command line where click and rich are there, which takes longer than all else of it.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
