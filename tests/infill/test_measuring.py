"""Gaps of a repository, and what fills of them are worth."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from midfill_engine.wire import BASE, ModelInfo
from midfill_infill.cli.measure import show
from midfill_infill.errors import MidfillError
from midfill_infill.filling.certainty import MIN_MEASURED, load_judge
from midfill_infill.measuring import gaps as drawing
from midfill_infill.measuring.gaps import Gap, draw_gaps
from midfill_infill.measuring.judging import EXACT, MIN_LINES, ComparedText, fit_judge
from midfill_infill.measuring.outcomes import GapOutcome, Store
from midfill_infill.measuring.table import Measured, Share, describe_choice, describe_sureness
from midfill_infill.repository.changes import find_changed
from midfill_infill.repository.roots import find_repository
from midfill_infill.repository.walk import list_files
from midfill_infill.splicing.splice import splice

SOURCES = {
    "a.py": '''import os


class Store:
    """Keeps."""

    def __init__(self, path):
        self.path = path
        self.rows = {}

    def read(self, name):
        """One row."""
        if name not in self.rows:
            raise KeyError(name)
        return self.rows[name]


def stub():
    ...
''',
    "b.js": """export function add(a, b) {
  const sum = a + b;
  return sum;
}

export class Box {
  open(key) {
    if (key !== this.key) {
      throw new Error("wrong key");
    }
    this.isOpen = true;
  }
}
""",
    "c.go": """package store

func Add(a int, b int) int {
	sum := a + b
	return sum
}
""",
    "d.c": """int add(int a, int b)
{
    int sum = a + b;
    return sum;
}
""",
    "e.rs": """fn add(a: i32, b: i32) -> i32 {
    let sum = a + b;
    sum
}
""",
}


def run_git(root: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True, capture_output=True
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    run_git(tmp_path, "init", "-q")
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    run_git(tmp_path, "add", "-A")
    run_git(tmp_path, "commit", "-qm", "first")
    return tmp_path


@pytest.fixture
def draw(root: Path) -> Callable[..., list[Gap]]:
    def draw_from(lines: int = 50, bodies: int = 50, changed: str | None = None, seed: int = 0) -> list[Gap]:
        return draw_gaps(find_repository(root), root, {"line": lines, "body": bodies}, changed, seed)

    return draw_from


def test_the_original_text_of_a_gap_is_judged_right(draw: Callable[..., list[Gap]]) -> None:
    gaps = draw()
    assert {gap.name for gap in gaps if gap.kind == "line"} == set(SOURCES)
    assert {gap.name for gap in gaps if gap.kind == "body"} == set(SOURCES)
    for gap in gaps:
        spliced = splice(gap.document, (gap.hole,), [gap.truth])
        assert gap.is_right(spliced.fills[0].text) and not spliced.new_errors
        if gap.kind == "line":
            assert gap.document.apply(spliced.patch).decode() == SOURCES[gap.name]


def test_no_copy_holds_what_is_asked_for(draw: Callable[..., list[Gap]]) -> None:
    for gap in draw():
        assert len(gap.document.data) < len(SOURCES[gap.name])
        assert SOURCES[gap.name].count(gap.truth) > gap.document.data.decode().count(gap.truth)


def test_a_line_is_a_whole_statement(draw: Callable[..., list[Gap]]) -> None:
    truths = {gap.truth for gap in draw() if gap.kind == "line"}
    assert "self.rows = {}" in truths and "const sum = a + b;" in truths
    assert not truths & {"if name not in self.rows:", '"""Keeps."""', "def stub():", "}", "..."}


def test_the_same_tree_and_seed_give_the_same_gaps(draw: Callable[..., list[Gap]]) -> None:
    first = [gap.id for gap in draw(lines=6, bodies=2)]
    assert first == [gap.id for gap in draw(lines=6, bodies=2)] != [gap.id for gap in draw(lines=6, bodies=2, seed=1)]
    assert len(set(first)) == 8
    assert replace(draw()[0], name="caf\udce9.py").id not in first, "a name may be no UTF-8"


def test_only_changed_lines_and_new_files_are_drawn(root: Path, draw: Callable[..., list[Gap]]) -> None:
    (root / "d.c").write_text(SOURCES["d.c"].replace("int sum = a + b;", "int sum = b + a;"))
    (root / "new.py").write_text("def late(x):\n    return x.late_value\n")
    gaps = draw(changed="HEAD")
    lines = {(gap.name, gap.truth) for gap in gaps if gap.kind == "line"}
    assert lines == {("d.c", "int sum = b + a;"), ("new.py", "return x.late_value")}
    assert {gap.name for gap in gaps if gap.kind == "body"} == {"d.c", "new.py"}
    with pytest.raises(MidfillError, match="no revision"):
        draw(changed="nope")


def test_changed_lines_are_found_whatever_the_name_and_the_configuration(root: Path) -> None:
    odd = 'a"\\\tö.py'
    (root / odd).write_text("".join(f"x{number} = 1\n" for number in range(20)))
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "second")
    run_git(root, "config", "diff.interHunkContext", "10")
    (root / odd).write_text((root / odd).read_text().replace("x3 = 1", "x3 = 2").replace("x9 = 1", "x9 = 2"))
    (root / "a.py").unlink()
    assert find_changed(root, "HEAD").ranges == {odd: ((3, 4), (9, 10))}


def test_folders_are_named_as_they_are(root: Path) -> None:
    for name in ("[a]/x.py", "a/x.py", ":b/x.py"):
        (root / name).parent.mkdir()
        (root / name).write_text("x = 1\n")
    for name in ("[a]", ":b"):
        assert list_files(find_repository(root), root / name) == [f"{name}/x.py"]


def test_lines_are_counted_as_git_counts_them(root: Path) -> None:
    data = b"a = 'x\ry\rz'\nb = 1\nc = 2\n"
    (root / "a.py").write_bytes(data)
    run_git(root, "commit", "-qam", "second")
    (root / "a.py").write_bytes(data := data.replace(b"b = 1", b"b = 3"))
    changed = find_changed(root, "HEAD")
    at = data.index(b"b")
    assert changed.touches("a.py", data, at, at + 1) and not changed.touches("a.py", data, at + 6, len(data) - 1)


def test_a_new_file_is_among_those_that_were_changed_last(
    root: Path, draw: Callable[..., list[Gap]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "new.py").write_text("def late(x):\n    return x.late_value\n")
    monkeypatch.setattr(drawing, "MAX_FILES", 1)
    assert {gap.name for gap in draw()} == {"new.py"}


def test_what_is_ignored_secret_generated_or_broken_is_left_out(root: Path, draw: Callable[..., list[Gap]]) -> None:
    (root / ".gitignore").write_text("build/\n")
    for name in ("build/x.py", "secret.py/x.py", "node_modules/m/x.js", "x_pb2.py", "broken.py", "made.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        text = "value = compute_all()\n"
        (root / name).write_text(
            {"broken.py": "value = (\n" + text, "made.py": "# @gener" + "ated\n" + text}.get(name, text)
        )
    assert {gap.name for gap in draw()} == set(SOURCES)


def compare(*texts: tuple[float, float, float]) -> list[ComparedText]:
    return [ComparedText(nats, following, 0.0, 0, 0, worth) for nats, following, worth in texts]


MISLED = compare((-3.0, -9.0, EXACT), (-5.0, -1.0, 0.5))  # by the lines behind
GUIDED = compare((-3.0, -9.0, 0.5), (-5.0, -1.0, EXACT))


def test_a_judge_is_fitted_only_where_it_chooses_better_in_files_it_has_not_seen() -> None:
    files = [f"{number}.py" for number in range(60)]
    fit = fit_judge([MISLED] * 60, files)
    assert fit is not None and fit.weights.follows < 0.25
    assert (fit.num_right, fit.num_right_shipped, fit.count) == (60, 0, 60)
    assert fit_judge([GUIDED] * 60, files) is None, "what ships is right"
    assert fit_judge([MISLED] * (MIN_LINES - 1), files[: MIN_LINES - 1]) is None
    halves = [MISLED] * 30 + [GUIDED] * 30
    assert fit_judge(halves, ["a.py"] * 30 + ["b.py"] * 30) is None, "each file says the opposite of the other"


def describe(model: str) -> ModelInfo:
    sizes = {"parameters": 1, "max_context_tokens": 8, "max_hole_tokens": 8}
    return ModelInfo(id=model, family="causal", device="cpu", dtype="", **sizes)


@pytest.mark.parametrize(("model", "is_fitted"), [("checkpoint", True), (BASE, False)])
def test_the_default_model_keeps_the_judge_that_was_fitted_for_it(
    model: str, is_fitted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    info = describe(model)
    store = Store(info)
    for number in range(MIN_LINES):
        store.add(replace(outcome(f"{number}.py", right=False), compared=tuple(MISLED), model=model))
    assert (store.fit(model) is not None) == is_fitted == (load_judge(info) is not None)


def test_outcomes_keep_what_was_compared() -> None:
    kept = replace(outcome("a", right=True), compared=tuple(MISLED))
    assert GapOutcome.from_json(json.loads(json.dumps(asdict(kept)))) == kept


def test_only_the_outcome_that_an_abort_cut_off_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    outcomes = [replace(outcome(gap, right=True), at=time.time()) for gap in "abc"]
    for each in outcomes:
        Store(describe("m")).add(each)
        (path,) = tmp_path.rglob("*.jsonl")
        if each.gap == "b":
            path.write_bytes(path.read_bytes()[:-20])
    assert [Store(describe("m")).find(each.gap, "", "") for each in outcomes] == [outcomes[0], None, outcomes[2]]


def test_a_file_of_outcomes_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("midfill_infill.measuring.outcomes.MAX_KEPT", 2, raising=False)
    outcomes = [replace(outcome(gap, right=True), at=time.time()) for gap in "abcdab"]
    for each in outcomes:
        Store(describe("m")).add(each)
    first, again = Store(describe("m")), Store(describe("m"))
    assert [gap for gap in "abcd" if first.find(gap, "", "")] == ["a", "b", "c", "d"]
    assert [gap for gap in "abcd" if again.find(gap, "", "")] == ["a", "b"]


def outcome(gap: str, *, right: bool, end_s: float = 1.0, told: float | None = None) -> GapOutcome:
    return GapOutcome(gap, "line", gap, is_right=right, similar=float(right), parses=True, end_s=end_s, told=told)


def test_a_models_folder_is_shown_as_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    show([], [Measured("/models/[old]/a")], [])
    assert "/models/[old]/a" in capsys.readouterr().out


def test_a_share_has_wilsons_interval() -> None:
    assert str(Share.count([True] * 5 + [False] * 5)) == "50 % (24-76)"
    assert str(Share.count([False] * 20)) == "0 % (0-16)"


def test_the_better_model_is_chosen_although_it_is_slower() -> None:
    good = [outcome(str(number), right=number % 10 != 0, end_s=5.0) for number in range(60)]
    bad = [outcome(str(number), right=number % 3 == 0, end_s=0.5) for number in range(60)]
    said = describe_choice(
        [Measured("floor", tuple(good), is_floor=True), Measured("bad", tuple(bad)), Measured("good", tuple(good))]
    )
    assert said == "choose good here: its fills are closer to what you wrote than those of bad"


def test_of_two_that_are_alike_the_faster_is_chosen() -> None:
    slow = [outcome(str(number), right=number % 2 == 0, end_s=5.0) for number in range(60)]
    fast = [outcome(str(number), right=number % 2 == 1 or number == 0, end_s=0.5) for number in range(60)]
    said = describe_choice([Measured("slow", tuple(slow)), Measured("fast", tuple(fast))])
    assert said.startswith("choose fast here: a fill takes 0.5 s on average, 5.0 s with slow")


def test_models_are_compared_on_the_gaps_that_both_have_filled() -> None:
    whole = [outcome(str(number), right=number < 30) for number in range(60)]
    part = [outcome(str(number), right=True, end_s=3.0) for number in range(30)]
    said = describe_choice([Measured("whole", tuple(whole)), Measured("part", tuple(part))])
    assert said.startswith("choose whole here")


def test_an_engines_own_certainty_is_told_where_a_fit_gains_nothing() -> None:
    sure = [outcome(str(number), right=number % 5 != 0, told=0.8) for number in range(10)]
    assert describe_sureness(sure) == "sure 8 of 10 right; on average 80% sure, 80% right"
    assert describe_sureness([outcome("a", right=True)]) == ""


def test_fills_of_one_file_tell_no_certainty_that_no_other_file_can_confirm() -> None:
    fills = [outcome(str(number), right=number % 2 == 0) for number in range(MIN_MEASURED)]
    assert describe_sureness(fills).endswith("50% right")
    assert describe_sureness([replace(each, group="a.py") for each in fills]) == ""


def test_fills_that_pass_are_better_not_closer_to_what_was_written() -> None:
    passing = [replace(outcome(str(number), right=False), passes=True) for number in range(60)]
    failing = [replace(each, passes=False) for each in passing]
    said = describe_choice([Measured("failing", failing), Measured("passing", passing)])
    assert said == "choose passing here: its fills are better than those of failing"
