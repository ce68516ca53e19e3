"""Makes `python -m midfill_infill` the `midfill` command."""

from midfill_infill.cli import main

main()
