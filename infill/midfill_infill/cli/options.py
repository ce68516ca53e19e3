"""Defines the options that several commands share, and their shell completion. Knows no command."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand


def complete_language(incomplete: str) -> list[str]:
    """Completes names of languages."""
    from midfill_infill.languages import REGISTRY

    return _keep_matching(REGISTRY, incomplete)


def complete_function(context: typer.Context, incomplete: str) -> list[str]:
    """Completes names of functions of the file that the command line names before; none of standard input."""
    from midfill_infill.errors import MidfillError
    from midfill_infill.filling.targets import open_source, parse_target
    from midfill_infill.syntax.outline import outline

    target = context.params.get("target") or next(iter(context.args), "")
    if _is_stdin(target):
        return []
    try:
        functions = outline(open_source(parse_target(target), context.params.get("language")).document).functions
    except MidfillError:
        return []
    return _keep_matching((function.name for function in functions if function.name), incomplete)


def complete_model(incomplete: str) -> list[str]:
    """Completes names of models that ship with Midfill or are stored on this machine."""
    from midfill_engine.wire import BASE
    from midfill_infill.engines.fetching import list_stock
    from midfill_infill.engines.supervise import SHIPPED
    from midfill_infill.errors import MidfillError

    try:
        stored = [stored_model.model for stored_model in list_stock().data]
    except (MidfillError, OSError, ValueError):
        stored = []
    return _keep_matching([BASE, SHIPPED, *stored], incomplete)


def complete_setting(incomplete: str) -> list[str]:
    """Completes names of settings."""
    from midfill_infill.config import KEYS

    return _keep_matching(KEYS, incomplete)


def complete_value(context: typer.Context, incomplete: str) -> list[str]:
    """Completes values of the setting named before, if it is the model or takes one of a few words."""
    from midfill_infill.config import KEYS

    name = context.params.get("name") or next(iter(context.args), "")
    if name == "model":
        return complete_model(incomplete)
    if name not in KEYS or not KEYS[name].expected.startswith("one of "):
        return []
    words = KEYS[name].expected.removeprefix("one of ")
    return _keep_matching(words.split(", "), incomplete)


def _keep_matching(names: Iterable[str], incomplete: str) -> list[str]:
    """The different names that begin with an incomplete one."""
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def flag(*words: str) -> Any:
    """An option without a value. `words` are its names, and its help as the last one."""
    *names, help_text = words
    return typer.Option(*names, metavar="", help=help_text)


def option(metavar: str, help_text: str, *names: str, **limits: Any) -> Any:
    """An option with a value, which the help calls `metavar`. Without `names` it is named after its parameter."""
    return typer.Option(*names, metavar=metavar, help=help_text, **limits)


STDIN: Final = "- as FILE"
# Options, by their parameters, that do nothing unless one of others is given.
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "tries": ("until",),
    "command_timeout": ("until",),
    "sandbox": ("until", "command"),
    "allow": ("until", "command"),
    "env": ("until", "command"),
    "timeout_s": ("command",),
    "flake_check": ("command",),
    "allow_errors": ("write", "n", STDIN),
    "min_certainty": ("write", "take_all", STDIN),
    "diff": (STDIN,),
    "ray_address": ("ray",),
    "ray_env": ("ray",),
    "port": ("host",),
    "token_file": ("host",),
    "max_connections_per_peer": ("host",),
    "certfile": ("host",),
    "keyfile": ("certfile",),
}
# Options that do nothing if one of others is given.
_IDLE_WITH: Final[dict[str, tuple[str, ...]]] = {
    "take": ("until",),
    "min_certainty": ("until",),
    "frame_ms": ("until", "json_output"),
    "diff": ("json_output",),
    "jobs": ("until",),
}


class CheckedCommand(TyperCommand):
    """Refuses options that would do nothing beside the others that are given, instead of leaving them out silently."""

    def invoke(self, ctx: Any) -> Any:
        idle = _find_idle(ctx)
        if idle is None:
            return super().invoke(ctx)
        from midfill_infill.cli.failures import report_failures
        from midfill_infill.errors import MidfillError

        with report_failures(as_json=bool(ctx.params.get("json_output"))):  # entered once: then Ctrl-C is ignored
            raise MidfillError("bad_request", *idle)


def _find_idle(context: Any) -> tuple[str, str] | None:
    """What is wrong with the first option that has no effect beside the others, and what to do; None without one."""
    named = {parameter.name: _name_option(parameter, context.params) for parameter in context.command.params}
    given = {name for name in named if context.get_parameter_source(name).name == "COMMANDLINE"}
    if "target" in named:
        named[STDIN] = STDIN
        if _is_stdin(context.params["target"]):
            given.add(STDIN)
    for name in (name for name in named if name in given):
        needed = [other for other in _NEEDS.get(name, ()) if other in named]
        if needed and given.isdisjoint(needed):
            others = " or ".join(named[other] for other in needed)
            return f"{named[name]} does nothing without {others}", f"add that, or leave out {named[name]}"
        for other in _IDLE_WITH.get(name, ()):
            if other in given:
                return f"{named[name]} does nothing with {named[other]}", f"leave out {named[name]}"
    return None


def _is_stdin(target: str) -> bool:
    return target.partition(":")[0] == "-"


def _name_option(parameter: Any, values: Mapping[str, Any]) -> str:
    """An option as the user writes it."""
    names = parameter.secondary_opts if values.get(parameter.name) is False else parameter.opts
    return str(max(names or parameter.opts, key=len))


class ChangedCommand(CheckedCommand):
    """Parses `--changed` without a reference as `--changed=HEAD`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        for index, word in enumerate(words):
            if word == "--changed" and (index + 1 == len(words) or words[index + 1].startswith("-")):
                words[index] = "--changed=HEAD"
        return super().parse_args(ctx, words)


DeviceName = Literal["auto", "cpu", "cuda", "mps"]
ModelOption = Annotated[
    str | None, option("NAME|DIR", "A known model or a checkpoint folder.", autocompletion=complete_model)
]
DeviceOption = Annotated[DeviceName, typer.Option(help="Where the model runs.")]
StepsOption = Annotated[
    int | None, option("N", "At most this many denoise steps of a diffusion model.", min=1, max=1024)
]
MaxTokensOption = Annotated[int | None, option("N", "At most this many tokens a hole.", min=1, max=1024)]
SandboxOption = Annotated[
    bool, typer.Option("--sandbox/--no-sandbox", help="Run the command in bubblewrap, without network.")
]
AllowOption = Annotated[list[Path] | None, option("PATH", "Let the command read this path. Repeatable.", "--allow")]
EnvOption = Annotated[
    list[str] | None, option("NAME[=VALUE]", "Pass this variable to the command. Repeatable.", "--env")
]
TimeoutOption = Annotated[
    float | None,
    option(
        "S",
        "Time limit of one run of the command; the default is 5 times what it takes without any fill.",
        "--timeout-s",
        min=1,
    ),
]
UntilOption = Annotated[str | None, option("COMMAND", "Try candidates until this command passes, such as 'pytest -q'.")]
TriesOption = Annotated[int, option("N", "With --until: at most this many candidates.", min=1, max=1000)]
CommandTimeoutOption = Annotated[
    float | None,
    option("S", "With --until: time limit of a run; a try's default is 5 times the first.", min=0.1),
]


def read_quality(text: str) -> float | Literal["authors"]:
    """Parses a number from 0 to 1, or `authors`. Raises BadParameter."""
    if text == "authors":
        return "authors"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r} is neither a number from 0 to 1 nor authors")
    return value


MinCertaintyOption = Annotated[
    float | None,
    option("P", "Write fills of at least this certainty; default: all but suggestions; 0 writes all.", min=0, max=1),
]
QualityOption = Annotated[
    Any,
    option(
        "Q",
        "Of a diffusion model: 0 settles most tokens a step, 1 fewest; authors: as its authors do.",
        parser=read_quality,
    ),
]
