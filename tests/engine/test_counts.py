"""Counted words and the drafts made of them: words, tables, probabilities, candidates, bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midfill_engine.experts import Gap, Remote, Sources
from midfill_engine.experts.counts import PARTS, Counts
from midfill_engine.experts.levels import Reader
from midfill_engine.experts.lines import Lines, Site, place_of, rename
from midfill_engine.experts.ranking import Ranker
from midfill_engine.experts.table import DEPTH, Table, make_stream
from midfill_engine.experts.words import Lexicon, split_chunks
from midfill_engine.tokens.tokenizer import heal

CODE = st.text(alphabet="ab_1 \n\t.(é)", max_size=60)
WORDS = st.lists(st.integers(0, 5), max_size=40).map(lambda ids: np.array(ids, np.int32))
GATES = ((-0.2, 0.3, 0.1),) * DEPTH


def lexicon_of(num: int = 6) -> Lexicon:
    lexicon = Lexicon()
    for index in range(num):
        lexicon.cut(f"w{index}")
    return lexicon


def sources(prefix: str, suffix: str, *remotes: Remote) -> Sources:
    edges = heal(prefix, suffix)
    gap = Gap(edges.prefix, edges.suffix, edges.lead, edges.tail)
    return Sources([], (edges.prefix, edges.suffix), (gap,), remotes)


def propose(prefix: str, suffix: str, *remotes: Remote, expert: Counts | None = None) -> list[str]:
    return [each.text for each in (expert or Counts()).read(sources(prefix, suffix, *remotes)).propose(0)]


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


def test_without_renaming_lines_that_stand_there_are_left() -> None:
    without = Counts(parts=PARTS - {"renamed"})
    for name, stands in (("close", False), ("seek", True)):
        prefix, suffix = (
            FILE + f"def {name}(self):\n    with self.lock:\n        ",
            f"\n        return self.{name}_count\n",
        )
        assert (f"self.{name}_count += 1" in propose(prefix, suffix, expert=without)) is stands
        assert f"self.{name}_count += 1" in propose(prefix, suffix)


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


def test_the_rest_of_the_document_counts_and_nothing_crosses_its_end() -> None:
    prefix, suffix = "def close(self):\n    ", "\n        self.close_count += 1\n"
    assert "with self.lock:" not in propose(prefix, suffix)
    assert propose(prefix, suffix, Remote("document", FILE))[0] == "with self.lock:"
    lexicon = lexicon_of()
    stream = make_stream([[np.array([1, 2], np.int32)], [np.array([3], np.int32)]])
    reader = Reader.of(Table.of(stream, lexicon.hashes), lexicon, GATES)
    beside, alone = reader.log_probs(np.array([[2, 1, 0, 0], [0, 0, 0, 0]], np.int32), np.array([3, 3], np.int32))
    assert beside < alone  # 3 stands at the beginning of a text, never behind 2


def test_what_an_expert_remembers_changes_nothing() -> None:
    prefix, suffix = FILE + "def close(self):\n    ", "\n        self.close_count += 1\n"
    fresh = Counts().read(sources(prefix, suffix)).propose(0)
    expert = Counts()
    for text in ("", "x = 1\n" * 50, FILE[:100], prefix + "pass"):
        expert.read(sources(text, suffix)).propose(0)
    assert expert.read(sources(prefix, suffix)).propose(0) == fresh


def test_certainties_are_probabilities_the_surest_first() -> None:
    found = [each.certainty for each in Counts().read(sources(FILE + "def close(self):\n    ", "\n")).propose(0)]
    assert found and found == sorted(found, reverse=True) and all(0 <= each <= 1 for each in found)


@pytest.mark.parametrize(("prefix", "suffix"), [("", ""), ("\n", "\n"), ("x", ""), ("", "é\ud800"), ("\t", "\r\n ")])
def test_texts_that_say_nothing_give_no_error(prefix: str, suffix: str) -> None:
    assert all(isinstance(text, str) for text in propose(prefix, suffix))


def test_memory_is_bounded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("midfill_engine.experts.words.MAX_CHUNK_CHARACTERS", 4000)
    monkeypatch.setattr("midfill_engine.experts.words.MAX_WORDS", 500)
    expert = Counts()
    lexicons = set()
    for number in range(40):
        text = "\n".join(f"name_{number}_{index} = {index}" for index in range(60))
        opinion = expert.read(sources(text, ""))
        lexicons.add(id(opinion.lexicon))
        kept = sum(len(part) for part, _ in opinion.lexicon._chunks)
        assert kept <= 4000 or len(opinion.lexicon._chunks) == 1
        assert len(opinion.lexicon.texts) < 1500 and opinion.num_bytes > 20 * len(text) / 4
    assert len(lexicons) > 2


def test_a_document_beyond_the_window_counts_as_if_it_were_in_it() -> None:
    lines = [f"x{index % 7} = y{index % 5}" for index in range(60)]
    for place in (20, 40):
        before, after = "\n".join(lines[:place]) + "\n", "\n" + "\n".join(lines[place + 1 :])
        whole = Counts().read(sources(before, after)).propose(0)
        near, far = "\n".join(lines[place - 10 : place]) + "\n", "\n" + "\n".join(lines[place + 1 : place + 10])
        front, back = before.removesuffix(near).removesuffix("\n"), after.removeprefix(far).removeprefix("\n")
        rest = Remote("document", front, 9), Remote("document", back, 8, is_behind=True)
        parts = Counts().read(sources(near, far, *rest)).propose(0)
        assert parts[0].text == whole[0].text and abs(parts[0].certainty - whole[0].certainty) < 0.1


def test_lines_know_where_the_gap_is() -> None:
    lexicon = Lexicon()
    lines = Lines.of(lexicon, [lexicon.chunks("a\nb\nc\na\nb\n")], [lexicon.chunks("\nc\nd")])
    assert [lexicon.lines[number] for number in lines.numbers[lines.place - 2 : lines.place + 1]] == ["b", "", "c"]
    assert lines.exact.up.tolist() == [0, 0, 0, 2, 0, 0, 0, 0, 0, 0]  # the first c is behind a, b
    assert lines.exact.down.tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    site = Site.of(Gap("if a:", "\n        b", "\n", ""))
    assert site.is_line and site.indents[0] == "        " and site.opens is False


def test_lines_of_other_files_are_proposed_and_can_be_switched_off() -> None:
    prefix, suffix = "x = 1\ncall_first(x)\n", "\ncall_third(x)\n"
    other = Remote("neighbour", "def f():\n    call_first(x)\n    call_second(x)\n    call_third(x)\n")
    assert propose(prefix, suffix, other)[0] == "call_second(x)"
    assert "call_second(x)" not in propose(prefix, suffix)
    without = Counts(parts=PARTS - {"references"})
    assert "call_second(x)" not in propose(prefix, suffix, other, expert=without)


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


def test_drafts_do_not_depend_on_earlier_requests() -> None:
    lines = [f"value{number} = call{number % 7}(a)\n" for number in range(60)] * 2
    before, expert = "".join(lines) + "def close(self):\n    ", Counts()
    expert.read(sources("".join(reversed(lines)), "\n")).propose(0)
    found, fresh = (each.read(sources(before, "\n")).propose(0) for each in (expert, Counts()))
    assert found == fresh and len(found) > 20
