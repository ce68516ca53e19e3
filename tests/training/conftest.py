"""A corpus, a tokenizer and a pack small enough to make in a second."""

import json
import lzma
from pathlib import Path

import pytest

from midfill_engine.tokenizer import Tokenizer
from training.data.corpus import is_validation
from training.data.pack import write_pack
from training.data.tokenizer import sample_texts, train_tokenizer

PYTHON = '''\
"""Numbers of kind {n}."""


def add_{n}(first, second):
    """Adds two numbers."""
    total = first + second
    if total > {n}:
        print("large", total)
        total = total - {n}
    return total


class Counter{n}:
    def __init__(self, start={n}):
        self.value = start

    def step(self):
        self.value = add_{n}(self.value, [1, 2, 3][0])
        return self.value
'''
SCRIPT = """\
export function add{n}(first, second) {{
  const total = first + second;
  if (total > {n}) {{
    console.log("large", total);
  }}
  return total;
}}
"""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    packages = [f"package{index}" for index in range(40)] + ["boltons"]
    held_out = [f"held{index}" for index in range(400) if is_validation(f"held{index}")][:3]
    for language, template in (("python", PYTHON), ("javascript", SCRIPT), ("typescript", SCRIPT)):
        with lzma.open(folder / f"{language}-00.jsonl.xz", "wt", encoding="utf-8") as lines:
            for number, package in enumerate([*packages, *held_out]):
                texts = [template.format(n=number * 4 + index) for index in range(4)]
                for index, text in enumerate(texts):
                    row = {"package": package, "path": f"{index}.txt", "text": text * 2}
                    lines.write(json.dumps(row) + "\n")
    return folder


@pytest.fixture(scope="session")
def tokenizer(corpus: Path) -> Tokenizer:
    return train_tokenizer(sample_texts(corpus, 1.0), 400)


@pytest.fixture(scope="session")
def pack_folder(corpus: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    write_pack(corpus, tokenizer, folder, 10_000_000, num_sets=2)
    tokenizer.write(folder / "tokenizer.json")
    return folder
