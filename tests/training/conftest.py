"""Archives, a corpus, a base and a pack small enough to make in a second, by the steps that make the real ones."""

from pathlib import Path

import pytest
from tests.engine import tiny
from tests.training.packages import PYTHON, SCRIPT, write_npm, write_source, write_wheel

from midfill_engine.families.causal import CAUSAL
from training.data.corpus import is_validation
from training.data.cutter import Cutter
from training.data.filter import write_corpus
from training.data.pack import write_pack
from training.data.sources import fetch_all
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
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny causal base, whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("models") / "base"
    tiny.make_random(folder, CAUSAL, config=tiny.config_of("causal", tie_word_embeddings=True))
    return folder


@pytest.fixture(scope="session")
def cutter(base: Path) -> Cutter:
    return Cutter.open(str(base))


@pytest.fixture(scope="session")
def pack_folder(corpus: Path, cutter: Cutter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    write_pack(corpus, cutter, folder, 10_000_000, num_sets=2)
    return folder


@pytest.fixture(scope="module")
def config(pack_folder: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return RunConfig(
        pack=pack_folder,
        out=tmp_path_factory.mktemp("run"),
        model=str(base),
        rank=4,
        rate=0.01,
        num_steps=30,
        row_tokens=256,
        step_tokens=512,
        warmup_steps=2,
        num_validation_rows=8,
        log_every=10,
        dtype="fp32",
    )
