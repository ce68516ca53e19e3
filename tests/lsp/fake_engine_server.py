"""The real server, whose engine is the scripted one that TEST_ENGINE names."""

import os
import sys

from midfill_infill.engines import supervise
from midfill_lsp.__main__ import main

if __name__ == "__main__":
    supervise.engine_command = lambda: [sys.executable, os.environ["TEST_ENGINE"]]
    supervise.check_installed = lambda: None
    main()
