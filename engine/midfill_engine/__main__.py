"""`python -m midfill_engine`: the engine's process as a command. Knows options; what they mean is known elsewhere."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from midfill_engine.errors import StartError
from midfill_engine.serving.access import AccessLog
from midfill_engine.serving.connection import MAX_CONNECTIONS_PER_PEER
from midfill_engine.serving.logs import set_up_logging
from midfill_engine.serving.serve import DRAIN_S, ServeOptions, end_process, report
from midfill_engine.serving.serve import serve as run_server

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Midfill's denoising engine."
)


@app.command()
def serve(
    socket: Annotated[Path | None, typer.Option(help="Unix socket to listen on, made with mode 0600.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on instead, with a bearer token.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")] = 8427,
    model: Annotated[str, typer.Option(help="A shipped model, a folder, or OWNER/NAME on the hub.")] = "embedded",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    weights: Annotated[
        Literal["stored", "int8"] | None,
        typer.Option(
            help="int8: half the memory of bf16, faster where a CPU has no bf16; what smollm2 has on CPUs unless said."
        ),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="auto, fp32, bf16, or fp16 on Apple's GPUs: the weights' format; MIDFILL_DTYPE says what auto is."
        ),
    ] = "auto",
    idle_timeout_s: Annotated[float | None, typer.Option(min=0, help="End after so many seconds of rest.")] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Where the token is kept, or lines of NAME TOKEN; MIDFILL_TOKEN goes first."),
    ] = None,
    operators: Annotated[
        Literal["torch", "torch-int8", "kernels", "kernels-fp8", "kernels-int8", "kernels-int4"],
        typer.Option(
            help="What computes a step: torch, or Midfill's kernels on a GPU, with weights as they are or narrow."
        ),
    ] = "torch",
    cache: Annotated[
        str | None,
        typer.Option(help="What a step does not compute anew; `none` is exact, doctor shows the usual one."),
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="How long holes are made, such as fixed; the model's own if not given.")
    ] = None,
    drain_s: Annotated[
        float, typer.Option(min=0, help="How long open requests may go on once the engine is told to end.")
    ] = DRAIN_S,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name by which clients reach the engine, such as a proxy's.")
    ] = None,
    certfile: Annotated[Path | None, typer.Option(help="Speak TLS with this certificate (PEM).")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="The certificate's key, where it is a file of its own.")] = None,
    max_connections_per_peer: Annotated[
        int, typer.Option(min=1, help="Connections that one address may hold; a proxy is one address.")
    ] = MAX_CONNECTIONS_PER_PEER,
    access_log: Annotated[
        AccessLog, typer.Option(help="A line for every answer on stderr: route, status, time, whose token; no text.")
    ] = "off",
    ray: Annotated[
        int, typer.Option(metavar="N", min=0, max=4096, help="So many engines on a Ray cluster behind this door.")
    ] = 0,
    ray_address: Annotated[str | None, typer.Option(help="The cluster; one on this machine if not given.")] = None,
) -> None:
    """Listens, loads the model, answers."""
    if (socket is None) == (host is None):
        raise typer.BadParameter("give either --socket or --host")
    set_up_logging()
    try:
        options = ServeOptions(
            socket_path=socket,
            host=host,
            port=port,
            model=model,
            device=device,
            idle_timeout_s=idle_timeout_s,
            token_file=token_file,
            operators=operators,
            cache=cache,
            lengths=lengths,
            dtype=dtype,
            weights=weights,
            drain_s=drain_s,
            allowed_hosts=tuple(allowed_host or ()),
            certfile=certfile,
            keyfile=keyfile,
            max_connections_per_peer=max_connections_per_peer,
            access_log=access_log,
        )
        code = run_cluster(options, ray, ray_address) if ray else run_server(options)
    except StartError as error:
        report(error)
        code = error.exit_code
    end_process(code)


def run_cluster(options: ServeOptions, count: int, address: str | None) -> int:
    from midfill_engine.serving.cluster import Cluster, restart_at_signal

    cluster = Cluster(count, address)
    restart_at_signal(cluster)
    try:
        return run_server(options, cluster.make_ready)
    finally:
        cluster.close()


@app.command()
def random_checkpoint(
    folder: Path,
    seed: int = 0,
    family: Annotated[str, typer.Option(help="Whose format; see `models`.")] = "embedded",
) -> None:
    """Writes a tiny checkpoint with random weights, for trying the machinery without a model."""
    from midfill_engine.families import FAMILIES
    from midfill_engine.loading import (
        canvas_model,
        checkpoint,  # torch is only needed here
        hub,  # torch is only needed here
    )
    from midfill_engine.registry import UnknownName

    try:
        found = FAMILIES.find(family)
    except UnknownName as error:
        raise typer.BadParameter(str(error)) from error
    if family == checkpoint.FAMILY:
        checkpoint.make_random(folder, seed=seed)
    elif found.attention == "canvas":
        canvas_model.make_random(folder)
    else:
        hub.make_random(folder, found)


@app.command()
def fetch(
    model: Annotated[str, typer.Argument(help="smollm2, OWNER/NAME on the hub, or OWNER/NAME@REVISION.")],
    device: Annotated[str, typer.Option(help="Where it is to run: does it fit there?")] = "auto",
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Ask nobody where it is here.")] = False,
    cached_only: Annotated[bool, typer.Option("--cached-only", help="Never ask the hub.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if it does not fit into memory.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Hash what is here, too.")] = False,
) -> None:
    """Fetches a checkpoint into the hub's cache, going on where an earlier run stopped. Reports lines of JSON."""
    from midfill_engine.loading.stock import fetch_and_report, report_cached

    try:
        if if_missing or cached_only:
            if report_cached(model, must_be=cached_only):
                return
        fetch_and_report(model, device, force=force, check=check)
    except StartError as error:
        report(error)
        raise typer.Exit(error.exit_code) from None


@app.command()
def stock(remove: Annotated[str | None, typer.Option(help="OWNER/NAME to take off this machine.")] = None) -> None:
    """Lists as JSON what the hub's cache holds that can be served."""
    from midfill_engine.loading.stock import list_stock, remove_stock

    try:
        print((list_stock() if remove is None else remove_stock(remove)).model_dump_json())
    except StartError as error:
        report(error)
        raise typer.Exit(error.exit_code) from None


@app.command()
def memory() -> None:
    """Prints as JSON how much memory there is in all, and how much a model can still have."""
    from midfill_engine.loading.memory import available_bytes, total_bytes

    print(json.dumps({"total_bytes": total_bytes(), "available_bytes": available_bytes()}))


@app.command()
def models(json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Lists the published models that can be served, with size, licence, context and the memory they take in bf16."""
    from midfill_engine.loading.catalog import as_table, as_values, list_models

    entries = list_models()
    print(json.dumps(as_values(entries), indent=2) if json_output else "\n".join(as_table(entries)))


if __name__ == "__main__":
    app()
