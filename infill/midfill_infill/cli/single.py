"""An app of one command, as `app.py` expects it of every module. Knows no command."""

from collections.abc import Callable
from typing import Any

import typer


def single(function: Callable[..., None], **settings: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command(**settings)(function)
    return app
