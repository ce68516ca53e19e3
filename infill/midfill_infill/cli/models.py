"""`midfill models`: the models of the running engine, started if need be."""

import sys
from typing import Annotated

import typer

from midfill_infill.cli.execute import become
from midfill_infill.cli.failures import report_failures
from midfill_infill.cli.fill import DeviceName


def models_command(
    model: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="A known model or a checkpoint folder.")] = None,
    device: Annotated[DeviceName, typer.Option(help="Where the model runs.")] = "auto",
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    published: Annotated[bool, typer.Option("--published", help="List what `--model` can load from the hub.")] = False,
) -> None:
    """List the models of the engine, what they run on and how much they see."""
    with report_failures(as_json=json_output):
        if published:
            from midfill_infill.engines import supervise

            supervise.check_installed()
            become([*supervise.engine_command(), "models", *(["--json"] if json_output else [])])
        from midfill_engine.wire import ModelList
        from midfill_infill.engines.client import EngineClient
        from midfill_infill.engines.supervise import EngineSettings, ensure_engine

        def note(phrase: str) -> None:
            if sys.stderr.isatty():
                print(f"{phrase} ...", file=sys.stderr)

        with EngineClient(ensure_engine(EngineSettings(model, device), note)) as client:
            known = client.models()
        if json_output:
            print(ModelList(data=list(known)).model_dump_json(indent=2))
            return
        for info in known:
            print(f"{info.id}  {info.parameters / 1e6:.1f}M parameters, {info.device} {info.dtype}")
            print(f"    sees {info.max_context_tokens} tokens around holes of at most {info.max_hole_tokens}")
            if info.description:
                print(f"    {info.description}")
