"""What public repositories hold of published configurations is read, or refused with a sentence."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.families import find_family
from midfill_engine.loading.checkpoints import read_config

PUBLISHED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
DOCS = (Path(__file__).parent.parent.parent / "docs/lab/models.md").read_text(encoding="utf-8")


def write(entry: dict[str, Any], folder: Path) -> CheckpointFiles:
    """The files as published, at the published size, without weights."""
    folder /= entry["name"]
    folder.mkdir()
    tokenizer = entry["tokenizer"]
    added = {number: {"content": text} for number, text in tokenizer.get("added", {}).items()}
    files = {
        "config.json": entry["config"],
        "generation_config.json": entry["generation"],
        "tokenizer_config.json": {**tokenizer.get("roles", {}), "added_tokens_decoder": added},
        "special_tokens_map.json": tokenizer.get("map", {}),
        "model.safetensors.index.json": {"weight_map": {"nothing": "model.safetensors"}},
    }
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values), encoding="utf-8")
    return CheckpointFiles(folder)


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry["name"])
def test_a_published_configuration_is_read_or_refused_with_a_sentence(
    entry: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = write(entry, tmp_path)
    if "refusal" in entry:
        with pytest.raises(CheckpointError, match=entry["refusal"]):
            read_config(files, find_family(files))
        return
    family = find_family(files)
    assert family.name == entry["family"]
    with caplog.at_level(logging.WARNING):  # a family without tensors is the library's own class, which reads the keys
        shape = read_config(files, family).transformer if family.tensors else family.shape(files.config)
    assert not caplog.records, "a key that the authors publish is not known"
    assert shape.vocab_size == (entry["config"].get("text_config") or entry["config"])["vocab_size"]
    tokens = family.tokens(files)
    assert tokens.mask_id == entry["mask"]
    assert tokens.opening(None) == entry["before"] and list(tokens.closing) == entry["behind"]
    assert list(tokens.delete_ids) == entry["ends"]


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry["name"])
def test_the_page_of_models_lists_every_published_configuration(entry: dict[str, Any]) -> None:
    outcome = f"`{entry['family']}`" if "family" in entry else "refused"
    assert any(entry["name"] in line and outcome in line for line in DOCS.splitlines())
