"""How an engine is started: the options of its command, and what names a model on the hub or has come in a package.

The engine and `midfill serve` share all of it. Imports typer and platformdirs only where they are needed.
"""

import re
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from midfill_engine.wire import Message

AccessLog = Literal["off", "text", "json"]
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


def is_hub_id(name: str) -> bool:
    """True for `OWNER/NAME` and `OWNER/NAME@REVISION`."""
    return _HUB_ID.fullmatch(name) is not None


def packaged_folder() -> Path:
    """The folder of models that came in packages, one subfolder per model."""
    from platformdirs import user_data_path

    return user_data_path("midfill") / "models"


class ServeOptions(Message):
    """The options of `serve`: the engine's command and `midfill serve`, which passes them on."""

    socket: Path | None = Field(default=None, description="Listen on this unix socket, made with mode 0600.")
    host: str | None = Field(default=None, description="Listen on this address instead, with a bearer token.")
    port: int = Field(default=8427, ge=0, le=65535, description="The port, with --host; 0 takes a free one.")
    model: str = Field(default="embedded", description="A known model, a checkpoint folder, or OWNER/NAME on the hub.")
    device: str = Field(default="auto", description="auto, cpu, cuda or mps.")
    weights: Literal["stored", "int8", "int4"] | None = Field(
        default=None,
        description="int8, on CPUs: half of bf16's memory; the default of smollm2 there. int4, on GPUs: a third.",
    )
    dtype: str = Field(default="auto", description="Format of the weights: auto, fp32, bf16, or fp16 on Apple GPUs.")
    idle_timeout_s: float | None = Field(default=None, ge=0, description="End after so many seconds without requests.")
    token_file: Path | None = Field(
        default=None, description="File with the token, or with lines of NAME TOKEN; MIDFILL_TOKEN goes first."
    )
    operators: Literal["auto", "torch", "kernels"] = Field(
        default="auto",
        description="What computes a step: torch, or Midfill's kernels, which auto takes on Hopper GPUs.",
    )
    cache: str | None = Field(default=None, description="KV cache: `none` is exact, `midfill doctor` shows the usual.")
    lengths: str | None = Field(default=None, description="How long holes are made, such as fixed.")
    drain_s: float = Field(default=20.0, ge=0, description="How long open requests may go on at the end.")
    allowed_host: list[str] | None = Field(default=None, description="Name that clients use; repeatable.")
    certfile: Path | None = Field(default=None, description="Speak TLS with this certificate (PEM), with --host.")
    keyfile: Path | None = Field(default=None, description="The certificate's key, where it is a file of its own.")
    max_connections_per_peer: int = Field(default=256, ge=1, description="Connections of one address; a proxy is one.")
    access_log: AccessLog = Field(default="off", description="Log each answer: route, status, time, token; no text.")


def with_serve_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a typer command an option for each field of ServeOptions. Options that are not given are None."""
    import typer

    parameters = []
    for name, field in ServeOptions.model_fields.items():
        limits = {"ge": "min", "le": "max"}
        bounds = {limits[key]: getattr(rule, key) for rule in field.metadata for key in limits if hasattr(rule, key)}
        default = f" [default: {field.default}]" if field.default not in (None, 0, "embedded") else ""
        option: Any = typer.Option(help=f"{field.description}{default}", **bounds)
        kind: Any = field.annotation
        annotation = Annotated[kind | None, option]
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=None))
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
