"""Packs source files as shards of uint16 token ids with an index of files. Knows no gaps and no model.

A pack is a folder with one or more sets of shards, each a folder of its own. A set is moved compressed and added to
a pack as a whole, so a run can read the pack while sets arrive.
"""

import hashlib
import json
import lzma
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.data.corpus import LANGUAGES, SourceFile, fraction_of, hold_out, read_corpus
from training.data.cutter import Cutter

LANGUAGE_SHARES: Final = {"python": 0.88, "javascript": 0.07, "typescript": 0.05}
PACKAGE_CAP: Final = 0.04  # of the training tokens; in a corpus of few packages, an equal share
VALIDATION_CAP: Final = 0.05
SHARD_TOKENS: Final = 8_000_000
MEAN_TOKEN_CHARACTERS: Final = 3.5


@dataclass(frozen=True)
class Pack:
    """One split in memory: the concatenated `tokens` of all files, and the start and kind of each file."""

    tokens: NDArray[np.uint16]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    languages: NDArray[np.uint8]  # index into LANGUAGES
    packages: NDArray[np.uint16]  # index into `package_names`
    package_names: tuple[str, ...]
    sha256: str


def write_pack(corpus: Path, cutter: Cutter, folder: Path, num_tokens: int, num_sets: int = 1) -> None:
    """Draws about `num_tokens` training tokens by the shares above, and each held-out package up to 1/20.

    Writes `num_sets` folders `set-NN` of like size and mixture with `train-NN.bin` and their index; the first also
    holds the validation split. Raises ValueError if the corpus is too small, FileExistsError if `folder` has a pack.
    """
    if len(cutter.pieces) > 2**16:
        raise ValueError("A pack holds ids of 16 bits, and the vocabulary has more: take a base with a smaller one.")
    if sets_of(folder, "train"):
        raise FileExistsError(f"There is a pack in {folder}: remove it, or name another folder.")
    selection = _Selection(corpus, int(num_tokens * MEAN_TOKEN_CHARACTERS))
    sets = [folder / f"set-{number:02d}" for number in range(num_sets)]
    for path in sets:
        path.mkdir(parents=True, exist_ok=True)
    validation = _SplitWriter(sets[0], "validation", cutter)
    writers = [_SplitWriter(path, "train", cutter) for path in sets]
    for source in filter(selection.has, read_corpus(corpus)):
        number = int(fraction_of(f"set {source.name}") * num_sets)
        (validation if selection.is_held_out(source) else writers[number]).add(source, cutter.encode(source.text))
    if not validation.files or not any(writer.files for writer in writers):
        raise ValueError(f"{corpus} has too few files to train with some and to hold out others.")
    for writer in (validation, *writers):
        writer.close()


def sets_of(folder: Path, split: str) -> list[Path]:
    """The folders in a pack whose set is complete, in order of their names."""
    return sorted(index.parent for index in folder.glob(f"*/{split}.json"))


def hash_pack(folder: Path, split: str) -> str:
    """`read_pack(folder, split).sha256`, from the recorded hashes of the sets' shards."""
    recorded = [json.loads((path / f"{split}.json").read_text(encoding="utf-8")) for path in sets_of(folder, split)]
    return _hash_all([_hash_all(described["shards"].values()) for described in recorded])


def read_pack(folder: Path, split: str, cutter: Cutter | None = None) -> Pack:
    """Reads all present sets of a split.

    Raises ValueError if there is none, a shard is damaged, or the ids are not those of `cutter`.
    """
    parts = [_read_set(path, split, cutter) for path in sets_of(folder, split)]
    if not parts:
        raise ValueError(f"There is no {split} set in {folder}.")
    names: dict[str, int] = {}
    packages = []
    for part in parts:
        ids = np.array([names.setdefault(name, len(names)) for name in part.package_names], np.uint16)
        packages.append(ids[part.packages])
    lengths = np.concatenate([part.lengths for part in parts])
    return Pack(
        tokens=parts[0].tokens if len(parts) == 1 else np.concatenate([part.tokens for part in parts]),
        starts=np.concatenate(([0], np.cumsum(lengths)))[:-1],
        lengths=lengths,
        languages=np.concatenate([part.languages for part in parts]),
        packages=np.concatenate(packages),
        package_names=tuple(names),
        sha256=_hash_all(part.sha256 for part in parts),
    )


def _read_set(folder: Path, split: str, cutter: Cutter | None) -> Pack:
    described = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
    if cutter is not None and described["tokenizer_sha256"] != cutter.sha256:
        raise ValueError(f"{folder} was packed for a base with another tokenizer: pack the corpus again for this one.")
    parts = []
    for name, sha256 in described["shards"].items():
        parts.append(np.frombuffer(_checked(folder / name, (folder / name).read_bytes(), sha256), dtype=np.uint16))
    tokens = np.concatenate(parts) if parts else np.zeros(0, np.uint16)
    with np.load(folder / f"{split}.npz") as index:
        arrays = {name: index[name] for name in ("lengths", "languages", "packages")}
    starts = np.concatenate(([0], np.cumsum(arrays["lengths"])))[:-1]
    sha256 = _hash_all(described["shards"].values())
    return Pack(tokens, starts, package_names=tuple(described["packages"]), sha256=sha256, **arrays)


def _hash_all(hashes: Iterable[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _checked(path: Path, data: bytes, sha256: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"The shard {path} is damaged: its sha256 is not the recorded one.")
    return data


def squeeze(folder: Path, out: Path) -> int:
    """Writes the set in `folder` to `out` with its shards compressed (xz). Returns the bytes in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.suffix == ".bin":
            (out / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=6))
        else:
            shutil.copyfile(path, out / path.name)
    return sum(path.stat().st_size for path in out.iterdir())


def check_squeezed(squeezed: Path) -> None:
    """Raises ValueError if a shard of a squeezed set is missing or damaged, or there is no index."""
    indices = list(squeezed.glob("*.json"))
    if not indices:
        raise ValueError(f"There is no squeezed set in {squeezed}.")
    for index in indices:
        for name, sha256 in json.loads(index.read_text(encoding="utf-8"))["shards"].items():
            _expand(squeezed / f"{name}.xz", sha256)


def _expand(path: Path, sha256: str) -> bytes:
    try:
        return _checked(path, lzma.decompress(path.read_bytes()), sha256)
    except (OSError, lzma.LZMAError) as error:
        raise ValueError(f"The shard {path} is missing or damaged.") from error


def unpack(squeezed: Path, pack: Path) -> Path:
    """Adds a squeezed set to a pack under its own name: complete or not at all. Returns the set's folder.

    Raises ValueError if a shard is damaged, FileExistsError if the pack has a set of that name.
    """
    target = pack / squeezed.name
    if target.exists():
        raise FileExistsError(f"The pack {pack} has a set named {squeezed.name}.")
    pack.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=pack, prefix=".") as scratch:
        made = Path(scratch, squeezed.name)
        made.mkdir()
        for index in squeezed.glob("*.json"):
            for name, sha256 in json.loads(index.read_text(encoding="utf-8"))["shards"].items():
                (made / name).write_bytes(_expand(squeezed / f"{name}.xz", sha256))
        for path in squeezed.iterdir():
            if path.suffix != ".xz":
                shutil.copyfile(path, made / path.name)
        made.rename(target)
    return target


class _SplitWriter:
    def __init__(self, folder: Path, split: str, cutter: Cutter) -> None:
        self.folder, self.split, self.cutter = folder, split, cutter
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
            "tokenizer_sha256": self.cutter.sha256,
            "shards": self.shards,
            "packages": list(self.package_ids),
        }
        (self.folder / f"{self.split}.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


class _Selection:
    """The files of a corpus for a pack, and those that are held out: whole packages, or files of few packages."""

    def __init__(self, corpus: Path, num_characters: int) -> None:
        sizes = {replace(source, text=""): len(source.text) for source in read_corpus(corpus)}
        self.held_out = hold_out(sizes)
        of_package, of_language = Counter[tuple[str, str, bool]](), Counter[tuple[str, bool]]()
        for source, size in sizes.items():
            of_package[self._key(source)] += size
            of_language[source.language, self.is_held_out(source)] += size
        cap = max(PACKAGE_CAP, 1 / max(len({source.package for source in sizes}), 1)) * num_characters
        all_shares = sum(LANGUAGE_SHARES[language] for language in {source.language for source in sizes})
        self.rates = dict[tuple[str, str, bool], float]()
        for (language, package, is_held), size in of_package.items():
            wanted = LANGUAGE_SHARES[language] / all_shares * num_characters / max(of_language[language, False], 1)
            rate = VALIDATION_CAP * num_characters / max(size, 1) if is_held else min(wanted, cap / max(size, 1))
            self.rates[language, package, is_held] = rate

    def has(self, source: SourceFile) -> bool:
        return fraction_of(f"pack {source.name}") < self.rates[self._key(source)]

    def is_held_out(self, source: SourceFile) -> bool:
        return not self.held_out.isdisjoint((source.package, source.name))

    def _key(self, source: SourceFile) -> tuple[str, str, bool]:
        return source.language, source.package, self.is_held_out(source)
