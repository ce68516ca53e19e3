"""What a shell offers behind options: languages, functions of a file. Silent where it fails."""

from collections.abc import Iterable

import typer


def complete_language(incomplete: str) -> list[str]:
    from midfill_infill.languages import REGISTRY

    return _beginning(REGISTRY, incomplete)


def complete_function(context: typer.Context, incomplete: str) -> list[str]:
    """Those of the file that stands on the line before."""
    from midfill_infill.cli.target import open_source, parse_target
    from midfill_infill.errors import MidfillError
    from midfill_infill.syntax.outline import outline

    named = context.params.get("target") or next(iter(context.args), "")
    try:
        functions = outline(open_source(parse_target(named), context.params.get("language")).document).functions
    except MidfillError:
        return []
    return _beginning((function.name for function in functions if function.name), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
