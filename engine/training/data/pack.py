"""Packs source files as shards of uint16 token ids with an index of files. Knows no gaps and no model."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from midfill_engine.tokenizer import Tokenizer
from training.data.corpus import LANGUAGES, SourceFile, fraction_of, is_validation, read_corpus

LANGUAGE_SHARES: Final = {"python": 0.88, "javascript": 0.07, "typescript": 0.05}
PACKAGE_CAP: Final = 0.04
SHARD_TOKENS: Final = 8_000_000
MEAN_TOKEN_CHARACTERS: Final = 3.5


@dataclass(frozen=True)
class Pack:
    """One split in memory: `tokens` of all files end to end, and where each file starts and what it is."""

    tokens: NDArray[np.uint16]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    languages: NDArray[np.uint8]  # index into LANGUAGES
    packages: NDArray[np.uint16]  # index into `package_names`
    package_names: tuple[str, ...]
    sha256: str


def write_pack(corpus: Path, tokenizer: Tokenizer, folder: Path, num_tokens: int) -> None:
    """Draws about `num_tokens` training tokens by the shares above, and each held-out package up to 1/20.

    Writes `train-NN.bin`, `validation-NN.bin` and their index beside them in `folder`.
    """
    assert tokenizer.vocab_size <= 2**16
    folder.mkdir(parents=True, exist_ok=True)
    rates = _sampling_rates(corpus, int(num_tokens * MEAN_TOKEN_CHARACTERS))
    chosen = (source for source in read_corpus(corpus) if _draw(source) < rates[source.language, source.package])
    writers = {name: _SplitWriter(folder, name, tokenizer) for name in ("train", "validation")}
    for batch in _batches(chosen, 256):
        for source, ids in zip(batch, tokenizer.encode_batch([source.text for source in batch]), strict=True):
            writers["validation" if is_validation(source.package) else "train"].add(source, ids)
    for writer in writers.values():
        writer.close()


def read_pack(folder: Path, split: str) -> Pack:
    """Reads a split whole. Raises ValueError where a shard is not the one that its index describes."""
    described = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
    parts = []
    for name, sha256 in described["shards"].items():
        data = (folder / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"The shard {folder / name} is damaged: its sha256 is not the recorded one.")
        parts.append(np.frombuffer(data, dtype=np.uint16))
    tokens = np.concatenate(parts) if parts else np.zeros(0, np.uint16)
    with np.load(folder / f"{split}.npz") as index:
        arrays = {name: index[name] for name in ("lengths", "languages", "packages")}
    starts = np.concatenate(([0], np.cumsum(arrays["lengths"])))[:-1]
    sha256 = hashlib.sha256("".join(described["shards"].values()).encode()).hexdigest()
    return Pack(tokens, starts, package_names=tuple(described["packages"]), sha256=sha256, **arrays)


class _SplitWriter:
    def __init__(self, folder: Path, split: str, tokenizer: Tokenizer) -> None:
        self.folder, self.split, self.tokenizer = folder, split, tokenizer
        self.pending: list[NDArray[np.uint16]] = []
        self.num_pending = 0
        self.shards: dict[str, str] = {}
        self.files: list[tuple[int, int, int]] = []
        self.package_ids: dict[str, int] = {}

    def add(self, source: SourceFile, ids: list[int]) -> None:
        package = self.package_ids.setdefault(source.package, len(self.package_ids))
        self.files.append((len(ids), LANGUAGES.index(source.language), package))
        self.pending.append(np.array(ids, dtype=np.uint16))
        self.num_pending += len(ids)
        if self.num_pending >= SHARD_TOKENS:
            self.flush()

    def flush(self) -> None:
        if not self.pending:
            return
        data = np.concatenate(self.pending).tobytes()
        name = f"{self.split}-{len(self.shards):02d}.bin"
        (self.folder / name).write_bytes(data)
        self.shards[name] = hashlib.sha256(data).hexdigest()
        self.pending, self.num_pending = [], 0

    def close(self) -> None:
        self.flush()
        columns = np.array(self.files, dtype=np.int64).reshape(-1, 3)
        np.savez(
            self.folder / f"{self.split}.npz",
            lengths=columns[:, 0],
            languages=columns[:, 1].astype(np.uint8),
            packages=columns[:, 2].astype(np.uint16),
        )
        described = {
            "tokens": int(columns[:, 0].sum()),
            "tokenizer_sha256": self.tokenizer.sha256,
            "shards": self.shards,
            "packages": list(self.package_ids),
        }
        (self.folder / f"{self.split}.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _sampling_rates(corpus: Path, num_characters: int) -> dict[tuple[str, str], float]:
    """What share of each (language, package)'s files to take for `num_characters` of training text in all."""
    sizes: Counter[tuple[str, str]] = Counter()
    for source in read_corpus(corpus):
        sizes[source.language, source.package] += len(source.text)
    rates = {}
    for language, share in LANGUAGE_SHARES.items():
        total = sum(size for (name, package), size in sizes.items() if name == language and not is_validation(package))
        rate = share * num_characters / max(total, 1)
        for (name, package), size in sizes.items():
            if name == language:
                cap = 0.05 * num_characters if is_validation(package) else PACKAGE_CAP * num_characters
                rates[name, package] = min(1.0, rate if not is_validation(package) else 1.0, cap / size)
    return rates


def _draw(source: SourceFile) -> float:
    return fraction_of(f"pack {source.package}/{source.path}")


def _batches(sources: Iterable[SourceFile], size: int) -> Iterable[list[SourceFile]]:
    batch: list[SourceFile] = []
    for source in sources:
        batch.append(source)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
