"""What several commands are asked about a model, a fill and a command to run. Knows words, no engine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from midfill_infill.cli.completing import complete_model

if TYPE_CHECKING:
    from midfill_infill.config import Quality

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
    """Raises BadParameter for anything else."""
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
