"""`midfill help`: what a command takes, and its page of the documentation. Knows where pages lie, not their words."""

import contextlib
import io
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from midfill_infill.cli.failures import report_failures
from midfill_infill.errors import MidfillError

_SOURCES: Final = Path(__file__).parents[3] / "docs"
_FIRST_PAGE: Final = "command.md"
# Commands whose page has a different name.
_PAGES: Final = {
    "fill": "command",
    "config": "command",
    "engine": "command",
    "doctor": "command",
    "lsp": "editors",
    "serve": "serving",
}


def _complete(incomplete: str) -> list[str]:
    return [name for name in find_pages() if name.startswith(incomplete)]


def help_command(
    context: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND|PAGE]", help="A page: `fill`, `refactor plan` or `holes`.", autocompletion=_complete
        ),
    ] = None,
) -> None:
    """Show what a command takes and its page of the documentation, or one page. Alone, which there are."""
    with report_failures():
        words, pages = topic or [], find_pages()
        name = _PAGES.get(words[0], words[0]) if len(words) == 1 else ""
        page = pages[name].read_text("utf-8") if name in pages else ""
        options = _read_options(context.find_root(), words, or_nothing=bool(page))
        if not words:
            options += "\nPages, for `midfill help PAGE`:\n\n"
            options += "".join(f"  {name:<10} {_title(path)}\n" for name, path in pages.items())
        _show(options, page)


def find_pages() -> dict[str, Path]:
    """The pages by their names: those of the source tree, or those that were installed."""
    if (_SOURCES / _FIRST_PAGE).is_file():
        return {path.stem: path for path in sorted(_SOURCES.glob("*.md"))}
    try:
        installed = metadata.files("midfill") or []
    except metadata.PackageNotFoundError:
        installed = []
    return {Path(file).stem: Path(str(file.locate())) for file in sorted(installed) if "share/doc/midfill" in str(file)}


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].lstrip("# ")


def _read_options(context: Any, words: list[str], *, or_nothing: bool) -> str:
    """Returns the `--help` text of a command. Raises MidfillError if there is none, unless `or_nothing`."""
    for word in words:
        command = context.command.get_command(context, word) if hasattr(context.command, "get_command") else None
        if command is None and or_nothing:
            return ""
        if command is None:
            raise MidfillError("bad_request", f"there is no command or page {' '.join(words)!r}", "see `midfill help`")
        context = typer.Context(command, info_name=word, parent=context)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print(context.get_help())
    return text.getvalue().rstrip() + "\n"


def _show(options: str, page: str) -> None:
    """Shows the text in a pager on a terminal, otherwise prints it as it is."""
    if not sys.stdout.isatty():
        print("\n".join(part for part in (options, page.rstrip()) if part))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True) if page else contextlib.nullcontext():
        console.print(options, markup=False, highlight=False)
        console.print(Markdown(page))
