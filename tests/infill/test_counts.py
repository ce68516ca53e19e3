"""Counted words and the drafts made of them: words, tables, probabilities, candidates, bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_infill.proposals.base import Proposal
from midfill_infill.proposals.counts import Counts, Texts
from midfill_infill.proposals.gap import Gap
from midfill_infill.proposals.levels import Reader
from midfill_infill.proposals.neighbours import Lines, Site, place_of, rename
from midfill_infill.proposals.ranking import Ranker
from midfill_infill.proposals.table import DEPTH, Table, make_stream
from midfill_infill.proposals.words import Lexicon, split_chunks

CODE = st.text(alphabet="ab_1 \n\t.(é)", max_size=60)
WORDS = st.lists(st.integers(0, 5), max_size=40).map(lambda ids: np.array(ids, np.int32))
GATES = ((-0.2, 0.3, 0.1),) * DEPTH


def lexicon_of(num: int = 6) -> Lexicon:
    lexicon = Lexicon()
    for index in range(num):
        lexicon.cut(f"w{index}")
    return lexicon


def ask(counts: Counts, prefix: str, suffix: str, *others: str) -> list[Proposal]:
    gap = Gap.between(prefix, suffix)
    return counts.read(Texts((gap.before, gap.after), others)).propose(0, gap)


def propose(prefix: str, suffix: str, *others: str) -> list[str]:
    return [each.text for each in ask(Counts(), prefix, suffix, *others)]


@given(CODE)
def test_words_and_chunks_are_the_whole_text(text: str) -> None:
    lexicon = Lexicon()
    assert "".join(lexicon.texts[word] for word in lexicon.cut(text)) == text
    assert "".join(split_chunks(text)) == text


def test_chunks_are_cut_the_same_whatever_stands_before() -> None:
    lines = "\n".join(f"line {index} of many" for index in range(900))
    parts = list(split_chunks(lines))
    moved = list(split_chunks("one\nmore\n" + lines))
    assert len(parts) > 6 and len(set(moved) - set(parts)) <= 3
    lexicon = Lexicon()
    whole = [word for chunk in lexicon.chunks(lines) for word in chunk.words.tolist()]
    assert whole == lexicon.cut(lines)


@given(WORDS, WORDS, WORDS, WORDS)
def test_an_edited_table_is_the_one_counted_anew(
    head: np.ndarray, old: np.ndarray, new: np.ndarray, tail: np.ndarray
) -> None:
    hashes = lexicon_of().hashes
    first, second = (make_stream([[head, middle, tail], [tail]]) for middle in (old, new))
    edited, counted = Table.of(first, hashes).changed_to(second, hashes), Table.of(second, hashes)
    assert (edited.keys == counted.keys).all() and (edited.stream == second).all()
    for table in (edited, counted):
        assert (table.followers == second[table.places]).all()
    assert sorted(edited.places.tolist()) == sorted(counted.places.tolist())


@given(WORDS, WORDS)
def test_counts_are_a_distribution_and_agree_with_what_follows(text: np.ndarray, context: np.ndarray) -> None:
    lexicon = lexicon_of()
    reader = Reader.of(Table.of(make_stream([[text]]), lexicon.hashes), lexicon, GATES)
    nearest = np.concatenate((context, np.zeros(DEPTH, np.int32)))[None, : DEPTH - 1].astype(np.int32)
    every = np.arange(1, len(lexicon.texts), dtype=np.int32)
    logs = reader.log_probs(np.repeat(nearest, len(every), axis=0), every)
    assert np.exp(logs).sum() <= 1 + 1e-6 and (logs < 0).all()
    rows, words, followers = reader.followers(nearest)
    assert (rows == 0).all() and len(set(words.tolist())) == len(words)
    assert followers == pytest.approx(logs[words - 1], abs=1e-9)


def test_what_was_seen_more_is_likelier() -> None:
    lexicon = lexicon_of()
    reader = Reader.of(
        Table.of(make_stream([[np.array([1, 2, 1, 2, 1, 3], np.int32)]]), lexicon.hashes), lexicon, GATES
    )
    contexts = np.array([[1, 0, 0, 0]] * 3, np.int32)
    two, three, four = reader.log_probs(contexts, np.array([2, 3, 4], np.int32))
    assert two > three > four


REPEATED = "def {0}(self):\n    with self.lock:\n        self.{0}_count += 1\n        return self.{0}_count\n\n"
FILE = "".join(REPEATED.format(name) for name in ("read", "write", "seek"))


def test_a_line_between_the_same_neighbours_comes_first() -> None:
    prefix = FILE + "def close(self):\n    "
    suffix = "\n        self.close_count += 1\n        return self.close_count\n"
    assert propose(prefix, suffix)[0] == "with self.lock:"


def test_a_line_is_renamed_as_its_neighbours_are() -> None:
    prefix = FILE + "def close(self):\n    with self.lock:\n        "
    assert propose(prefix, "\n        return self.close_count\n")[0] == "self.close_count += 1"
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
def test_a_draft_has_the_white_space_of_its_hole(prefix: str, suffix: str, wanted: str) -> None:
    assert propose(FILE + prefix, suffix)[0] == wanted


def test_nothing_crosses_the_end_of_a_text() -> None:
    lexicon = lexicon_of()
    stream = make_stream([[np.array([1, 2], np.int32)], [np.array([3], np.int32)]])
    reader = Reader.of(Table.of(stream, lexicon.hashes), lexicon, GATES)
    beside, alone = reader.log_probs(np.array([[2, 1, 0, 0], [0, 0, 0, 0]], np.int32), np.array([3, 3], np.int32))
    assert beside < alone  # 3 stands at the beginning of a text, never behind 2


def test_what_is_remembered_changes_nothing() -> None:
    prefix, suffix = FILE + "def close(self):\n    ", "\n        self.close_count += 1\n"
    counts = Counts()
    for text in ("", "x = 1\n" * 50, FILE[:100], prefix + "pass"):
        ask(counts, text, suffix)
    assert ask(counts, prefix, suffix) == ask(Counts(), prefix, suffix)


def test_certainties_are_probabilities_the_surest_first() -> None:
    found = [each.certainty for each in ask(Counts(), FILE + "def close(self):\n    ", "\n")]
    assert found and found == sorted(found, reverse=True) and all(0 <= each <= 1 for each in found)


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("\n", "\n"), ("x", ""), ("", "é\ud800"), ("\t", "\r\n ")])
def test_texts_that_say_nothing_give_no_error(prefix: str, suffix: str) -> None:
    assert all(isinstance(text, str) for text in propose(prefix, suffix))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midfill_infill.proposals.words.MAX_CHUNK_CHARACTERS", 4000)
    monkeypatch.setattr("midfill_infill.proposals.words.MAX_WORDS", 500)
    counts = Counts()
    lexicons = set()
    for number in range(40):
        text = "\n".join(f"name_{number}_{index} = {index}" for index in range(60))
        lexicon = counts.read(Texts((text, ""))).lexicon
        lexicons.add(id(lexicon))
        assert sum(len(part) for part, _ in lexicon._chunks) <= 4000 or len(lexicon._chunks) == 1
        assert len(lexicon.texts) < 1500
    assert len(lexicons) > 2


def test_lines_know_where_the_gap_is() -> None:
    lexicon = Lexicon()
    lines = Lines.of(lexicon, [lexicon.chunks("a\nb\nc\na\nb\n")], [lexicon.chunks("\nc\nd")])
    assert [lexicon.lines[number] for number in lines.numbers[lines.place - 2 : lines.place + 1]] == ["b", "", "c"]
    assert lines.exact.up.tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 0, 0]  # the first c is behind a, b
    assert lines.exact.down.tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    site = Site.of(Gap("if a:", "\n        b", "\n", ""))
    assert site.is_line and site.indents[0] == "        " and site.opens is False


def test_lines_of_other_files_are_proposed() -> None:
    prefix, suffix = "x = 1\ncall_first(x)\n", "\ncall_third(x)\n"
    other = "def f():\n    call_first(x)\n    call_second(x)\n    call_third(x)\n"
    first = ask(Counts(), prefix, suffix, other)[0]
    assert (first.text, first.origin) == ("call_second(x)", "a line of another file")
    assert "call_second(x)" not in propose(prefix, suffix)


def test_a_proposal_says_where_it_comes_from() -> None:
    before, after = FILE + "def close(self):\n    with self.lock:\n        ", "\n        return self.close_count\n"
    origins = {each.text: each.origin for each in ask(Counts(), before, after)}
    assert origins["with self.lock:"] == "the file's own line"
    assert origins["self.close_count += 1"] == "a line of the file, renamed"


@pytest.mark.parametrize(
    ("above", "indent", "below", "place"),
    [("", "", "", 8), ("def f():", "    ", "    y", 14), ("    x", "", "z", 2), ("a", "", "    b", 12 - 2)],
)
def test_a_place_is_told_by_the_indents_around(above: str, indent: str, below: str, place: int) -> None:
    assert place_of(above, indent, below, False) == place
    assert place_of(above, indent, below, True) == place + 1


def test_a_ranker_comes_back_from_its_file() -> None:
    rng = np.random.default_rng(0)
    ranker = Ranker(rng.normal(size=3), rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=2))
    table = rng.normal(size=(5, 3))
    again = Ranker.of(ranker.to_json("abc"), "abc")
    assert np.allclose(again.scores(table), ranker.scores(table), atol=1e-3)
    assert not np.allclose(ranker.scores(table), table @ ranker.linear)


def test_proposals_do_not_depend_on_earlier_requests() -> None:
    lines = [f"value{number} = call{number % 7}(a)\n" for number in range(60)] * 2
    before, counts = "".join(lines) + "def close(self):\n    ", Counts()
    ask(counts, "".join(reversed(lines)), "\n")
    found = ask(counts, before, "\n")
    assert found == ask(Counts(), before, "\n") and len(found) > 20


@given(CODE, CODE)
def test_a_gap_keeps_what_stands_around_it(before: str, after: str) -> None:
    gap = Gap.between(before, after)
    assert (gap.before + gap.lead, gap.after.removeprefix(gap.tail)) == (before, after)
