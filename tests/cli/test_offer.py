"""A better model is offered once, to whom it is of use, and never again."""

from pathlib import Path
from typing import cast

import pytest

from midfill_engine.wire import BASE
from midfill_infill.cli.doctor import describe_cache, what_is_slow
from midfill_infill.engines import offer
from midfill_lsp import telling
from midfill_lsp.host import Host


@pytest.fixture(autouse=True)
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "memory_bytes", lambda: 2**34)
    monkeypatch.delenv("MIDFILL_MODEL", raising=False)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what users were told, empty at first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_better_model_is_offered_once() -> None:
    said = offer.offer("embedded")
    assert said is not None and BASE in said
    assert offer.offer("embedded") is None


def test_the_better_model_is_not_offered_on_a_small_machine_or_to_users_who_chose_one(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offer.offer("DreamOn-v0-7B") is None
    monkeypatch.setenv("MIDFILL_MODEL", "embedded")
    assert offer.offer("embedded") is None
    monkeypatch.delenv("MIDFILL_MODEL")
    assert offer.offer("embedded", num_bytes=2**30) is None
    assert not state.exists()


def test_editors_offer_the_better_model_once_and_not_to_users_who_chose_one() -> None:
    said: list[str] = []

    class Editor:
        def show(self, sentence: str, kind: object) -> None:
            said.append(sentence)

    editor = cast(Host, Editor())
    telling.tell_of_better_models(editor, "embedded", "midfill-embedded")
    telling.tell_of_better_models(editor, None, "DreamOn-v0-7B")
    assert not said
    telling.tell_of_better_models(editor, None, "midfill-embedded")
    telling.tell_of_better_models(editor, None, "midfill-embedded")
    assert len(said) == 1 and BASE in said[0]


def test_doctor_says_which_cache_fills_use_and_why() -> None:
    assert describe_cache("frozen") == "frozen, exact"
    assert describe_cache("dual").startswith("dual, approximate; `midfill config cache none` is exact")


def test_the_better_model_is_not_offered_where_that_cannot_be_recorded(state: Path) -> None:
    state.touch()
    assert offer.offer("embedded") is None


def test_the_doctor_says_what_a_large_model_on_a_cpu_waits_for() -> None:
    assert what_is_slow(5_000_000, "cpu", "float32") is None
    assert what_is_slow(7_600_000_000, "cuda", "bfloat16") is None
    slow, fast = (what_is_slow(500_000_000, "cpu", dtype) for dtype in ("float32", "bfloat16"))
    assert slow is not None and "weights int8" in slow and "up to twice" in slow
    assert fast is not None and "weights int8" in fast and "1.4 times" in fast
