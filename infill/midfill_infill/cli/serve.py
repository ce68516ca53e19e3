"""`midfill serve`: becomes an engine in the foreground. Knows the engine's options, not what it does."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from midfill_infill.cli.execute import become
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import DeviceOption
from midfill_infill.cli.single import single


def build() -> typer.Typer:
    return single(serve_command)


def serve_command(
    socket: Annotated[Path | None, typer.Option(help="Listen on this unix socket, made 0600.")] = None,
    host: Annotated[str | None, typer.Option(help="Listen on this address, with a bearer token.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port, with --host.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="A known model or a checkpoint folder.")] = None,
    device: DeviceOption = "auto",
    weights: Annotated[str | None, typer.Option(metavar="NAME", help="stored, or int8 for CPUs without bf16.")] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto, fp32, bf16 or fp16: the weights' format.")
    ] = None,
    idle_timeout_s: Annotated[float | None, typer.Option(min=0, help="End after this long without requests.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Where the bearer token is kept, or lines of NAME TOKEN, with --host.")
    ] = None,
    operators: Annotated[str | None, typer.Option(metavar="NAME", help="torch, or kernels on a GPU.")] = None,
    cache: Annotated[str | None, typer.Option(metavar="NAME", help="What a step does not compute anew.")] = None,
    lengths: Annotated[str | None, typer.Option(metavar="NAME", help="How long holes are made.")] = None,
    drain_s: Annotated[float | None, typer.Option(min=0, help="How long open requests may go on at the end.")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="A name that clients use, such as a proxy's.")] = None,
    certfile: Annotated[Path | None, typer.Option(help="Speak TLS with this certificate (PEM), with --host.")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None,
    max_connections_per_peer: Annotated[
        int | None, typer.Option(min=1, help="Connections that one address may hold.")
    ] = None,
    access_log: Annotated[str | None, typer.Option(metavar="off|text|json", help="A line an answer, no text.")] = None,
    ray: Annotated[int | None, typer.Option(metavar="N", min=1, help="So many engines on a Ray cluster.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="That cluster; one on this machine if not given.")] = None,
) -> None:
    """Run an engine in the foreground. Without --socket and --host it is the one that `midfill fill` uses."""
    with report_failures():
        from midfill_infill.engines import supervise
        from midfill_infill.engines.command import engine_command
        from midfill_infill.errors import MidfillError

        if port is not None and host is None:
            raise MidfillError("bad_request", "--port needs --host", next_step="add --host 127.0.0.1")
        if host and socket:
            raise MidfillError("bad_request", "--socket and --host exclude each other", next_step="give one of them")
        supervise.check_installed()
        options = [
            ("--idle-timeout-s", idle_timeout_s),
            ("--token-file", token_file),
            ("--host", host),
            ("--port", port),
            ("--operators", operators),
            ("--lengths", lengths),
            ("--drain-s", drain_s),
            ("--certfile", certfile),
            ("--keyfile", keyfile),
            ("--max-connections-per-peer", max_connections_per_peer),
            ("--access-log", access_log),
            ("--ray", ray),
            ("--ray-address", ray_address),
            *(("--allowed-host", name) for name in allowed_host or ()),
        ]
        asked = supervise.EngineSettings(model, device, cache=cache, dtype=dtype, weights=weights, project=Path.cwd())
        settings = supervise.complete(asked)
        supervise.fetch_model(settings, lambda phrase: print(phrase, file=sys.stderr))
        if host is None:
            options.append(("--socket", socket.absolute() if socket else supervise.claim_place(settings).socket))
        given = [word for name, value in options if value is not None for word in (name, str(value))]
        say_where(settings.model or supervise.SHIPPED, socket, host, port)
        become([*engine_command(), "serve", *given, *supervise.engine_arguments(settings)])


def say_where(model: str, socket: Path | None, host: str | None, port: int | None) -> None:
    """How to reach it; the engine itself says on which port it listens, and where its token is kept."""
    if host is not None:
        print(f"{model} will answer at {host}, with the bearer token that the next lines name", file=sys.stderr)
    elif socket is not None:
        print(f"{model} will answer at {socket.absolute()}, for you alone", file=sys.stderr)
    else:
        print(f"{model} fills from now on, in the command and in editors, until this process ends", file=sys.stderr)
