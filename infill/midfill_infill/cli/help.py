"""`midfill help`: the pages of the documentation. Knows where pages lie, not their words."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from midfill_infill.cli.failures import report_failures
from midfill_infill.errors import MidfillError

_SOURCES: Final = Path(__file__).parents[3] / "docs"
_FIRST_PAGE: Final = "command.md"


def _complete(incomplete: str) -> list[str]:
    return [name for name in find_pages() if name.startswith(incomplete)]


def help_command(
    page: Annotated[str | None, typer.Argument(help="Such as `holes`.", autocompletion=_complete)] = None,
) -> None:
    """Show a page of the documentation, or which there are. Works offline; `--help` shows a command's options."""
    with report_failures():
        pages = find_pages()
        if page is not None and page not in pages:
            message = f"there is no page {page!r}"
            raise MidfillError("bad_request", message, "see `midfill help`, or `--help` behind a command")
        if page is None:
            for name, path in pages.items():
                print(f"{name:<10} {path.read_text('utf-8').splitlines()[0].lstrip('# ')}")
        elif sys.stdout.isatty():
            from rich.console import Console
            from rich.markdown import Markdown

            with (console := Console()).pager(styles=True):
                console.print(Markdown(pages[page].read_text("utf-8")))
        else:
            print(pages[page].read_text("utf-8").rstrip())


def find_pages() -> dict[str, Path]:
    """The pages by their names: those of the source tree, or those that were installed."""
    if (_SOURCES / _FIRST_PAGE).is_file():
        return {path.stem: path for path in sorted(_SOURCES.glob("*.md"))}
    try:
        installed = metadata.files("midfill") or []
    except metadata.PackageNotFoundError:
        installed = []
    return {Path(file).stem: Path(str(file.locate())) for file in sorted(installed) if "share/doc/midfill" in str(file)}
