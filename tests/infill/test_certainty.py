"""How sure a model's fills are, fitted on what was right: the fit, its file, and what it changes about a fill."""

import random
from pathlib import Path

import pytest

from midfill_engine.wire import FilledHole, FittedWeights, ModelInfo
from midfill_infill.filling import certainty
from midfill_infill.filling.candidates import Answer, CandidateSelector
from midfill_infill.filling.certainty import Evidence, Fit, fit, lose, rate_unseen
from midfill_infill.syntax.holes import find_stubs, hole_at_cursor
from midfill_infill.text.document import Document
from midfill_infill.until.anew import put_together


def model(name: str = "m", weights: str = "w") -> ModelInfo:
    return ModelInfo(
        id=name,
        family="f",
        parameters=1,
        device="cpu",
        dtype="",
        max_context_tokens=8,
        max_hole_tokens=8,
        weights=weights,
    )


def draw(count: int, seed: int = 0) -> list[tuple[Evidence, bool]]:
    """Fills that are right as often as their mean log-probability says."""
    luck = random.Random(seed)
    means = [-luck.random() * 3 for _ in range(count)]
    return [(Evidence(mean=mean, least=2 * mean, length=3.0), luck.random() < 1 + mean / 3) for mean in means]


def test_a_fitted_certainty_is_the_share_of_right_fills() -> None:
    found = fit(draw(400))
    for mean in (-0.3, -1.5, -2.7):
        assert found.rate(Evidence(mean=mean, least=2 * mean, length=3.0)) == pytest.approx(1 + mean / 3, abs=0.12)
    assert found.count == 400 and "length" not in found.weights


def test_a_fit_beats_the_average_on_unseen_fills() -> None:
    seen, unseen = draw(60), draw(400, seed=1)
    rights = [is_right for _, is_right in unseen]
    share, fitted = sum(is_right for _, is_right in seen) / len(seen), fit(seen)
    assert lose([fitted.rate(evidence) for evidence, _ in unseen], rights) < lose([share] * 400, rights) - 0.05


@pytest.mark.parametrize("is_right", [False, True])
def test_a_model_that_was_always_wrong_or_right_is_called_neither_impossible_nor_certain(is_right: bool) -> None:
    found = fit([(evidence, is_right) for evidence, _ in draw(20)])
    chances = [found.rate(evidence) for evidence, _ in draw(20)]
    assert all(0.85 < chance < 0.99 if is_right else 0.01 < chance < 0.15 for chance in chances)


def test_certainties_of_a_group_come_from_the_others() -> None:
    """Each file has a length of its own, and in each all fills are alike: knowing the file would tell everything."""
    groups = [str(number // 4) for number in range(40)]
    seen = [(Evidence(length=float(hash(group) % 97)), int(group) % 2 == 0) for group in groups]
    for group in range(10):
        others = [each for each, name in zip(seen, groups, strict=True) if int(name) % 5 != group % 5]
        expected = fit(others).rate(seen[4 * group][0])
        assert rate_unseen(seen, groups)[4 * group] == pytest.approx(expected)


def test_fits_are_found_by_the_model_and_the_name_it_answers_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    certainty.save(model(), "x.gguf", {"line": Fit(0.5, {"mean": 1.0}, 30)})
    certainty.save(model("other"), "y", {"body": Fit(-1.0)})
    assert certainty.load(model(), "x.gguf") == {"line": Fit(0.5, {"mean": 1.0}, 30)}
    assert certainty.load(model("other"), "y") == {"body": Fit(-1.0)}
    assert certainty.load(model(), "another.gguf") == {} == certainty.load(model(weights="changed"), "x.gguf")
    certainty.save(model(), "x.gguf", {})
    assert certainty.load(model(), "x.gguf") == {}


def test_each_model_has_its_own_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    first = FittedWeights(share=0.2, follows=0.0, named=4.0, used=0.0)
    second = FittedWeights(share=5.0, follows=1.0, named=0.0, used=7.0)
    certainty.save(model(), "x.gguf", {}, first)
    certainty.save(model("other"), "y", {}, second)
    certainty.save(model("plain"), "z", {"line": Fit(1.0)})
    assert certainty.load_judge(model()) == first and certainty.load_judge(model("other")) == second
    assert certainty.load_judge(model("plain")) is None is certainty.load_judge(model(weights="changed"))
    certainty.save(model(), "x.gguf", {})
    assert certainty.load_judge(model()) is None and certainty.load_judge(model("other")) == second


@pytest.mark.parametrize("judge", ["3", "{}", '{"share": -1, "follows": 0, "named": 0, "used": 0}'])
def test_a_broken_judge_is_as_good_as_none(judge: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    certainty.folder().mkdir(parents=True)
    text = f'{{"m w": {{"model": "x", "fits": {{}}, "judge": {judge}}}}}'
    (certainty.folder() / "certainty.json").write_text(text)
    assert certainty.load_judge(model()) is None and certainty.load(model(), "x") == {}


@pytest.mark.parametrize("text", ["", "[]", '{"m w": 3}', '{"m w": {"model": "x", "fits": {"line": {"two": 2}}}}'])
def test_a_broken_file_is_as_good_as_none(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    certainty.folder().mkdir(parents=True)
    (certainty.folder() / "certainty.json").write_text(text)
    assert certainty.load(model(), "x") == {}
    certainty.save(model(), "x", {"line": Fit(1.0)})
    assert certainty.load(model(), "x") == {"line": Fit(1.0)}


def test_an_engine_without_a_certainty_gets_the_measured_one() -> None:
    document = Document(b"def f(a):\n    \n", "python")
    holes = (hole_at_cursor(document, 14),)
    drafted = Answer(FilledHole(text="return a * 2", tokens=[(0, 6), (6, 12)], confidence=[0.5, 0.25]))
    proposed = Answer.of("return a * 3", 0.2, "the file's own line")
    for fits, expected in (({}, None), ({"line": Fit(0.0, {"mean": -1.0})}, 0.73879), ({"body": Fit(9.0)}, None)):
        row = CandidateSelector(document, holes, fits=fits).splice([drafted])
        assert row.candidate.certainty == (expected and pytest.approx(expected, abs=1e-4))
        assert row.candidate.fills[0].engine_certainty is None
    left_out = Answer(proposed.filled, proposed.origin, is_unranked=True)
    row = CandidateSelector(document, holes, fits={"line": Fit(9.0)}).splice([left_out])
    assert row.candidate.certainty == 0.2


@pytest.mark.parametrize("own", [None, 0.3])
def test_a_measured_body_is_a_suggestion_only_if_its_engine_told_a_certainty(own: float | None) -> None:
    """So is one that `--until` puts together of others, and a proposal in selector of a fill."""
    document = Document(b"def f(a):\n    pass\n\n\ndef g(a):\n    return a\n", "python")
    holes = find_stubs(document)
    selector = CandidateSelector(document, holes, fits={"body": Fit(-2.0)})
    drafted = Answer(FilledHole(text="return a * 2", certainty=own))
    made = selector.splice([drafted]).candidate
    again = put_together(CandidateSelector(document, holes), made, 0, made.fills[0])
    for found in (made, again):
        assert found is not None and found.certainty == pytest.approx(0.1192, abs=1e-3)
        assert found.is_suggestion is (own is not None) and found.fills[0].engine_certainty == own
    left_out = Answer(FilledHole(text="return a * 2", certainty=0.1), "like `g`", is_unranked=True)
    assert selector.splice([left_out]).candidate.is_suggestion


def test_two_holes_of_two_kinds_have_each_its_own_fit() -> None:
    document = Document(b"def f(a):\n    pass\n\n\ndef g(a):\n    b = a\n\n    return b\n", "python")
    holes = (*find_stubs(document), hole_at_cursor(document, document.data.index(b"\n\n    return") + 1))
    filled = [FilledHole(text=text, tokens=[(0, len(text))], confidence=[0.5]) for text in ("return a * 2", "b += 1")]
    fits = {"body": Fit(-2.0), "line": Fit(2.0)}
    fills = CandidateSelector(document, holes, fits=fits).splice(list(map(Answer, filled))).candidate.fills
    assert [each.kind for each in fills] == ["body", "line"]
    assert [each.certainty for each in fills] == [pytest.approx(0.1192, abs=1e-3), pytest.approx(0.8808, abs=1e-3)]
    assert [each.is_suggestion for each in fills] == [False, False]
    told = CandidateSelector(document, holes, fits={"line": Fit(2.0)}).splice(list(map(Answer, filled))).candidate
    assert [each.certainty is None for each in told.fills] == [True, False] and told.certainty is None
