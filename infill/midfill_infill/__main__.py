"""`python -m midfill_infill` is the `midfill` command."""

from midfill_infill.cli import main

main()
