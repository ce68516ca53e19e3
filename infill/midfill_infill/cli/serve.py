"""`midfill serve`: becomes an engine in the foreground. Knows the engine's options, not what it does."""

from pathlib import Path
from typing import Annotated

import typer

from midfill_infill.cli.execute import become
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.fill import DeviceName


def serve_command(
    socket: Annotated[Path | None, typer.Option(help="Listen on this unix socket, made 0600.")] = None,
    host: Annotated[str | None, typer.Option(help="Listen on this address, with a bearer token.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port, with --host.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="A known model or a checkpoint folder.")] = None,
    device: Annotated[DeviceName, typer.Option(help="Where the model runs.")] = "auto",
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="auto, fp32 or bf16: the weights' format.")] = None,
    idle_timeout_s: Annotated[float | None, typer.Option(min=0, help="End after this long without requests.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Where the bearer token is kept, or lines of NAME TOKEN, with --host.")
    ] = None,
    guide: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="A small model that supervises fills.")] = None,
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
) -> None:
    """Run an engine in the foreground. Without --socket and --host it is the one that `midfill fill` uses."""
    with report_failures():
        from midfill_infill.engines import supervise
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
            ("--dtype", dtype),
            ("--guide", guide),
            ("--operators", operators),
            ("--cache", cache),
            ("--lengths", lengths),
            ("--drain-s", drain_s),
            ("--certfile", certfile),
            ("--keyfile", keyfile),
            ("--max-connections-per-peer", max_connections_per_peer),
            ("--access-log", access_log),
            *(("--allowed-host", name) for name in allowed_host or ()),
        ]
        if host is None:
            settings = supervise.EngineSettings(model, device)
            options.append(("--socket", socket.absolute() if socket else supervise.claim_place(settings).socket))
        given = [word for name, value in options if value is not None for word in (name, str(value))]
        become([*supervise.engine_command(), "serve", *given, *supervise.engine_arguments(model, device)])
