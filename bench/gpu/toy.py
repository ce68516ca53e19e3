"""`python -m bench.gpu.toy FOLDER`: a tiny random base and a pack of random functions, to try a trainer with."""

import json
import lzma
import sys
from pathlib import Path

import numpy as np
from tests.engine import tiny

from midfill_engine.families.causal import CAUSAL
from training.data.corpus import LANGUAGES, is_validation
from training.data.cutter import Cutter
from training.data.pack import write_pack


def write_toy(folder: Path) -> None:
    """`folder/base`, with a token per byte and two layers as wide as SmolLM2-135M's, and `folder/pack`."""
    wide = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}
    wide |= {"intermediate_size": 1536}
    tiny.make_random(folder / "base", CAUSAL, config=tiny.config_of("causal", **wide))
    rng, held = np.random.default_rng(0), next(name for name in map("held{}".format, range(400)) if is_validation(name))
    (folder / "corpus").mkdir()
    for language in LANGUAGES:
        with lzma.open(folder / f"corpus/{language}-00.jsonl.xz", "wt") as lines:
            for number in range(40):
                package = held if number < 4 else f"package{number}"
                row = {"package": package, "path": f"{number}.py", "text": write_functions(rng)}
                lines.write(json.dumps(row) + "\n")
    write_pack(folder / "corpus", Cutter.open(str(folder / "base")), folder / "pack", 10_000_000)


def write_functions(rng: np.random.Generator) -> str:
    names = ["".join(map(chr, rng.integers(97, 123, 6))) for _ in range(12)]
    bodies = (rng.choice(names, 5) for _ in range(30))
    return "".join(f"def {a}({b}):\n    {c} = {b} + {d}\n    return {e}({c})\n\n\n" for a, b, c, d, e in bodies)


if __name__ == "__main__":
    write_toy(Path(sys.argv[1]))
