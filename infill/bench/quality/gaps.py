"""`python -m bench.quality.gaps PACK OUT`: a suite of single lines from a pack's held-out packages, without tests."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bench.quality.report import SHIPPED
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.pack import read_pack
from training.evaluate import draw_gaps


def main(
    pack: Annotated[Path, typer.Argument(help="A training pack; only its validation split is read.")],
    out: Annotated[Path, typer.Argument(help="The suite to write, as JSON lines.")],
    tokenizer: Annotated[Path, typer.Option(help="The pack's tokenizer.")] = SHIPPED / "embedded/tokenizer.json",
    num_gaps: Annotated[int, typer.Option(min=1)] = 300,
    context: Annotated[int, typer.Option(min=16, help="Tokens of text around a gap.")] = 256,
) -> None:
    """Draws the gaps that `training evaluate` measures, so that any model can be measured on the same ones."""
    gaps = draw_gaps(read_pack(pack, "validation"), Tokenizer.read(tokenizer), num_gaps, context)
    with out.open("w", encoding="utf-8") as lines:
        for number, gap in enumerate(gaps):
            row = {
                "id": f"held-out/{number}",
                "split": "validation",
                "kind": "single",
                "language": gap.language,
                "prefix": gap.prefix,
                "middle": gap.middle,
                "suffix": gap.suffix,
            }
            lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    typer.run(main)
