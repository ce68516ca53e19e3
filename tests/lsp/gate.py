"""Holds the steps of a scripted model until a test lets them go on."""

from pathlib import Path

from tests.lsp.scripted_server import GATE


class Gate:
    """Holds the fills of the scripted model `model` before each step but the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.model = f"{GATE}{folder}"

    def let(self, step: int) -> None:
        (self._folder / str(step)).touch()

    def open(self) -> None:
        (self._folder / "open").touch()
