"""`midfill serve`: becomes an engine in the foreground. Knows the engine's options, not what they do."""

import sys
from pathlib import Path
from typing import Any

from midfill_engine.starting import with_serve_options
from midfill_infill.cli.execute import become
from midfill_infill.cli.failures import report_failures
from midfill_infill.engines import supervise
from midfill_infill.engines.installed import engine_command
from midfill_infill.errors import MidfillError


@with_serve_options
def serve_command(**given: Any) -> None:
    """Run an engine in the foreground. Without --socket and --host it is the one that `midfill fill` uses."""
    with report_failures():
        socket, host = given["socket"], given["host"]
        if host and socket:
            raise MidfillError("bad_request", "--socket and --host exclude each other", "give one of them")
        supervise.check_installed()
        named = {name: given.pop(name) for name in ("model", "dtype", "cache", "weights")}
        device = given.pop("device") or "auto"
        settings = supervise.complete(supervise.EngineSettings(device=device, project=Path.cwd(), **named))
        supervise.fetch_model(settings, lambda phrase: print(phrase, file=sys.stderr))
        if host is None:
            given["socket"] = socket.absolute() if socket else supervise.claim_place(settings).socket
        say_where(settings.model or supervise.SHIPPED, socket, host)
        options: list[str] = []
        for name, value in given.items():
            values = value if isinstance(value, list) else [value]
            for single in values:
                if single is not None:
                    options += [f"--{name.replace('_', '-')}", str(single)]
        become([*engine_command(), "serve", *options, *supervise.engine_arguments(settings)])


def say_where(model: str, socket: Path | None, host: str | None) -> None:
    """Prints how to reach the engine. The engine itself prints its port, and where its token is stored."""
    if host is not None:
        print(f"{model} will answer at {host}, with the bearer token that the next lines name", file=sys.stderr)
    elif socket is not None:
        print(f"{model} will answer at {socket.absolute()}, for you alone", file=sys.stderr)
    else:
        print(f"{model} fills from now on, in the command and in editors, until this process ends", file=sys.stderr)
