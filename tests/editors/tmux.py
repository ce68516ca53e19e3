"""A terminal that a test can look at: a program in tmux, with keys to press and a screen to read."""

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

TIMEOUT_S = 30.0


class Terminal:
    """Runs `command` in a tmux of its own, without anybody's settings; it ends with the context."""

    def __init__(
        self, command: list[str], folder: Path, environment: Mapping[str, str], *, columns: int = 90, lines: int = 30
    ) -> None:
        self._socket = str(folder / "tmux")
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, *command, environment=environment)
        self._tmux("set-option", "-g", "default-terminal", "tmux-256color")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, timeout=TIMEOUT_S)

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: "C-y", "Escape", "Enter"; anything else is typed."""
        self._tmux("send-keys", *keys)

    def screen(self, *, styled: bool = False) -> str:
        """What is to be seen, with the escapes of its colours where `styled`."""
        return self._tmux("capture-pane", "-p", *(["-e", "-N"] if styled else []))

    def wait(self, what: str, condition: Callable[[str], object], timeout_s: float = TIMEOUT_S) -> str:
        """The first screen that holds."""
        deadline_s = time.monotonic() + timeout_s
        while not condition(screen := self.screen()):
            if time.monotonic() > deadline_s:
                raise AssertionError(f"waited in vain for {what}; the screen shows:\n{screen}")
            time.sleep(0.02)
        return screen

    def _tmux(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        command = ["tmux", "-S", self._socket, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=True)
        return done.stdout
