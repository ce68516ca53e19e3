"""Options that several commands share, and their shell completion."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer


def complete_language(incomplete: str) -> list[str]:
    from midfill_infill.languages import REGISTRY

    return _beginning(REGISTRY, incomplete)


def complete_function(context: typer.Context, incomplete: str) -> list[str]:
    """Completes functions of the file named earlier on the command line."""
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
    """Completes models that ship with Midfill or are stored on this machine."""
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
    """Completes values of the setting named earlier, if it takes one of a fixed set of names."""
    from midfill_infill.config import KEYS

    name = context.params.get("name") or next(iter(context.args), "")
    if name == "model":
        return complete_model(incomplete)
    words = KEYS[name].expected.removeprefix("one of ") if name in KEYS else ""
    return _beginning(words.split(", ") if words != KEYS[name].expected else [], incomplete) if words else []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


if TYPE_CHECKING:
    from midfill_infill.config import Quality


def flag(*words: str) -> Any:
    """Returns an option without a value. `words` are its names, then its help."""
    *names, said = words
    return typer.Option(*names, metavar="", help=said)


DeviceName = Literal["auto", "cpu", "cuda", "mps"]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="NAME|DIR", help="A known model or a checkpoint folder.", autocompletion=complete_model),
]
DeviceOption = Annotated[DeviceName, typer.Option(help="Where the model runs.")]
StepsOption = Annotated[int | None, typer.Option(metavar="N", min=1, max=1024, help="At most this many denoise steps.")]
MaxTokensOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1024, help="At most this many tokens a hole.")
]
SandboxOption = Annotated[
    bool, typer.Option("--sandbox/--no-sandbox", help="Run the command in bubblewrap, without network.")
]
AllowOption = Annotated[
    list[Path] | None, typer.Option("--allow", metavar="PATH", help="Let the command read this path. Repeatable.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="Pass this variable to the command. Repeatable."),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout-s", metavar="S", min=1, help="Time limit of one run of the command.")
]
UntilOption = Annotated[
    str | None, typer.Option(metavar="COMMAND", help="Try candidates until this command passes, such as 'pytest -q'.")
]
TriesOption = Annotated[
    int, typer.Option(metavar="N", min=1, max=1000, help="With --until: at most this many candidates.")
]
CommandTimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="S", min=0.1, help="With --until: time limit of a try; default 5 times the first run."),
]


def read_quality(text: str | None) -> "Quality":
    """Parses a number from 0 to 1, or `authors`. Raises BadParameter."""
    if text is None or text == "authors":
        return "authors" if text else None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r} is neither a number from 0 to 1 nor authors")
    return value


def _check(text: str | None) -> str | None:
    read_quality(text)
    return text


MinCertaintyOption = Annotated[
    float | None,
    typer.Option(metavar="P", min=0, max=1, help="Write fills of at least this certainty; default 0.5, 0 writes all."),
]
QualityOption = Annotated[
    str | None,
    typer.Option(
        metavar="Q", callback=_check, help="0 settles most tokens a step, 1 fewest; authors: as the model's authors do."
    ),
]
