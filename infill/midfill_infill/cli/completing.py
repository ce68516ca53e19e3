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


def complete_model(incomplete: str) -> list[str]:
    """Those that ship or lie on this machine."""
    from midfill_engine.wire import BASE
    from midfill_infill.engines.fetching import list_stock
    from midfill_infill.engines.supervise import SHIPPED
    from midfill_infill.errors import MidfillError

    try:
        stored = [each.model for each in list_stock().data]
    except (MidfillError, OSError, ValueError):
        stored = []
    return _beginning([BASE, SHIPPED, *stored], incomplete)


def complete_setting(incomplete: str) -> list[str]:
    from midfill_infill.config import KEYS

    return _beginning(KEYS, incomplete)


def complete_value(context: typer.Context, incomplete: str) -> list[str]:
    """What the setting that stands on the line before takes, where that is one of a few names."""
    from midfill_infill.config import KEYS

    name = context.params.get("name") or next(iter(context.args), "")
    if name == "model":
        return complete_model(incomplete)
    words = KEYS[name].expected.removeprefix("one of ") if name in KEYS else ""
    return _beginning(words.split(", ") if words != KEYS[name].expected else [], incomplete) if words else []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
