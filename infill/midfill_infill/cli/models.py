"""`midfill models`: lists the models that run, that are here and that can be had; gets, chooses and removes them. Knows
the engine's commands, no hub.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from midfill_engine.wire import BASE, FetchProgress, ModelList
from midfill_infill import config
from midfill_infill.cli.execute import become
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.options import DeviceName, DeviceOption, ModelOption, complete_model
from midfill_infill.cli.view import can_draw
from midfill_infill.engines import fetching, supervise
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.installed import engine_command
from midfill_infill.engines.notes import note
from midfill_infill.engines.supervise import SHIPPED, EngineSettings

PLAIN_EVERY_BYTES: Final = 100_000_000  # of a download, between two lines on an output that is no terminal
HubName = Annotated[
    str, typer.Argument(metavar="OWNER/NAME", help="smollm2, or a checkpoint on the hub, @REVISION if wanted.")
]
APP: Final = typer.Typer(
    help="The engine's models; `get`, `list`, `use` and `rm` those of the hub.", add_completion=False
)


@APP.callback(invoke_without_command=True)
def models_command(
    context: typer.Context,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models of the engine, what they run on and how much they see."""
    if context.invoked_subcommand is not None:
        return
    with report_failures(as_json=json_output):
        endpoint = supervise.ensure_engine(EngineSettings(model, device, project=Path.cwd()), note)
        with EngineClient(endpoint) as client:
            infos = client.models()
        if endpoint.is_outside and not json_output:
            print(f"{endpoint.title} fills; `midfill config engine --unset` goes back to Midfill's own engine")
            return
        if json_output:
            print(ModelList(data=list(infos)).model_dump_json(indent=2))
            return
        for info in infos:
            print(f"{info.id}  {info.parameters / 1e6:.1f}M parameters, {info.device} {info.dtype}")
            print(f"    sees {info.max_context_tokens} tokens around holes of at most {info.max_hole_tokens}")
            if info.description:
                print(f"    {info.description}")


@APP.command("get")
def get_command(
    name: HubName,
    device: Annotated[DeviceName, typer.Option(help="The device to check memory for.")] = "auto",
    check: Annotated[bool, typer.Option("--check", help="Also check the hashes of files already here.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Download even if it does not fit into memory.")] = False,
    use: Annotated[bool, typer.Option("--use", help="Make it the default model.")] = False,
) -> None:
    """Fetch a checkpoint, going on where an earlier run stopped. Nothing of it is ever run; hashes are compared."""
    with report_failures():
        supervise.check_installed()
        options: list[str] = []
        if check:
            options.append("--check")
        if force:
            options.append("--force")
        with _open_progress(name) as show:
            folder = fetching.fetch(name, show, "--device", device, *options)
        print(f"{name} is here: {folder}")
        if use:
            _choose(name)
        elif name == BASE and config.load()["model"].value is None:
            print("it fills from now on, in the command and in editors")
        else:
            print(f"fill with it: `midfill models use {name}`, or --model {name}")


@APP.command("list")
def list_command(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    published: Annotated[bool, typer.Option("--published", help="List models that can be downloaded.")] = False,
) -> None:
    """List the checkpoints on this machine, half-fetched ones too."""
    with report_failures(as_json=json_output):
        supervise.check_installed()
        if published:
            command = [*engine_command(), "models"]
            if json_output:
                command.append("--json")
            become(command)
        stock = fetching.list_stock()
        if json_output:
            print(stock.model_dump_json(indent=2))
            return
        chosen = config.load(Path.cwd())["model"].value or supervise.default_model() or SHIPPED
        rows = [(SHIPPED, "ships with midfill, used if no other model is installed")]
        for stored in stock.data:
            facts = f"{stored.num_bytes / 1e9:.1f} GB"
            if not stored.is_whole:
                facts += f", incomplete: `midfill models get {stored.model}` resumes the download"
            rows.append((stored.model, facts))
        for model, facts in rows:
            mark = "*" if chosen == model else " "
            print(f"{mark} {model}  {facts}")
        if chosen not in (SHIPPED, *(stored.model for stored in stock.data)):
            print(f"* {chosen}")
        if not any(stored.model == BASE for stored in stock.data):
            print(f"`midfill models get {BASE}` gets the model that fills by default once it is here")
        if not stock.data:
            print("`midfill models list --published` says what else can be had")
        else:
            print("`midfill measure` compares them on your own code")


@APP.command("use")
def use_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|DIR", help="A known model, a folder or OWNER/NAME.", autocompletion=complete_model
        ),
    ],
) -> None:
    """Make a model the one that fills, in the command and in editors. Fetches nothing."""
    with report_failures():
        _choose(name)


@APP.command("rm")
def remove_command(name: HubName) -> None:
    """Take a checkpoint off this machine, from the cache that it shares with other programs of the hub."""
    with report_failures():
        supervise.check_installed()
        for removed in fetching.list_stock("--remove", name).data:
            print(f"removed {removed.model}, {removed.num_bytes / 1e9:.1f} GB")
        if config.load()["model"].value == name:
            print("it is still chosen: the next fill downloads it again, unless you run `midfill models use embedded`")


def _choose(name: str) -> None:
    """Makes a model the one that fills, by the user's settings, and prints that."""
    chosen = supervise.check_model(name)
    file = config.set_for_user("model", chosen)
    print(f"{chosen} fills from now on ({file})")
    if os.environ.get("MIDFILL_MODEL"):
        print("but MIDFILL_MODEL is set in this environment and overrides it")


@contextmanager
def _open_progress(name: str) -> Iterator[Callable[[FetchProgress], None]]:
    """Yields a function that shows the progress of a download on stderr: by a bar with bytes, rate and time left on a
    terminal, otherwise by a line now and then.
    """
    if not can_draw(sys.stderr):
        printed_bytes = -PLAIN_EVERY_BYTES

        def print_line(progress: FetchProgress) -> None:
            nonlocal printed_bytes
            if progress.note or progress.done_bytes - printed_bytes >= PLAIN_EVERY_BYTES:
                printed_bytes = progress.done_bytes
                print(fetching.show_progress(progress), file=sys.stderr)

        yield print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(name, total=None)

        def show(progress: FetchProgress) -> None:
            description = f"{name} ({progress.note})" if progress.note else name
            bar.update(task, completed=progress.done_bytes, total=progress.total_bytes, description=description)

        yield show
