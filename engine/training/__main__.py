"""`python -m training STEP ...`: one step of the recipe a call. Knows the command line; each step is a module."""

import argparse
import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("tokenizer", help="learn the tokenizer from a corpus folder")
    step.add_argument("corpus", type=Path)
    step.add_argument("out", type=Path, help="the tokenizer.json to write")
    step.add_argument("--vocab-size", type=int, default=16_384)
    step.add_argument("--share", type=float, default=0.055, help="share of the training files to learn from")
    step = steps.add_parser("pack", help="write token shards from a corpus folder")
    step.add_argument("corpus", type=Path)
    step.add_argument("tokenizer", type=Path)
    step.add_argument("out", type=Path)
    step.add_argument("--tokens", type=int, default=230_000_000)
    step.add_argument("--sets", type=int, default=2, help="parts of like mixture, each a folder")
    step = steps.add_parser("squeeze", help="compress a set of a pack for a journey")
    step.add_argument("folder", type=Path)
    step.add_argument("out", type=Path)
    step = steps.add_parser("unpack", help="add a squeezed set to a pack, also while a run reads it")
    step.add_argument("squeezed", type=Path)
    step.add_argument("pack", type=Path)
    _add_train(steps.add_parser("train", help="train until a deadline"))
    step = steps.add_parser("export", help="make the shipped checkpoint of a run")
    step.add_argument("run", type=Path)
    step.add_argument("out", type=Path)
    step.add_argument("--name", default="midfill-embedded")
    step.add_argument("--max-context", type=int)
    step = steps.add_parser("lengths", help="refit the length head of a finished checkpoint, in place")
    step.add_argument("folder", type=Path)
    step.add_argument("pack", type=Path)
    step = steps.add_parser("sources", help="list the sources of a pack, with versions, licences and hashes")
    step.add_argument("sources", type=Path, help="sources.tsv of the corpus")
    step.add_argument("pack", type=Path)
    step.add_argument("out", type=Path)
    step = steps.add_parser("evaluate", help="measure a checkpoint on the held-out packages of a pack")
    step.add_argument("checkpoint", type=Path)
    step.add_argument("pack", type=Path)
    step.add_argument("--num-gaps", type=int, default=300)
    step.add_argument("--context", type=int, default=256)
    step.add_argument("--device", default="cpu")
    step = steps.add_parser("evaluate-baseline", help="the same for a run with --objective fim")
    step.add_argument("folder", type=Path)
    step.add_argument("pack", type=Path)
    step.add_argument("--num-gaps", type=int, default=300)
    step.add_argument("--context", type=int, default=256)
    step = steps.add_parser("complete", help="fill the gaps of a task file, for scoring by tests")
    step.add_argument("checkpoint", type=Path)
    step.add_argument("tasks", type=Path)
    step.add_argument("out", type=Path)
    step.add_argument("--length", choices=("own", "oracle"), default="own")
    step.add_argument("--split", default="validation")
    step.add_argument("--kind", default="single")
    step.add_argument("--empty-suffix", action="store_true")
    step.add_argument("--device", default="cpu")
    parsed = vars(parser.parse_args(arguments))
    STEPS[parsed.pop("step")](**parsed)


def _add_train(step: argparse.ArgumentParser) -> None:
    """One option for every field of RunConfig, with its default."""
    from training.train import RunConfig

    for field in fields(RunConfig):
        option = "--" + field.name.replace("_", "-")
        if field.type is bool:
            step.add_argument(option, action="store_true")
        elif field.name in ("pack", "tokenizer", "out"):
            step.add_argument(field.name, type=Path)
        else:
            kind = field.type if isinstance(field.type, type) else Path
            step.add_argument(option, type=kind, default=field.default, required=field.default is MISSING)


def _tokenizer(corpus: Path, out: Path, vocab_size: int, share: float) -> None:
    from training.data.tokenizer import sample_texts, train_tokenizer

    train_tokenizer(sample_texts(corpus, share), vocab_size).write(out)


def _pack(corpus: Path, tokenizer: Path, out: Path, tokens: int, sets: int) -> None:
    from midfill_engine.tokenizer import Tokenizer
    from training.data.pack import write_pack

    write_pack(corpus, Tokenizer.read(tokenizer), out, tokens, sets)


def _squeeze(folder: Path, out: Path) -> None:
    from training.data.pack import squeeze

    print(squeeze(folder, out), "bytes")


def _unpack(squeezed: Path, pack: Path) -> None:
    from training.data.pack import unpack

    print(unpack(squeezed, pack))


def _train(**options: Any) -> None:
    from training.train import RunConfig, train

    train(RunConfig(**options))


def _export(run: Path, out: Path, name: str, max_context: int | None) -> None:
    from training.export import export

    print(export(run, out, name, max_context))


def _lengths(folder: Path, pack: Path) -> None:
    from training.lengths import refit

    print(refit(folder, pack))


def _sources(sources: Path, pack: Path, out: Path) -> None:
    from training.export import write_sources

    print(write_sources(sources, pack, out))


def _evaluate(**options: Any) -> None:
    from training.evaluate import evaluate

    print(json.dumps(asdict(evaluate(**options)), indent=1))


def _evaluate_baseline(**options: Any) -> None:
    from training.baseline import evaluate_baseline

    print(json.dumps(asdict(evaluate_baseline(**options)), indent=1))


def _complete(**options: Any) -> None:
    from training.evaluate import complete

    print(complete(**options))


STEPS: dict[str, Callable[..., None]] = {
    "tokenizer": _tokenizer,
    "pack": _pack,
    "squeeze": _squeeze,
    "unpack": _unpack,
    "train": _train,
    "export": _export,
    "lengths": _lengths,
    "sources": _sources,
    "evaluate": _evaluate,
    "evaluate-baseline": _evaluate_baseline,
    "complete": _complete,
}

if __name__ == "__main__":
    main()
