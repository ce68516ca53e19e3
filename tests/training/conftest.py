"""Archives, a corpus, a tokenizer and a pack small enough to make in a second, by the steps that make the real ones."""

from pathlib import Path

import pytest
from tests.training.packages import PYTHON, SCRIPT, write_npm, write_source, write_wheel

from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.corpus import is_validation
from training.data.filter import write_corpus
from training.data.pack import write_pack
from training.data.sources import fetch_all
from training.data.tokenizer import sample_texts, train_tokenizer
from training.train import RunConfig


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """44 wheels and as many npm packages, three of each held out, and one project that evaluation uses."""
    folder = tmp_path_factory.mktemp("archives")
    held_out = [f"held{index}" for index in range(400) if is_validation(f"held{index}")][:3]
    for number, package in enumerate([*(f"package{index}" for index in range(40)), *held_out, "boltons"]):
        numbers = range(number * 4, number * 4 + 4)
        write_wheel(folder, package, {f"{index}.py": write_source(PYTHON, index) for index in numbers})
        scripts = {f"src/{index}.js": write_source(SCRIPT, index) for index in numbers}
        typed = {f"src/{index}.ts": write_source(SCRIPT, index + 1000) for index in numbers}
        write_npm(folder, package, scripts | typed)
    assert fetch_all(folder, None, None) == {"used": 88}
    return folder


@pytest.fixture(scope="session")
def corpus(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    assert write_corpus(archives, folder, []) == {"kept": 43 * 12, "evaluated project": 12}
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


@pytest.fixture(scope="module")
def config(pack_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return RunConfig(
        pack=pack_folder,
        tokenizer=pack_folder / "tokenizer.json",
        out=tmp_path_factory.mktemp("run"),
        deadline_s=0.0,
        num_steps=60,
        dim=32,
        num_layers=2,
        num_heads=2,
        head_dim=16,
        mlp_dim=64,
        context=96,
        gap=48,
        hole_span=64,
        rows=8,
        causal_rows=8,
        micro_rows=4,
        warmup_steps=5,
        num_workers=1,
        num_threads=1,
        device="cpu",
        objective="spans",
    )
