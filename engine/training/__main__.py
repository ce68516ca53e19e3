"""`python -m training STEP ...`: one step of the recipe a call. Knows the command line; each step is a module."""

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from training.telling import one_sentence

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command("sources")
def _sources(
    archives: Annotated[Path, typer.Argument(help="folder to fetch into; what lies there is not fetched again")],
    python: Annotated[Path | None, typer.Option(help="names of wheels, one a line, NAME or NAME==VERSION")] = None,
    npm: Annotated[Path | None, typer.Option(help="names of npm packages, NAME or NAME@VERSION")] = None,
    folder: Annotated[Path | None, typer.Option(help="take wheels from this folder, not from the registry")] = None,
) -> None:
    """Fetch packages by name and list them with version, licence and sha256; refuse what is not permissive."""
    from training.data.sources import fetch_all

    print(fetch_all(archives, python, npm, folder))


@app.command("filter")
def _filter(
    archives: Path,
    corpus: Annotated[Path, typer.Argument(help="folder to write")],
    evaluation: Annotated[
        list[Path] | None, typer.Option(help="a suite of evaluation programs (JSON lines), or a module with load, hits")
    ] = None,
) -> None:
    """Make a corpus of the archives: hand-written, unlike each other, free of evaluation material."""
    from training.data.filter import write_corpus

    print(json.dumps(write_corpus(archives, corpus, evaluation or []), indent=1))


@app.command("collect")
def _collect(
    corpus: Annotated[Path, typer.Argument(help="folder to write")],
    repositories: Annotated[list[Path], typer.Argument(help="checkouts of git")],
    evaluation: Annotated[list[Path] | None, typer.Option(help="as of `filter`")] = None,
) -> None:
    """Make a corpus of your own repositories instead: what git tracks, checked as `filter` does."""
    from training.data.filter import write_own_corpus

    print(json.dumps(write_own_corpus(repositories, corpus, evaluation or []), indent=1))


@app.command("pack")
def _pack(
    corpus: Path,
    out: Path,
    model: Annotated[str, typer.Option(help="the base whose tokens are packed")] = "smollm2",
    tokens: int = 230_000_000,
    sets: Annotated[int, typer.Option(help="parts of like mixture, each a folder")] = 2,
) -> None:
    """Write token shards from a corpus folder."""
    from training.data.cutter import Cutter
    from training.data.pack import write_pack

    write_pack(corpus, Cutter.open(model), out, tokens, sets)


@app.command("squeeze")
def _squeeze(pack: Path, out: Path) -> None:
    """Compress every set of a pack for a journey, and check that each comes out of it as it went in."""
    from training.data.pack import check_squeezed, sets_of, squeeze

    for folder in sets_of(pack, "train"):
        print(out / folder.name, squeeze(folder, out / folder.name), "bytes", flush=True)
        check_squeezed(out / folder.name)


@app.command("unpack")
def _unpack(squeezed: Path, pack: Path) -> None:
    """Add a squeezed set to a pack, also while a run reads it."""
    from training.data.pack import unpack

    print(unpack(squeezed, pack))


def _train(**options: Any) -> None:
    """Train until a deadline."""
    from training.train import RunConfig, train

    train(RunConfig(**options))


def _with_options_of_a_run(step: Callable[..., None]) -> Callable[..., None]:
    """Gives `step` one option for every field of RunConfig, with its default."""
    from training.train import RunConfig

    parameters = []
    for field in fields(RunConfig):
        is_argument = field.name in ("pack", "out")
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[field.type, typer.Argument() if is_argument else typer.Option()],
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
            )
        )
    step.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    step.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return step


app.command("train")(_with_options_of_a_run(_train))


@app.command("export")
def _export(
    snapshot: Path,
    out: Path,
    rank: Annotated[int, typer.Option(help="of the change, where all weights were trained")] = 64,
    narrow: Annotated[bool, typer.Option(help="int8 instead of bf16")] = False,
) -> None:
    """Make the adapter of a snapshot."""
    from training.export import export

    print(export(snapshot, out, rank, narrow), "bytes")


@app.command("credits")
def _credits(
    sources: Annotated[Path, typer.Argument(help="sources.tsv of the corpus")],
    pack: Path,
    out: Annotated[Path, typer.Argument(help="the table to write")],
    archives: Annotated[Path | None, typer.Option(help="folder of `sources`: write the notices, too")] = None,
    corpus: Annotated[Path | None, typer.Option(help="names the holders of packages whose archive is missing")] = None,
) -> None:
    """List the sources of a pack, with versions, licences and hashes; NOTICES.txt beside it from their archives."""
    from training.export import write_sources
    from training.notices import write_notices

    print(write_sources(sources, pack, out), "packages")
    if archives is not None:
        print(json.dumps(write_notices(out, archives, corpus, out.with_name("NOTICES.txt")), indent=1))


if __name__ == "__main__":
    with one_sentence():
        app()
