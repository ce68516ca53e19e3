"""What a model does not heed is refused with one sentence or, if a setting asks for it, left out with one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import run_main
from tests.cli.engines import use_engine
from tests.engine.running import RunningServer, serve_causal

from midfill_engine.wire import WISHES, ModelInfo
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.endpoint import Endpoint, parse_engine
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.filling.wishes import Length, bound_length, count_lines, is_within, tell_left_out
from midfill_infill.syntax.holes import body_at
from midfill_infill.text.document import Document

SOURCE = "def total(items):\n    first = 0\n    return first\n\n\ntotal([])\n"
SEARCHING = ("min_tokens", "lines", "max_ms")
STEPPING = ("min_tokens", "steps", "quality", "max_ms")


@pytest.fixture
def causal(tmp_path: Path) -> Iterator[RunningServer]:
    with serve_causal(tmp_path) as server:
        yield server


def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str]:
    """The exit code of the command and what it says on stderr."""
    return run_main(monkeypatch, *words), capsys.readouterr().err


def test_steps_and_quality_are_refused_or_left_out_with_a_sentence(
    causal: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_engine(Endpoint(socket=causal.socket), monkeypatch)
    monkeypatch.setenv("MIDFILL_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    (path := tmp_path / "shop.py").write_text(SOURCE)
    command = "fill", str(path), "--function", "total"
    for flag, value in (("--steps", "4"), ("--quality", "0.5"), ("--quality", "authors")):
        code, said = say(capsys, monkeypatch, *command, flag, value)
        assert code == 2 and said.count("\n") == 1
        assert f"does not heed {flag}; leave out {flag}, or choose a diffusion model." in said
    (tmp_path / "config.toml").write_text("quality = 0.5\n")
    code, said = say(capsys, monkeypatch, *command)
    assert code == 0 and "the setting `quality` is left out: remove it" in said
    (tmp_path / "config.toml").write_text("")
    code, said = say(capsys, monkeypatch, *command)
    assert (code, "left out" in said) == (0, False)


def fill_body(server: RunningServer, length: Length, **options: object) -> Filled:
    document = Document.from_text(SOURCE, "python", None)
    with EngineClient(Endpoint(socket=server.socket)) as client:
        wanted = Options(length=length, **options)  # type: ignore[arg-type]
        *_, filled = fill(document, [body_at(document, SOURCE.index("first"))], wanted, client)
    assert isinstance(filled, Filled)
    return filled


@pytest.mark.parametrize("seed", [0, 3])
def test_a_body_is_filled_longer_and_shorter_than_it_is(causal: RunningServer, seed: int) -> None:
    """It has two lines. All alternatives are as long as they must be."""
    longer, shorter = fill_body(causal, "longer", n=3, seed=seed), fill_body(causal, "shorter", n=3, seed=seed)
    assert all(count_lines(row.fills[0].text) >= 3 for row in (longer.best, *longer.alternatives))
    assert all(count_lines(row.fills[0].text) == 1 for row in (shorter.best, *shorter.alternatives))


def test_a_text_of_another_length_is_refused(causal: RunningServer) -> None:
    with pytest.raises(MidfillError, match="no text with so many lines"):
        fill_body(causal, "longer", single_line=True, sizes=(400,))


def info_of(*heeds: str) -> ModelInfo:
    return parse_engine("openai:m@http://127.0.0.1:1").info.model_copy(update={"heeds": heeds})


@pytest.mark.parametrize(("length", "text", "size", "is_line", "heeds", "bounds"), [
    ("same", "a\nb", 9, False, (), {}),
    ("longer", "a\n\nb", 9, False, SEARCHING, {"min_lines": 3}),
    ("shorter", "a\n\nb", 9, False, SEARCHING, {"max_lines": 1}),
    ("longer", "a", 9, True, SEARCHING, {"min_tokens": 10}),
    ("shorter", "a", 9, True, SEARCHING, {"max_tokens": 8, "max_lines": 1}),
    ("shorter", "a", 9, False, SEARCHING, {"max_tokens": 8, "max_lines": 1}),
    ("longer", "a\nb", 10, False, STEPPING, {"min_tokens": 16}),
    ("longer", "a\nb", 1, False, STEPPING, {"min_tokens": 2}),
    ("longer", "a\nb", 1000, False, STEPPING, {"min_tokens": 1024}),
    ("shorter", "a\nb", 10, False, STEPPING, {"max_tokens": 6}),
    ("shorter", "a\nb", 2, False, (), {"max_tokens": 1}),
    ("shorter", "x" * 30, None, False, (), {"max_tokens": 6}),
])  # fmt: skip
def test_bounds_are_those_that_the_model_heeds(
    length: Length, text: str, size: int | None, is_line: bool, heeds: tuple[str, ...], bounds: dict[str, int]
) -> None:
    assert bound_length(length, info_of(*heeds), text, size, is_line=is_line) == bounds


def test_each_setting_that_is_left_out_has_its_own_reason() -> None:
    said = tell_left_out("m", ["quality", "seconds"])
    assert said is not None and said.count("the setting `") == 2 and "; m " in said
    together = tell_left_out("m", ["quality", "steps"])
    assert together is not None and "the settings `quality` and `steps` are left out: remove them" in together
    assert tell_left_out("m", []) is None


def test_what_cannot_be_done_is_a_sentence() -> None:
    for length, size, word in (
        ("longer", 9, "cannot be asked for a longer text"),
        ("shorter", 1, "nothing is shorter"),
    ):
        with pytest.raises(MidfillError, match=word) as caught:
            bound_length(length, info_of(), "a", size, is_line=False)  # type: ignore[arg-type]
        assert caught.value.exit_code == 2 and "type" in caught.value.next_step
    assert parse_engine("ollama:m").info.heeds == () and set(WISHES) >= {*SEARCHING, *STEPPING}
    assert is_within({"min_lines": 2}, "a\n\nb") and not is_within({"max_lines": 1}, "a\n\nb") and is_within({}, "")
