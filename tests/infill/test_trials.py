"""A tree that is mended after a change says what one that is read anew says."""

import time

import pytest
import tree_sitter
from tests.infill.marks import read_goldens, read_marks

from midfill_infill.answers.draft import DraftText
from midfill_infill.answers.trials import Trials
from midfill_infill.languages import get_language
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.outline import outline
from midfill_infill.syntax.problems import find_problems
from midfill_infill.text.document import Document

TEXTS = ("é = [\n        1,\n    ]\n    return é", "", "}\nx {")
MAX_HOLES = 4
CASES = [pytest.param(language, marked, id=f"{language}: {title}") for language, title, marked in read_goldens()]


@pytest.mark.parametrize(("language", "marked"), CASES)
def test_trees_that_trials_edit_are_those_of_a_new_parse(language: str, marked: str) -> None:
    source, _ = read_marks(marked)
    document = Document(source, language)
    holes, end = [], 0
    for function in outline(document).functions:
        hole = body_hole(document, function)
        if hole.start_byte >= end and len(holes) < MAX_HOLES:
            holes.append(hole)
            end = hole.end_byte + 1
    if not holes:
        pytest.skip("no function")
    trials = Trials(document, get_language(language), tuple(holes))
    for text in TEXTS:
        trials.count_errors([DraftText.of(text)] * len(holes))
        trials.count_errors([DraftText.of(text), *[None] * (len(holes) - 1)])
    assert len(trials._trials) > len(TEXTS)
    for trial in trials._trials.values():
        problems, tree = find_problems(trials.language, trial.source, trial.spans)
        assert list(trial.problems) == problems
        assert shape(trial.tree) == shape(tree)


def test_few_trees_of_a_large_source_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    document = Document(b"def f():\n    pass\n", "python")
    holes = (body_hole(document, outline(document).functions[0]),)
    texts = [DraftText.of(f"return {'(' * (number % 2)}{number}") for number in range(20)]
    trials = Trials(document, get_language("python"), holes)
    counts = [trials.count_errors([text]) for text in texts]
    assert counts == [0, 2] * 10 and len(trials._trials) > 20
    monkeypatch.setattr("midfill_infill.answers.trials._KEPT_BYTES", 100)
    few = Trials(document, get_language("python"), holes)
    assert [few.count_errors([text]) for text in texts + texts] == counts * 2 and len(few._trials) == 4


def test_errors_around_many_spans_are_found_at_once() -> None:
    source = b"x = 1\ntry:\n    f()\n" + b"def f():\n    g()\n     h()\n" * 2000
    starts = range(19, len(source), 26)
    around = tuple((start + 10, start + 20) for start in starts if start != 19 + 26 * 300)
    start_s = time.process_time()
    problems, _ = find_problems(get_language("python"), source, around)
    assert sorted(problems) == [(start + 22, start + 25) for start in starts if start != 19 + 26 * 300]
    assert time.process_time() - start_s < 0.5


def shape(tree: tree_sitter.Tree) -> list[tuple[str, tuple[int, int], tuple[int, ...]]]:
    nodes = [tree.root_node]
    for node in nodes:
        nodes.extend(node.children)
    return [(node.type, node.byte_range, tuple(node.start_point)) for node in nodes]
