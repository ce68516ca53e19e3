"""`python -m midfill_engine`: the engine's process as a command. Knows options; what they mean is known elsewhere."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from midfill_engine.errors import StartError
from midfill_engine.serve import ServeOptions, end_process, report
from midfill_engine.serve import serve as run_server

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Midfill's denoising engine."
)


@app.command()
def serve(
    socket: Annotated[Path | None, typer.Option(help="Unix socket to listen on, made with mode 0600.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on instead, with a bearer token.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")] = 8427,
    model: Annotated[str, typer.Option(help="A shipped model's name, or a checkpoint folder.")] = "embedded",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    idle_timeout_s: Annotated[float | None, typer.Option(min=0, help="End after so many seconds of rest.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Where the token is kept; MIDFILL_TOKEN goes first.")] = None,
) -> None:
    """Listens, loads the model, answers."""
    if (socket is None) == (host is None):
        raise typer.BadParameter("give either --socket or --host")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    try:
        code = run_server(ServeOptions(socket, host, port, model, device, idle_timeout_s, token_file))
    except StartError as error:
        report(error)
        code = error.exit_code
    end_process(code)


@app.command()
def random_checkpoint(folder: Path, seed: int = 0) -> None:
    """Writes a tiny checkpoint with random weights, for trying the machinery without a model."""
    from midfill_engine.checkpoint import make_random  # torch is only needed here

    make_random(folder, seed=seed)


if __name__ == "__main__":
    app()
