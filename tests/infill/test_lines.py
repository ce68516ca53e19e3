"""Lines that are proposed: runs, renaming, rests of lines, probabilities, where they come from."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_infill.context.references import Reference
from midfill_infill.proposals import PROPOSERS, Proposal, Surroundings, propose
from midfill_infill.proposals.lines import propose_lines
from midfill_infill.proposals.neighbors import Corpus, Site, rename, shape_of
from midfill_infill.proposals.weights import PATH, ProposalWeights, shipped_weights
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Hole

CODE = st.text(alphabet="ab_1 \n\t.(é)", max_size=60)
REPEATED = "def {0}(self):\n    with self.lock:\n        self.{0}_count += 1\n        return self.{0}_count\n\n"
FILE = "".join(REPEATED.format(name) for name in ("read", "write", "seek"))


def look(prefix: str, suffix: str, *others: str) -> Surroundings:
    data, start = prefix.encode(errors="replace"), len(prefix.encode(errors="replace"))
    document = Document(data + suffix.encode(errors="replace"), "python")
    return Surroundings(document, (Hole(start, start),), [Reference("near", each) for each in others])


def ask(prefix: str, suffix: str, *others: str) -> list[Proposal]:
    return propose_lines(look(prefix, suffix, *others), 0)


def texts_of(prefix: str, suffix: str, *others: str) -> list[str]:
    return [each.text for each in ask(prefix, suffix, *others)]


def test_a_line_between_the_same_neighbors_comes_first() -> None:
    suffix = "\n        self.close_count += 1\n        return self.close_count\n"
    assert texts_of(FILE + "def close(self):\n    ", suffix)[0] == "with self.lock:"


def test_a_line_is_renamed_as_its_neighbors_are() -> None:
    prefix = FILE + "def close(self):\n    with self.lock:\n        "
    assert texts_of(prefix, "\n        return self.close_count\n")[0] == "self.close_count += 1"
    assert rename("test_old(old)", {"old": "new"}) == "test_new(new)"


@pytest.mark.parametrize(
    ("prefix", "suffix", "wanted"),
    [
        ("def close(self):\n", "\n        self.close_count += 1\n", "    with self.lock:"),
        ("def close(self):\n", "        self.close_count += 1\n", "    with self.lock:\n"),
        ("def close(self):\n    with ", "\n        self.close_count += 1\n", "self.lock:"),
        ("def close(self):\n    with self", "\n        self.close_count += 1\n", ".lock:"),
    ],
)
def test_a_line_has_the_white_space_of_its_hole(prefix: str, suffix: str, wanted: str) -> None:
    assert texts_of(FILE + prefix, suffix)[0] == wanted


@pytest.mark.parametrize("beside", ["raise KeyError(key)", "- two", "pass"])
def test_a_line_is_not_proposed_right_beside_itself(beside: str) -> None:
    prefix = f"def f(key):\n    {beside}\n\ndef g(key):\n    "
    assert beside in texts_of(prefix, "\n    other(key)\n") or beside == "pass"
    assert beside not in map(str.strip, texts_of(prefix, f"\n    {beside}\n"))
    assert beside not in map(str.strip, texts_of(f"{prefix}{beside}\n    ", "\n    other(key)\n"))


def test_a_bracket_is_proposed_beside_itself() -> None:
    nested = "x = f(\n    g(\n        1\n    )\n)\n"
    assert ")" in map(str.strip, texts_of(f"{nested}y = f(\n    g(\n        1\n    ", "\n)\n"))


def test_certainties_are_probabilities_the_surest_first() -> None:
    found = [each.certainty for each in ask(FILE + "def close(self):\n    ", "\n")]
    assert found and found == sorted(found, reverse=True) and all(0 <= each <= 1 for each in found)
    assert sum(found) <= 1 + 1e-9 and len(found) <= 40


@given(CODE, CODE)
def test_no_text_gives_an_error(prefix: str, suffix: str) -> None:
    assert all(each.text.strip() and 0 <= each.certainty <= 1 for each in ask(prefix, suffix, prefix))


def test_runs_are_counted_from_the_gap() -> None:
    lines = Corpus.around(["a\nb\nc\na\nb\n"], ["c\nd"])
    assert (lines.texts[lines.gap - 1 : lines.gap + 2]) == ["b", "", "c"]
    assert lines.runs.up == {3: 2}  # the first c is behind a, b
    assert lines.runs.down == {2: 1}
    site = Site.of("if a:", "\n        b")
    assert not site.is_line
    site = Site.of("if a:\n", "\n        b")
    assert site.is_line and site.indents[0] == "        " and not site.has_block_below()
    long = "    data = [" + "1, " * 2000 + "]"
    site = Site.of(f"{long}\n", f"\n{long}\n")
    assert (site.indents, site.above, site.below) == (("    ",), long.strip(), long.strip())
    assert shape_of("a.bc(d1)") == shape_of("x.y(z)") != shape_of("x.y[z]")


def test_a_line_of_an_empty_block_is_indented_as_the_file_is() -> None:
    source = b"function a() {\n  run();\n}\n\nfunction b() {\n\n}\n"
    at = source.index(b"\n}\n", 30)
    around = Surroundings(Document(source, "javascript"), (Hole(at, at, kind="line", indent="  "),))
    texts = [each.text for each in propose_lines(around, 0)]
    assert "  run();" in texts and "    run();" not in texts


def test_lines_of_other_files_are_proposed() -> None:
    prefix, suffix = "x = 1\ncall_zero(x)\ncall_first(x)\n", "\ncall_third(x)\ncall_last(x)\n"
    other = "def f():\n    call_zero(x)\n    call_first(x)\n    call_second(x)\n    call_third(x)\n    call_last(x)\n"
    first = ask(prefix, suffix, other)[0]
    assert (first.text, first.origin) == ("call_second(x)", "a line of another file")
    assert "call_second(x)" not in texts_of(prefix, suffix)


def test_a_proposal_says_where_it_comes_from() -> None:
    before, after = FILE + "def close(self):\n    with self.lock:\n        ", "\n        return self.close_count\n"
    origins = {each.text: each.origin for each in ask(before, after)}
    assert origins["self.read_count += 1"] == "the file's own line"
    assert origins["self.close_count += 1"] == "a line of the file, renamed"


def test_proposals_do_not_depend_on_the_order_of_proposers_or_earlier_requests() -> None:
    around = look(FILE + "def close(self):\n    with self.lock:\n        ", "\n        return self.close_count\n", FILE)
    first = propose(PROPOSERS, around, 0)
    ask("".join(reversed(FILE.splitlines(keepends=True))), "\n")
    assert propose(PROPOSERS[::-1], around, 0) == first and len(first) > 5


def test_the_weights_are_one_file_with_a_number_for_every_column() -> None:
    kept = ProposalWeights(**json.loads(PATH.read_text()))
    assert kept == shipped_weights() and len(kept.line) > 40
    assert kept.line["line_up"] > 0 and kept.line["renamed"] > 0 > kept.line["unbalanced"]
    assert kept.of_sibling(0.95) >= kept.of_sibling(0.1) > 0
    assert kept.as_body(0.5) < 0.5
