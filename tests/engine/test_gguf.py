"""GGUF files: the same weights, tokens and fills as from the safetensors that they were made from."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.engine.gguf_writer import (
    CAUSAL,
    Q8,
    make_folder,
    write_gguf,
)

from midfill_engine.checkpoint_files import CheckpointError
from midfill_engine.errors import StartError
from midfill_engine.families import find_family
from midfill_engine.loading import checkpoints, gguf_files
from midfill_engine.loading.adapter import open_files
from midfill_engine.loading.gguf_files import FAMILY, GgufFiles
from midfill_engine.loading.runtime import load_runtime
from midfill_engine.models.int8 import Int8Embedding, StoredEmbedding, rotate
from midfill_engine.models.packed import Pass

NAMES = [
    *((architecture, "causal" if architecture in CAUSAL else None) for architecture in FAMILY),
    ("dream", "dreamon"),
]


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_K"])
@pytest.mark.parametrize(("architecture", "family"), NAMES)
def test_a_file_is_the_checkpoint_that_it_was_made_from(
    architecture: str, family: str | None, kind: str, tmp_path: Path
) -> None:
    stored = make_folder(tmp_path / "a", architecture, family)
    held = write_gguf(tmp_path / "a.gguf", tmp_path / "a", stored, architecture, kind)
    assert held.keys() == stored.keys()
    save_file(held, tmp_path / "a" / "model.safetensors")
    folder, file = open_files(tmp_path / "a"), open_files(tmp_path / "a.gguf")
    own, other = (checkpoints.load(files, find_family(files)) for files in (folder, file))
    assert find_family(file).name == (family or architecture)
    assert other.config.transformer == own.config.transformer
    theirs = other.model.state_dict()
    for name, value in own.model.state_dict().items():
        assert torch.equal(value, theirs[name]), name
    assert other.tokenizer.encode("def f(x): pass\n") == own.tokenizer.encode("def f(x): pass\n")
    tokens = [find_family(files).tokens(files) for files in (folder, file)]
    assert tokens[0].mask_id == tokens[1].mask_id and tokens[0].opening(None) == tokens[1].opening(None)
    assert tokens[0].closing == tokens[1].closing and set(tokens[0].delete_ids) == set(tokens[1].delete_ids)


@pytest.mark.parametrize(("adds_bos", "opening"), [(True, [3]), (False, [])])
def test_a_text_begins_with_bos_where_the_file_says_so(adds_bos: bool, opening: list[int], tmp_path: Path) -> None:
    stored = make_folder(tmp_path / "a", "qwen2", "causal")
    write_gguf(tmp_path / "a.gguf", tmp_path / "a", stored, "qwen2", adds_bos=adds_bos)
    files = open_files(tmp_path / "a.gguf")
    assert find_family(files).tokens(files).opening(None) == opening


class Qwen2Files(GgufFiles):
    architecture = "qwen2"


@pytest.mark.parametrize("shape", [(100, 64), (7, 64), (1, 64), (6400,), (64,)])
@pytest.mark.parametrize("kind", [Q8, None])
def test_a_tensor_is_widened_as_a_whole_or_in_parts(shape: tuple[int, ...], kind: Any, tmp_path: Path) -> None:
    value = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    data = value.astype(np.float16) if kind is None else gguf.quantize(value, kind)
    stored = gguf.GGMLQuantizationType.F16 if kind is None else kind
    tensor = SimpleNamespace(name="a", data=data, shape=np.array(shape[::-1]), tensor_type=stored)
    found = Qwen2Files(tmp_path)._widen(tensor, rows=7)
    assert torch.equal(found, torch.from_numpy(gguf.dequantize(data, stored)))


def test_in_int8_the_embedding_is_read_from_the_file(tmp_path: Path) -> None:
    """The rows are the file's own, rotated where the states are; no memory holds them."""
    file, ids = tmp_path / "small.gguf", torch.tensor([[3, 0], [3, 319]])
    held = write_gguf(file, tmp_path / "a", make_folder(tmp_path / "a", "llama", "causal"), "llama", "Q8_0")
    transformer = load_runtime(str(file), "cpu", weights="int8").loaded.model.transformer
    embedding = transformer.embedding
    assert isinstance(embedding, StoredEmbedding) and embedding.weight.untyped_storage().nbytes() == 1
    rows = held["model.embed_tokens.weight"][ids.flatten()]
    wanted = rotate(rows) if embedding.is_rotated else rows
    torch.testing.assert_close(embedding(ids), wanted.view(2, 2, -1), rtol=0, atol=0)
    os.truncate(file, embedding.rows.offset)
    with pytest.raises(OSError, match=r"small\.gguf was cut off while its model was running"):
        embedding(ids)


@pytest.mark.parametrize(("architecture", "family"), [("llama", "causal"), ("llada", None)])
def test_states_are_those_of_an_embedding_in_memory(
    architecture: str, family: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the rounding of int8, for a head that is the embedding and for one of its own; the digest is taken, too."""
    file, places = tmp_path / "small.gguf", torch.arange(40)
    write_gguf(file, tmp_path / "a", make_folder(tmp_path / "a", architecture, family), architecture, "Q8_0")
    read = load_runtime(str(file), "cpu", dtype="fp32", weights="int8")
    monkeypatch.setattr(GgufFiles, "find_rows", lambda *_: None)
    held = load_runtime(str(file), "cpu", dtype="fp32", weights="int8")
    kinds = [type(each.loaded.model.transformer.embedding) for each in (read, held)]
    assert kinds == [StoredEmbedding, Int8Embedding] and read.info.weights
    found, wanted = (each.run([Pass(places, places, places)])[0].hidden for each in (read, held))
    assert 0 < (found - wanted).norm() < 0.03 * wanted.norm()


def test_an_embedding_that_is_no_longer_the_files_is_held(tmp_path: Path) -> None:
    """One that an adapter brings, and one in another format."""
    stored, name = make_folder(tmp_path / "a", "llama", "causal"), "model.embed_tokens.weight"
    for kind in ("Q8_0", "F16"):
        write_gguf(tmp_path / f"{kind}.gguf", tmp_path / "a", stored, "llama", kind)
    files, other = (GgufFiles(tmp_path / f"{kind}.gguf") for kind in ("Q8_0", "F16"))
    assert files.find_rows(name) is not None and other.find_rows(name) is None
    assert replace(files, merges={name: lambda _: stored[name]}).find_rows(name) is None


@pytest.mark.parametrize("weights", ["stored", "int8", "int4"])
def test_a_file_is_loaded_by_its_path(weights: str, tmp_path: Path) -> None:
    stored = make_folder(tmp_path / "a", "llada", None)
    write_gguf(tmp_path / "small.gguf", tmp_path / "a", stored, "llada", "Q8_0")
    runtime = load_runtime(str(tmp_path / "small.gguf"), "cpu", weights=weights)
    assert (runtime.names[0], runtime.family.name) == ("small", "llada")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"named": "mamba"}, "architecture 'mamba', which is not computed here; known: dream, llama, qwen2, llada"),
        ({"shifts": False}, "scores that are not shifted"),
        ({"pieces": "falcon"}, "put the tokenizer.json"),
    ],
)
def test_what_is_not_computed_is_refused_with_a_sentence(other: dict[str, Any], said: str, tmp_path: Path) -> None:
    stored = make_folder(tmp_path / "a", "dream", None)
    write_gguf(tmp_path / "a.gguf", tmp_path / "a", stored, "dream", **other)
    with pytest.raises(StartError, match=said):
        load_runtime(str(tmp_path / "a.gguf"), "cpu")


@pytest.mark.parametrize("endianess", list(gguf.GGUFEndian))
def test_fields_are_read_as_the_library_reads_them(endianess: gguf.GGUFEndian, tmp_path: Path) -> None:
    """And a file that ends within an array is refused."""
    values = {
        "strings": ["", "a", "é", "x" * 300],
        "numbers": [3, -4, 5],
        "floats": [0.5, 2.0],
        "truths": [True, False],
        "text": "é",
        "number": 7,
    }
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama", endianess=endianess)
    for name, value in values.items():
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    reader = gguf_files.make_reader(gguf.GGUFReader)
    theirs, ours = gguf.GGUFReader(tmp_path / "a.gguf").fields, reader(tmp_path / "a.gguf").fields
    assert list(ours) == list(theirs) and set(values) <= set(ours)
    assert [each.contents() for each in ours.values()] == [each.contents() for each in theirs.values()]
    assert [each.types for each in ours.values()] == [each.types for each in theirs.values()]
    whole = (tmp_path / "a.gguf").read_bytes()
    for name in ("strings", "numbers"):
        cut = whole.index(name.encode()) + len(name) + 4 + 12 + 9
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        with pytest.raises((ValueError, IndexError)):
            reader(tmp_path / "cut.gguf")


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    for wrong in (b"", b"GG", b"GGUF" + bytes(20), b"GGUF\3\0\0\0" + b"\xff" * 16, b"MZ" * 40):
        (tmp_path / "a.gguf").write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"is no GGUF file, or not all of one\.$|architecture"):
            _ = open_files(tmp_path / "a.gguf").config
    with pytest.raises(StartError, match="no model named|no folder"):
        load_runtime(str(tmp_path / "b.gguf"), "cpu")


def test_a_tokenizer_beside_the_file_goes_first(tmp_path: Path) -> None:
    stored = make_folder(tmp_path, "dream", None)
    write_gguf(tmp_path / "a.gguf", tmp_path, stored, "dream", pieces="falcon")
    assert load_runtime(str(tmp_path / "a.gguf"), "cpu").family.name == "dream"
