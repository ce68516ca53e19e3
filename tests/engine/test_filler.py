"""Causal bases: what is read once, trees of texts, drafts from the left and what ranks them."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.engine import tiny
from tests.engine.in_process import answer_of, complete, denoise, read_whole, run, run_together
from tests.engine.requests import TEXT, ask

from midfill_engine.causal import branches, split
from midfill_engine.causal.branches import Beam, find_likeliest, log_probs, read_prefix, score
from midfill_engine.causal.branches import Path as Written
from midfill_engine.causal.continuing import fill_causally
from midfill_engine.causal.effort import HEAD_TOKENS
from midfill_engine.causal.filler import MAX_THROUGH, Filler
from midfill_engine.causal.lookup import GUESSED, GUESSED_OF_SEVERAL, MAX_MATCHED, guess_next, spell
from midfill_engine.causal.prompt import (
    AHEAD_CHARACTERS,
    FOLLOWING_CHARACTERS,
    MAX_BEFORE,
    MAX_GIVEN_UP,
    READ_CHARACTERS,
    READ_SHARE,
    WORD_BYTES,
    find_following,
    lay_ahead,
    lay_prompt,
    take_stable_end,
)
from midfill_engine.causal.stretch import GrowingText, Stretch
from midfill_engine.causal.writing import Drawing
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES
from midfill_engine.judging import SHIPPED, Candidate, shipped_weights
from midfill_engine.loading.gguf_files import make_reader
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.scheduling.work import Claim, Fill, ForwardCounter
from midfill_engine.wire import (
    MAX_EXCERPT_CHARACTERS,
    MAX_EXCERPTS,
    GivenText,
    HoleSegment,
    HoleSpec,
    InfillResponse,
    TextSegment,
)


@pytest.mark.parametrize("size", [49, 64, 200, 4099])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.9, 1.0])
def test_the_likeliest_tokens_are_those_of_topk(size: int, share: float) -> None:
    """Of all that are allowed, also where these are few or improbable."""
    generator = torch.Generator().manual_seed(size)
    logs = torch.randperm(size, generator=generator) / -8  # no two are equal
    allowed = torch.rand(size, generator=generator) < share
    logs[torch.randperm(size, generator=generator)[: size // 9]] = -torch.inf
    for kept in (allowed, allowed & (logs < logs.median())):
        for count in (1, 5, 8, size + 1):
            best = logs.masked_fill(~kept, -torch.inf).topk(min(count, size))
            expected = [pair for pair in zip(*map(torch.Tensor.tolist, best), strict=True) if pair[0] > -math.inf]
            assert find_likeliest(logs, kept, count) == [(token, log) for log, token in expected]


def test_a_tree_scores_texts_as_each_by_itself(base: Runtime) -> None:
    ids = tuple(base.loaded.tokenizer.encode(TEXT))
    texts = [base.loaded.tokenizer.encode(text) for text in ("return a\n", "return b\nx", "ret", "raise", "return a\n")]
    prefix, _ = complete(base, read_prefix(base, ids))
    together = complete(base, score(base, prefix, texts))
    for text, logs in zip(texts, together, strict=True):
        (alone,) = complete(base, score(base, prefix, [text]))
        assert torch.allclose(torch.tensor(logs), torch.tensor(alone), atol=1e-5)
        whole = read_whole(base, [*ids, *text])[len(ids) - 1 : -1]
        exact = whole[torch.arange(len(text)), torch.tensor(text)]
        assert torch.allclose(torch.tensor(logs), exact, atol=1e-4)


def test_the_probability_of_an_end_is_the_sum_over_all_tokens_that_end(base: Runtime) -> None:
    encode = base.loaded.tokenizer.encode
    ids, texts = tuple(encode(TEXT)), [encode("return a"), encode("return"), []]
    prefix, _ = complete(base, read_prefix(base, ids))
    ends = base.vocabulary.ending("\n")
    for text, logs in zip(texts, complete(base, score(base, prefix, texts, ends)), strict=True):
        after = read_whole(base, [*ids, *text])[-1]
        assert len(logs) == len(text) + 1
        assert logs[-1] == pytest.approx(float(after[ends].logsumexp(dim=0)), abs=1e-4)


def test_a_beam_reads_as_one_pass_does(base: Runtime) -> None:
    """Beyond the room for its first keys, and after texts that were only followed; the prefix stays as it was."""
    encode = base.loaded.tokenizer.encode
    ids, texts = tuple(encode(TEXT)), [tuple(encode("if x")), tuple(encode("if y"))]
    prefix, _ = complete(base, read_prefix(base, ids))
    before = [part.clone() for pair in prefix.keys_values for part in pair]
    beam = Beam(base, prefix)
    paths, _ = complete(base, beam.open(texts))
    for token in encode(":\n    y = [2, 3]\n" * 4):
        grown = [Written((*path.ids, token), path.logs, path.places) for path in paths]
        paths, logs = complete(base, beam.read(grown))
        behind = complete(base, beam.follow(paths, [texts[0]] * len(paths)))
        for path, found, followed in zip(paths, logs, behind, strict=True):
            whole = read_whole(base, [*ids, *path.ids, *texts[0]])[len(ids) + len(path.ids) - 1 : -1]
            assert torch.allclose(found, whole[0], atol=1e-4)
            exact = whole[torch.arange(len(texts[0])), torch.tensor(texts[0])]
            assert torch.allclose(torch.tensor(followed), exact, atol=1e-4)
    assert len(paths) * len(paths[0].ids) > len(ids) // 4 + branches.GROWN_ROWS
    after = [part for pair in prefix.keys_values for part in pair]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_what_was_read_is_kept_and_equals_what_is_read_anew(
    base: Runtime, record_calls: Callable[..., list[Any]]
) -> None:
    first, second = (tuple(base.loaded.tokenizer.encode(TEXT * 9 + end)) for end in ("x = 1\n", "y = [2]\n"))
    base.prefixes.clear()
    complete(base, read_prefix(base, first))
    kept, known = complete(base, read_prefix(base, second))
    same, known_again = complete(base, read_prefix(base, second))
    for known_of_beginning in (len(second) - 3, len(second) - 2):  # its last token is read anew only once
        assert complete(base, read_prefix(base, second[:-2]))[1] == known_of_beginning
    base.prefixes.clear()
    anew, unknown = complete(base, read_prefix(base, second))
    assert (known >= len(base.loaded.tokenizer.encode(TEXT * 9)) - 1, known_again, unknown) == (True, len(second), 0)
    assert same is kept
    assert torch.allclose(kept.next_logs, anew.next_logs, atol=1e-5)
    for pair, other in zip(kept.keys_values, anew.keys_values, strict=True):
        assert all(torch.allclose(one, two, atol=1e-5) for one, two in zip(pair, other, strict=True))
    scored = record_calls(branches, "log_probs")
    ((first_log,),) = complete(base, score(base, kept, [[7]]))
    assert first_log == kept.next_logs[7] and not scored, "what follows a prefix was computed when it was read"


def test_the_beginning_that_is_read_stands_still_while_somebody_types() -> None:
    text = "".join(f"line_{number} = {number}\n" for number in range(900))
    typed = [text + "x" * size for size in range(READ_CHARACTERS // READ_SHARE)]
    assert len({len(each) - len(take_stable_end(each)) for each in typed}) <= 8
    window = [each[-9000:] for each in typed]  # whose own beginning moves with the cursor
    assert len({each[len(each) - len(take_stable_end(each)) :][:40] for each in window}) <= 8
    cut = take_stable_end(text)
    assert text.endswith(cut) and cut.startswith("line_")
    assert READ_CHARACTERS - READ_CHARACTERS // READ_SHARE <= len(cut) <= READ_CHARACTERS
    assert take_stable_end(TEXT) == TEXT
    assert take_stable_end("0" * 9999) and len(take_stable_end("0" * 9999)) <= READ_CHARACTERS


def test_of_the_text_behind_whole_lines_are_read_but_for_those_that_judge() -> None:
    lines = [f"after_{number} = {number}\n" for number in range(200)]
    part = lay_ahead("\n" + "".join(lines))
    assert part.endswith("\n\n\n") and set(part.splitlines()) <= {*map(str.strip, lines), ""}
    assert not {"after_0 = 0", "after_1 = 1"} & set(part.splitlines())
    starts = {lay_ahead("\n" + "".join(lines[number:]))[:20] for number in range(20)}
    assert len(starts) <= 6
    assert lay_ahead("") == lay_ahead("\n") == lay_ahead("\nx = 1\n") == ""


def test_of_a_long_next_line_the_beginning_judges() -> None:
    lines = "".join(f"after_{number} = {number}\n" for number in range(40))
    for size in (100, 119, 125, 400):
        following = find_following(f"\n    {'x' * size}\n{lines}")
        assert following.startswith("\n    xxx") and len(following) <= 2 * FOLLOWING_CHARACTERS
        assert "after_39 = 39" in lay_ahead(f"\n    {'x' * size}\n{lines}")


@pytest.mark.parametrize("text", ["", "x", "x =", "    ", "a = 'ü", "def f():\n        ", "x" * 9000])
def test_a_prompt_is_the_whole_end_of_the_text_up_to_its_limit(base: Runtime, text: str) -> None:
    prompt = lay_prompt(base, text)
    pieces = [base.vocabulary.pieces[token] for token in prompt.ids if token not in base.tokens.special_ids]
    read = b"".join(pieces) + prompt.pending
    assert prompt.ids and len(prompt.ids) <= MAX_BEFORE and not prompt.has_suffix
    assert text.encode().endswith(read) and (len(text) > MAX_BEFORE or read == text.encode())


def test_a_word_that_the_edge_cuts_is_left_to_the_fill(base: Runtime) -> None:
    edges = [lay_prompt(base, f"value = items.{word}") for word in ("c", "cou", "count_o", "count_of")]
    assert len({edge.ids for edge in edges}) == 1, "typing a word needs no new prompt"
    assert [edge.pending for edge in edges] == [b"c", b"cou", b"count_o", b"count_of"]
    assert len(lay_prompt(base, "x" * 9000).pending) < 2 * WORD_BYTES


@pytest.mark.parametrize("word", ["größe_x", "имя", "数え", "é"])
def test_a_word_of_any_script_is_left_to_the_fill(base: Runtime, word: str) -> None:
    edges = [lay_prompt(base, f"value = items.{word[:size]}") for size in range(1, len(word) + 1)]
    assert len({edge.ids for edge in edges}) == 1
    assert [edge.pending.decode() for edge in edges] == [word[:size] for size in range(1, len(word) + 1)]
    assert lay_prompt(base, f"# {word}。").pending.decode().endswith("。")
    assert lay_prompt(base, "数" * 9000).pending.decode().strip("数") == ""


def test_a_word_that_is_begun_costs_a_fill_no_likelihood(base: Runtime) -> None:
    filler = Filler(base, Stretch("value = co", "\n", single=True))
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    drafts, begun_nats = complete(base, filler.draft_lines(prefix))

    def chance(before: tuple[int, ...], letters: bytes) -> float:
        logs = read_whole(base, list(before))[-1]
        shorter = [token for token, piece in enumerate(base.vocabulary.pieces) if piece == letters[:1] != letters]
        longer = base.vocabulary.beginning(letters)
        rest = sum(float(logs[token].exp()) * chance((*before, token), letters[1:]) for token in shorter)
        return float(logs[longer].exp().sum()) + rest

    assert filler.pending == b"co"
    assert begun_nats == pytest.approx(math.log(chance(filler.prompt.ids, b"co")), abs=1e-4)
    (plain,) = complete(base, Filler(base, filler.stretch).compare([Candidate("py")]))
    found = {each.text: each.nats for each in complete(base, Filler(base, filler.stretch).fill([Candidate("py")]))}
    drafted = {each.text: each.nats for each in drafts if each.text.strip()}
    assert found["py"] == pytest.approx(plain.nats - begun_nats, abs=1e-3)
    shared = found.keys() & drafted.keys()
    assert shared and all(found[text] == pytest.approx(drafted[text] - begun_nats, abs=1e-3) for text in shared)


@pytest.mark.parametrize("indent", [None, ""])
@pytest.mark.parametrize("kind", ["names", "unused"])
def test_drafts_have_the_names_and_stay_as_likely(
    base: Runtime, kind: Literal["names", "unused"], indent: str | None
) -> None:
    segments = TextSegment(text="x = 0\ny = "), TextSegment(text="\nprint(total)\n")
    plain, named = HoleSpec(indent=indent), HoleSpec.model_validate({"indent": indent, kind: ["total"]})
    known, texts = (
        {
            each.text: each
            for each in answer_of(base, ask(segments[0], HoleSegment(hole=hole), segments[1])).candidates[0]
        }
        for hole in (plain, named)
    )
    assert any("total" in text for text in texts) and not any("total" in text for text in known)
    for text in known.keys() & texts.keys():
        assert texts[text].log_likelihood == pytest.approx(known[text].log_likelihood, abs=1e-4)


@pytest.mark.parametrize("before", ["x = 0\n", "x = 0\ny = ", "x = 0\ny = to"])
def test_a_line_with_a_name_is_as_likely_as_if_it_were_given(
    base: Runtime, before: str, record_calls: Callable[..., list[Any]]
) -> None:
    candidates = record_calls(Filler, "to_candidate")
    filler = Filler(base, Stretch(before, "\n", single=True), names=["total"], unused=["key"])
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    drafted, _ = complete(base, filler.draft_lines(prefix))
    kinds = {(each.names > 0, each.used > 0) for each in filler.count_names(drafted)}
    assert kinds == {(False, False), (True, False), (False, True), (True, True)}
    exact = complete(base, score(base, prefix, [path.ids for _, path in candidates], filler.ends))
    for (_, path), logs in zip(candidates, exact, strict=True):
        assert path.logs == pytest.approx(logs, abs=1e-3)


def test_drafts_with_names_keep_to_the_bounds(base: Runtime) -> None:
    segments = TextSegment(text="x = 0\n"), TextSegment(text="\nprint($total)\n")
    encode, given = base.loaded.tokenizer.encode, {"names": ["$total"], "unused": ["a" * 12]}
    for limits in ({"forbid": ["\n", "o"]}, {"forbid": ["\n", "="]}, {"max_tokens": 9, "indent": ""}):
        answer = answer_of(base, ask(segments[0], HoleSegment(hole=HoleSpec(**limits, **given)), segments[1]))
        texts = [each.text for each in answer.candidates[0]]
        assert not any(part in text for text in texts for part in limits.get("forbid", ()))
        assert all(len(encode(text)) <= limits.get("max_tokens", len(encode(text))) for text in texts)
    filler = Filler(base, Stretch("x = 0\n", "\n", single=True), names=["$total"])
    assert [each.names for each in filler.count_names([Candidate("$total = 1"), Candidate("total = 1")])] == [1, 0]


def test_a_line_that_the_last_lines_alone_make_likely_weighs_less(base: Runtime) -> None:
    weights = shipped_weights("inside")
    one, other = weights.score([Candidate("x = 1", -2.0, near=-9.0), Candidate("y = 1", -2.0, near=-2.0)])
    assert one - other == pytest.approx(7 * weights.common) and weights.common > 0
    filler = Filler(base, Stretch("a = 0\n" * 40 + "b = a\nc = b\nd =", " + c\n", single=True))
    texts = [Candidate(" 1"), Candidate(" 1 + a"), Candidate(" None")]
    found = complete(base, filler._weigh_near(texts))
    special, encode = base.tokens.special_ids[0], base.loaded.tokenizer.encode
    for text, each in zip(texts, found, strict=True):
        ids = [special, *encode(f"b = a\nc = b\nd ={text.text}")]
        logs = read_whole(base, ids)
        total = logs[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].sum() + logs[-1][filler.ends].logsumexp(dim=0)
        assert each.near == pytest.approx(float(total), abs=1e-3)


def test_a_name_that_is_needed_or_unused_is_weighed() -> None:
    weights = shipped_weights("line")
    used, none = weights.score([Candidate("x = 1", -20.0, used=2), Candidate("y = 1", -20.0)])
    assert used - none == pytest.approx(2 * weights.used) and weights.used > 0
    named, plain = Candidate("x = 1", -20.0, names=2), Candidate("y = 1", -20.0)
    one, other = weights.score([named, plain])
    assert one - other == pytest.approx(2 * weights.named) and weights.named > 0
    chances = [weights.rank([each])[0].chance or 0.0 for each in (named, plain)]
    assert chances[0] > chances[1]
    assert weights.rank([replace(named, nats=0.0)])[0].chance == weights.rank([replace(plain, nats=0.0)])[0].chance
    assert shipped_weights("body").named == 0


def test_excerpts_stand_between_the_text_behind_and_the_text_before(
    base: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midfill_engine.causal.prompt.MAX_BEFORE", 9999)  # the tiny vocabulary has hardly any words
    after = "\n" + "".join(f"after_{number} = {number}\n" for number in range(200))
    before = "".join(f"line_{number} = {number}\n" for number in range(400))
    for size in (1, 90, 400):
        excerpts = ["first = 1\n" * size, "\nsecond = 2"]
        ids = lay_prompt(base, before, after, excerpts).ids
        read = b"".join(base.vocabulary.pieces[each] for each in ids if each not in base.tokens.special_ids).decode()
        behind, *found, near = read.split("\n\n\n")
        assert behind.startswith("after_") and found == [each.strip() for each in excerpts]
        room = min(sum(map(len, found)) + 6, MAX_GIVEN_UP)
        most = READ_CHARACTERS - room
        assert before[:-1].endswith(near) and most * 2 // 3 - 20 <= len(near) <= most
        assert AHEAD_CHARACTERS - room // 4 - 20 <= len(behind) <= AHEAD_CHARACTERS - room // 4
    whole = lay_prompt(base, before, after, ["first = 1"], is_body=True)
    assert whole.ids == lay_prompt(base, f"first = 1\n\n\n{take_stable_end(before)}", after).ids, (
        "a block keeps near text"
    )


def test_excerpts_of_a_request_reach_the_prompt_and_are_bounded(base: Runtime) -> None:
    segments = TextSegment(text=TEXT), HoleSegment(hole=HoleSpec(max_tokens=4)), TextSegment(text="\n")
    plain, shown = (answer_of(base, ask(*segments, excerpts=excerpts)) for excerpts in ([], ["unseen = other(7)\n"]))
    assert [each.log_likelihood for each in plain.candidates[0]] != [
        each.log_likelihood for each in shown.candidates[0]
    ]
    with pytest.raises(ValidationError):
        ask(*segments, excerpts=["x"] * (MAX_EXCERPTS + 1))
    with pytest.raises(ValidationError):
        ask(*segments, excerpts=["x" * (MAX_EXCERPT_CHARACTERS + 1)])


FIM_TOKENS = {
    "qwen": ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    "starcoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "deepseek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    "seed": ("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"),
}


@pytest.mark.parametrize("kind", list(FIM_TOKENS))
def test_a_model_with_fill_in_the_middle_tokens_sees_both_sides(kind: str, tmp_path: Path) -> None:
    family = FAMILIES.find("causal")
    tiny.make_random(tmp_path / "fim", family, added_tokens=(*tiny.added_tokens_of(family.name), *FIM_TOKENS[kind]))
    model = load_runtime(str(tmp_path / "fim"), "cpu", dtype="fp32")
    encode, markers = model.loaded.tokenizer.encode, model.tokens.markers
    assert markers is not None and markers.suffix_first == (kind == "seed")
    prompt = lay_prompt(model, "x = ", "\nprint(x)\n")
    assert prompt.has_suffix and prompt.ids == tuple(markers.lay(encode("x = "), encode("\nprint(x)\n")))
    wide = lay_prompt(model, "x = ", "\n" + "字" * AHEAD_CHARACTERS).ids
    assert len(wide) - len(lay_prompt(model, "x = ").ids) == AHEAD_CHARACTERS, "what a fill claims memory for"
    stretch = Stretch("x = ", "\nprint(x)\n", True, max_tokens=4)
    prefix, _ = complete(model, read_prefix(model, prompt.ids))
    for each in complete(model, Filler(model, stretch).fill([Candidate("total")])):
        assert "\n" not in each.text and each.following == 0
        (logs,) = complete(model, score(model, complete(model, read_prefix(model, prompt.ids))[0], [encode(each.text)]))
        assert each.nats < sum(logs), "its end, too, is likely or not"


@pytest.mark.parametrize("added", [(), FIM_TOKENS["qwen"]], ids=["plain", "fill-in-the-middle"])
def test_no_edge_ends_a_fill_with_an_error(added: tuple[str, ...], tmp_path: Path) -> None:
    family, luck = FAMILIES.find("causal"), random.Random(0)
    tiny.make_random(tmp_path / "model", family, added_tokens=(*tiny.added_tokens_of(family.name), *added))
    model = load_runtime(str(tmp_path / "model"), "cpu", dtype="fp32")
    for seed in range(100):
        given = luck.choice([[], [GivenText(text="")], [GivenText(text="q\n", certainty=0.5)]])
        indent, forbid = luck.choice([None, "", "    "]), luck.choice([[], ["\n"], ["a"]])
        hole = HoleSpec(max_tokens=luck.choice([1, 2, 5]), indent=indent, forbid=forbid, candidates=given)
        before = luck.choice(["", "\n", "x", "def f():\n    ", "é", "x = ", "\t", "a\n\n", "    ", "日本"])
        after = luck.choice(["", "\n", "\nx\n", "y", ")\n", "    z\n", "é"])
        options = {
            "n": luck.choice([1, 4]),
            "temperature": luck.choice([0.0, 1.0]),
            "drafts": not given or seed % 2 == 0,
        }
        request = ask(TextSegment(text=before), HoleSegment(hole=hole), TextSegment(text=after), seed=seed, **options)
        (filled,) = answer_of(model, request).holes
        assert not any(part in filled.text for part in forbid)


def write(stretch: Stretch, first: str, *pieces: str) -> GrowingText:
    growing_text = GrowingText(stretch, first)
    for piece in pieces:
        if growing_text.is_open:
            growing_text.write(piece.encode())
    return growing_text


def test_a_block_ends_where_its_lines_leave_it() -> None:
    stretch = Stretch("def f():\n    ", "\n\ndef g():\n    pass\n", False, indent="    ")
    growing_text = write(stretch, "if x:", "\n       ", " y", "\n   ", " return", "\n\n", "def", " g")
    assert stretch.is_body and not growing_text.is_open and growing_text.is_whole
    assert growing_text.endings() == ["if x:\n        y\n    return"]


def test_the_lines_of_the_text_after_are_found_once_for_all_tokens() -> None:
    stretch = Stretch("", "\n\nprint(1)\n" * 9, single=False, indent="    ")
    assert stretch.is_body and stretch.next_line == "print(1)" and stretch.next_line is stretch.next_line


def test_a_block_ends_where_it_goes_round_in_circles_and_keeps_what_is_new() -> None:
    stretch = Stretch("def f():\n    ", "\n", False, indent="    ")
    growing_text = write(stretch, "a = 1", *["\n    go(on)"] * 9, "\n")
    assert not growing_text.is_open and not growing_text.is_whole
    assert growing_text.endings() == ["a = 1\n    go(on)"]
    assert not write(stretch, "a = [", *["(1, 2, 3, 4, 5, 6, 7, 8), "] * 9).is_open


def test_a_text_within_a_block_may_end_after_any_line_and_does_where_it_meets_what_follows() -> None:
    stretch = Stretch("def f():\n    ", "\n    return x\n", False, indent="    ")
    growing_text = write(stretch, "x = 1", "\n    x += 1", "\n    return x", "\n", "    more")
    assert not stretch.is_body and not growing_text.is_open
    assert growing_text.endings() == ["x = 1", "x = 1\n    x += 1"]


def test_a_text_inside_of_lines_ends_where_it_meets_the_rest_of_a_line() -> None:
    stretch = Stretch("x = [", "item) for item in items]\ny = 2\n", False, indent="")
    growing_text = write(stretch, "f(1),", "\n", "     g(", "it", "em) for", " item in", " items]", "\nno")
    assert stretch.is_inside and growing_text.is_met and not growing_text.is_open
    assert growing_text.endings() == ["f(1),\n     g("]
    assert write(stretch, "f(1),", "\n", "     g(").endings() == [], "nothing else fits"
    at_line_end = write(replace(stretch, after="\ny = 2\n"), "1,", "\n  2]", "\ny", " = 2", "\n")
    assert at_line_end.endings() == ["1,", "1,\n  2]"]


def test_several_lines_are_drafted_where_a_stretch_may_hold_them(base: Runtime) -> None:
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n    return items\n", False, indent="    ")
    filler = Filler(base, stretch)
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    written = complete(base, filler.draft_through(prefix))
    assert len({each.text for each in written}) == len(written) <= MAX_THROUGH
    assert all("\n" in each.text for each in written)
    judged = complete(base, Filler(base, stretch).fill([]))
    assert {each.text for each in written} <= {each.text for each in judged}, "long ones are compared, too"


def test_drawn_texts_differ_by_seed_and_are_those_of_their_seed(base: Runtime) -> None:
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\nprint(1)\n", False, max_tokens=12, indent="    ")

    def draw(seed: int) -> list[str]:
        drawing = Drawing(4, 1.0, 0.95, torch.Generator().manual_seed(seed))
        return [each.text for each in complete(base, Filler(base, stretch, drawing).fill([]))]

    assert draw(1) == draw(1) != draw(2)
    assert len(set(draw(1))) == len(draw(1)) <= 4
    line = Stretch(TEXT + "x = ", "\n", True, max_tokens=8)
    drawn = complete(base, Filler(base, line, Drawing(4, 1.0, 1.0, torch.Generator().manual_seed(3))).fill([]))
    assert drawn and not any("\n" in each.text for each in drawn)


def test_a_body_has_no_more_tokens_than_it_may_with_its_first_line(base: Runtime) -> None:
    first = "return items"
    num_first = len(base.loaded.tokenizer.encode(first))
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\nprint(1)\n", False, max_tokens=20, indent="    ")
    filler = Filler(base, stretch)
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    beam = Beam(base, prefix)
    (begun,), scores = complete(base, beam.open([tuple(base.loaded.tokenizer.encode(first))]))

    def choose(path: Written, logs: torch.Tensor) -> int:
        return base.loaded.tokenizer.encode("\n    abcdefghijklmnopqrstuvwxyz")[len(path.ids) - num_first]

    filler.pending = b""
    ((path, _),) = complete(base, filler.write(beam, [(begun, GrowingText(stretch, first))], [scores], choose, 24))
    assert filler.count_own(path) == 20


def test_the_tokens_of_a_begun_word_are_not_those_of_its_line(base: Runtime) -> None:
    stretch = Stretch("x = configuration_na", "\nprint(1)\n", True, max_tokens=3)
    filler = Filler(base, stretch)
    whole = base.loaded.tokenizer.encode("na")
    filler.pending = b"n"
    assert filler.count_behind(Written()) == filler.count_behind(Written(tuple(whole[:1]))) == 0
    assert filler.count_behind(Written(tuple(whole))) == 1
    found = complete(base, Filler(base, stretch).fill([]))
    lengths = {len(base.loaded.tokenizer.encode(each.text)) for each in found}
    assert max(lengths) <= 3 and complete(base, Filler(base, replace(stretch, max_tokens=1)).fill([]))


def test_nothing_is_drawn_where_nothing_may_come() -> None:
    assert Drawing(1, 1.0).choose(torch.full((5,), -torch.inf)) in range(5)


@pytest.mark.parametrize("kind", ["line", "short", "body"])
def test_the_text_behind_and_the_file_rank_lines_of_like_probability(
    kind: Literal["line", "short", "body"],
) -> None:
    weights = shipped_weights(kind)
    logs = (("", -1.0),) * 4
    plain, fitting = Candidate("a", -4.0, -9.0, logs=logs), Candidate("b", -5.0, -6.0, logs=logs)
    own = Candidate("c", -5.0, -9.0, certainty=0.4, logs=logs)
    assert [each.text for each in weights.rank([plain, fitting])] == ["b", "a"]
    assert [each.text for each in weights.rank([plain, own])] == ["c", "a"]
    assert all(each.chance and 0 < each.chance < 1 for each in weights.rank([plain, fitting]))


def test_a_line_is_surer_where_the_next_best_is_far_behind() -> None:
    weights = shipped_weights("line")
    plain, fitting = Candidate("a", nats=-4.0, following=-9.0), Candidate("b", nats=-5.0, following=-6.0)
    first, second = weights.rank([plain, fitting])
    (alone,) = weights.rank([fitting])
    assert first.chance and second.chance and alone.chance
    assert second.chance < first.chance < alone.chance


def test_inside_a_line_the_model_ranks_and_the_file_adds_to_the_certainty() -> None:
    weights = shipped_weights("inside")
    plain, fitting = Candidate("a", nats=-4.0, following=-9.0), Candidate("b", nats=-5.0, following=-6.0)
    ranked = SHIPPED.rank([plain, fitting], "inside")
    assert [each.text for each in ranked] == ["b", "a"] and ranked == weights.rank([plain, fitting])
    (own,) = weights.rank([replace(plain, certainty=0.5)])
    (other,) = weights.rank([plain])
    assert own.chance and other.chance and own.chance > other.chance


def test_of_bodies_as_likely_the_one_that_is_like_the_others_is_first() -> None:
    texts = ["return self.total", "return self.count", "raise ValueError(name)", "return self.size"]
    bodies = [Candidate(text, -9.0, -9.0, logs=(("", -3.0),) * 3) for text in texts]
    ranked = [each.text for each in shipped_weights("body").rank(bodies)]
    assert ranked[-1] == "raise ValueError(name)"
    assert [each.text for each in shipped_weights("line").rank(bodies)] == texts


def test_a_likely_short_body_is_chosen_for_itself_and_a_longer_one_for_what_others_agree_with() -> None:
    texts = ["raise ValueError(name)\npass", "items = self.load()\nreturn items", "items = self.read()\nreturn items"]
    long = [Candidate(text, -30.0 - place, -9.0, logs=(("", -3.0),) * 9) for place, text in enumerate(texts)]
    line = Candidate("return self.items", -1.0, -9.0, logs=(("", -0.2),) * 5)
    assert SHIPPED.rank([*long, line], "body")[0].text == line.text
    assert SHIPPED.rank(long, "body")[-1].text == texts[0], "the likeliest, which none agrees with"
    assert SHIPPED.rank([], "body") == []


def test_neither_the_order_of_given_texts_nor_company_changes_what_is_ranked(
    base: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fills whose passes run together, packed into the same forwards, end as each alone."""
    monkeypatch.setattr("midfill_engine.causal.filler.LEAST_LIKELY", -math.inf)  # to the base they all are unlikely
    texts = ["result = 0", "return items", "for item in items:", "raise ValueError"]
    given = [GivenText(text=text, certainty=0.1 * place) for place, text in enumerate(texts)]
    before, after = TextSegment(text=TEXT + "def other(items):\n    "), TextSegment(text="\n\n\nprint(other([1]))\n")

    def fill(candidates: Sequence[GivenText], **limits: object) -> Fill:
        hole = HoleSegment(hole=HoleSpec(candidates=list(candidates), max_tokens=24, **limits))  # type: ignore[arg-type]
        return fill_causally(base, ask(before, hole, after, n=3))

    line, body = {"forbid": ["\n"]}, {"indent": "    "}
    alone = [list_ranked(run_together(base, [fill(given, **each)])[0]) for each in (line, body)]
    turned = [list_ranked(run_together(base, [fill(given[::-1], **each)])[0]) for each in (line, body)]
    joint = run_together(base, [fill(given, **body), fill(given[::-1], **line), fill(given[1:], **line)])
    assert alone == turned == [list_ranked(joint[1]), list_ranked(joint[0])]
    assert all(len(each) > len(texts) for each in alone)


def test_candidates_far_behind_rank_last_without_being_read(
    base: Runtime, monkeypatch: pytest.MonkeyPatch, record_calls: Callable[..., list[Any]]
) -> None:
    """They count as if the text after were least likely after them, so others are as sure as before."""
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\n\nprint(other([1]))\n", single=True)
    drafts = [Candidate(text, -nats, logs=(("", -nats),)) for nats, text in enumerate(("a", "b", "c", "d", "e", "f"))]

    def judge(most: float) -> tuple[list[Candidate], int]:
        monkeypatch.setattr("midfill_engine.causal.filler.MAX_BEHIND", most)
        one = Filler(base, stretch)
        prefix, _ = complete(base, read_prefix(base, one.prompt.ids))
        given = [Candidate("sure", -90.0, certainty=0.01, logs=(("", -90.0),))]
        runs = record_calls(Runtime, "run")
        judged = complete(base, one.judge_all(prefix, drafts, given))
        monkeypatch.undo()
        return judged, sum(len(passes[0].ids) for _, passes in runs)

    (every, most), (few, least) = judge(math.inf), judge(2.5)
    assert {each.text for each in every} == {each.text for each in few} == {"a", "b", "c", "d", "sure"}
    assert least < most
    of_every, of_few = ({each.text: each.following for each in judged} for judged in (every, few))
    near = ("a", "b", "c", "sure")
    assert of_few["d"] == min(of_few[text] for text in near)
    assert [of_few[text] for text in near] == pytest.approx([of_every[text] for text in near], abs=1e-3)


@pytest.mark.parametrize(("names", "sharp"), [((), 9), (("total_of_items",), 1)])
def test_guessed_tokens_that_are_nearly_certain_are_read_along(
    names: Sequence[str], sharp: int, base: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likeliest drafts are at least as likely as those of a search without guesses, in fewer passes."""
    monkeypatch.setattr(branches, "log_probs", lambda *asked: (sharp * log_probs(*asked)).log_softmax(dim=-1))
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\n\nprint(other([1]))\n", single=True)

    def draft(known: Sequence[tuple[int, ...]], most: int) -> tuple[list[Candidate], int, list[tuple[int, ...]]]:
        ended: list[tuple[int, ...]] = []

        class Guessing(Filler):
            def guess(self, paths: Sequence[Written], *_: object, **__: object) -> list[tuple[int, ...]]:
                ended.extend(path.ids for path in paths)
                found = ([ids[len(path.ids) :] for ids in known if ids[: len(path.ids)] == path.ids] for path in paths)
                return [next(iter(each), ())[:3] for each in found]

        monkeypatch.setattr("midfill_engine.causal.lines.MAX_READ_ALONG", most)
        monkeypatch.setattr("midfill_engine.causal.lines.NEARLY_CERTAIN", -0.2)
        filler = Guessing(base, stretch, names=names)
        prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
        forwards = ForwardCounter()
        drafts, _ = complete(base, forwards.run(filler.draft_lines(prefix)))
        return drafts, forwards.count, sorted(ended, key=len, reverse=True)

    plain, most, ended = draft([], 0)
    found, least, _ = draft(ended, 2)
    assert least < most
    for name in ("", *names):
        first, second = (
            max((each for each in drafts if name in each.text), key=lambda each: each.nats) for drafts in (found, plain)
        )
        assert first.nats > second.nats - 1e-2 and (names or first.text == second.text)


def list_ranked(answer: InfillResponse) -> list[tuple[str, float]]:
    return [(each.text, round(each.log_likelihood or 0.0, 3)) for each in answer.candidates[0]]


def test_a_line_is_one_line_and_alternatives_differ(base: Runtime) -> None:
    spec = HoleSpec(forbid=["\n"], max_tokens=6)
    request = ask(TextSegment(text=TEXT + "x = "), HoleSegment(hole=spec), TextSegment(text="\nprint(x)\n"), n=3)
    answer = answer_of(base, request)
    fills = [answer.holes, *answer.alternatives]
    texts = [holes[0].text for holes in fills]
    assert len(set(texts)) == len(texts) and all("\n" not in text for text in texts)
    for (hole,) in fills:
        assert hole.certainty is None, "nobody fitted how often this model is right"
        assert len(hole.tokens) == len(hole.confidence) and all(0 <= each <= 1 for each in hole.confidence)


@pytest.mark.parametrize("drafts", [True, False])
def test_a_hole_of_whole_lines_ends_with_a_line_break(base: Runtime, drafts: bool) -> None:
    """A text that is given with it and without is one candidate, as certain as the surer of both."""
    given = [GivenText(text="    first = 1\n", certainty=0.99), GivenText(text="    first = 1", certainty=0.1)]
    hole = HoleSpec(max_tokens=32, candidates=given)
    segments = TextSegment(text="def f():\n"), HoleSegment(hole=hole), TextSegment(text="    return first\n")
    answer = answer_of(base, ask(*segments, n=3, drafts=drafts))
    texts = [holes[0].text for holes in (answer.holes, *answer.alternatives)]
    assert all(text.endswith("\n") and text.count("\n") == 1 for text in texts)
    assert [each.proposed for each in answer.candidates[0] if each.text == "    first = 1\n"] == [0.99]


def test_a_line_may_begin_with_the_token_that_joins_its_indent_to_the_break_before(base: Runtime) -> None:
    filler = Filler(base, Stretch(TEXT, "\n", True))
    pieces = [
        piece
        for piece, is_allowed in zip(base.vocabulary.pieces, filler.edge.allowed(b"\n", False), strict=True)
        if is_allowed
    ]
    assert all(piece.startswith(b"\n") and b"\n" not in piece[1:] for piece in pieces)
    joint = [piece for piece in base.vocabulary.pieces if piece.startswith(b"\n ") and b"\n" not in piece[1:]]
    assert set(joint) <= set(pieces)


def test_the_memory_of_a_fill_counts_excerpts_up_to_what_is_read(base: Runtime) -> None:
    def claim(text: str, excerpts: list[str]) -> int:
        fill = fill_causally(base, ask(TextSegment(text=text), HoleSegment(hole=HoleSpec()), excerpts=excerpts))
        claimed = fill.send(None)
        fill.close()
        assert isinstance(claimed, Claim)
        return claimed.num_bytes

    assert claim("x = ", []) < claim("x = ", ["other = 7\n" * 20]) < claim("x = 1\n" * 4000, [])
    assert claim("x = ", ["a" * 40]) < claim("x = ", ["字" * 40]), "a character may be several tokens"
    assert claim("x = 1\n" * 4000, ["other = 7\n" * 190]) == claim("x = 1\n" * 4000, ["other = 7\n" * 190] * 2)


def test_a_sampler_is_refused_with_a_sentence(base: Runtime) -> None:
    request = ask(TextSegment(text="x = "), HoleSegment(hole=HoleSpec()), sampler="topk")
    with pytest.raises(RequestError, match="reads from the left"):
        answer_of(base, request)


def test_the_same_request_gives_the_same_fill_and_a_seed_draws(base: Runtime) -> None:
    spec = HoleSpec(forbid=["\n"], max_tokens=5)
    segments = (TextSegment(text=TEXT), HoleSegment(hole=spec), TextSegment(text="\n"))
    same = [answer_of(base, ask(*segments, seed=seed)).holes[0].text for seed in (0, 0)]
    assert len(set(same)) == 1
    drawn = {answer_of(base, ask(*segments, seed=seed, temperature=2.0)).holes[0].text for seed in range(8)}
    assert len(drawn) > 1


@pytest.mark.parametrize(("forbid", "between", "num_holes"), [(["\n"], "\n", 2), (["\n"], "\n", 3), ([], "y = [\n", 2)])
def test_a_hole_is_judged_by_what_fills_the_next_one(
    base: Runtime, forbid: list[str], between: str, num_holes: int
) -> None:
    hole, known = HoleSegment(hole=HoleSpec(forbid=forbid, max_tokens=5)), TextSegment(text=between)
    answer = answer_of(base, ask(TextSegment(text=TEXT), *[hole, known] * num_holes, TextSegment(text="return x\n")))
    first, *others = (each.text for each in answer.holes)
    line_end = "" if forbid else "\n"
    assert first.endswith(line_end)
    behind = line_end + between + between.join([*others, "return x\n"])
    stretch = Stretch(TEXT, behind, True, tuple(forbid), behind=line_end + between)
    (alone,) = complete(base, Filler(base, stretch).compare([Candidate(first.removesuffix(line_end))]))
    assert find_following(behind) != find_following(between)
    assert answer.candidates[0][0].text == first
    assert answer.candidates[0][0].following == pytest.approx(alone.following, abs=1e-4)


def test_holes_apart_are_judged_once(
    base: Runtime, monkeypatch: pytest.MonkeyPatch, record_calls: Callable[..., list[Any]]
) -> None:
    """The draft of each is split once, however many events show it."""
    monkeypatch.delattr(Filler, "compare")
    splits = record_calls(split, "keep_breaks")
    hole = HoleSegment(hole=HoleSpec(forbid=["\n"], max_tokens=5))
    apart = TextSegment(text=TEXT), hole, TextSegment(text="\na = 1\nb = 2\nc = 3\n"), hole, TextSegment(text="\n")
    assert len(answer_of(base, ask(*apart)).holes) == len(splits) == 2


def cut_gguf(whole: Path, cut: Path, num_blocks: int) -> None:
    """Writes the first blocks of a base and its head, without its tokenizer."""
    gguf = pytest.importorskip("gguf")
    reader = make_reader(gguf.GGUFReader)(whole)
    writer = gguf.GGUFWriter(cut, "llama")
    for name, value in reader.fields.items():
        if name.startswith("llama."):
            kept = num_blocks if name == "llama.block_count" else value.contents()
            writer.add_key_value(name, kept, value.types[0])
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) < num_blocks:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("num_blocks", [4, pytest.param(30, marks=pytest.mark.soak)])
def test_the_base_computes_what_transformers_computes(
    num_blocks: int, weights: Path, pretrained: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first blocks and its head: all blocks take transformers most of a minute to read."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    cut_gguf(weights, tmp_path / "cut.gguf", num_blocks)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="cut.gguf", dtype=torch.float32)
    transformer = pretrained.loaded.model.transformer
    assert theirs.config.num_hidden_layers == num_blocks and len(transformer.blocks) == 30
    monkeypatch.setitem(transformer._modules, "blocks", transformer.blocks[:num_blocks])
    ids = pretrained.loaded.tokenizer.encode(TEXT)
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].log_softmax(dim=-1)
    found = read_whole(pretrained, ids)
    assert torch.equal(found.argmax(dim=-1), expected.argmax(dim=-1))
    assert torch.allclose(found, expected, atol=2e-3)


def test_the_base_fills_what_only_a_language_model_can(pretrained: Runtime) -> None:
    before = 'def add(first, second):\n    """The sum of both."""\n    '
    stretch = Stretch(before, "\n\n\ndef subtract(first, second):\n    return first - second\n", True)
    best, *_ = complete(pretrained, Filler(pretrained, stretch).fill([Candidate("pass", certainty=0.01)]))
    assert best.text == "return first + second"
    others = complete(pretrained, Filler(pretrained, stretch, Drawing(8)).fill([]))
    assert len({each.text for each in others}) == len(others) >= 8
    whole = TextSegment(text=before[:-4]), HoleSegment(hole=HoleSpec()), TextSegment(text="x = add(1, 2)\n")
    assert answer_of(pretrained, ask(*whole)).holes[0].text == "    return first + second\n"


def test_a_draft_without_a_token_of_its_own_is_dropped(base: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the first token of a draft is the pending line break and the one behind it, and its text is empty."""
    filler = Filler(base, Stretch("def f():\n", "\nx = 1\n", False, indent="    "))
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    ids = tuple(base.loaded.tokenizer.encode(filler.pending.decode() + "z = 1"))
    written = {"": Written(), "z = 1": Written(ids, (-1.0,) * len(ids), tuple(range(len(ids))))}

    async def write(*arguments: Any) -> Any:
        growing_texts = [GrowingText(filler.stretch, text) for text in written]
        for growing_text in growing_texts:
            growing_text.end()
        return list(zip(written.values(), growing_texts, strict=True))

    monkeypatch.setattr(filler, "write", write)
    assert [each.text for each in complete(base, filler.draft_bodies(prefix, list(written)))] == ["z = 1"]


@pytest.mark.parametrize("max_tokens", [256, 31])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_guessed_tokens_save_forwards_and_change_nothing(temperature: float, max_tokens: int, base: Runtime) -> None:
    """Of what is guessed three tokens are right, or fewer."""
    before = TEXT + "def other(items):\n    "
    stretch = Stretch(before, "\n\ndef third(x):\n    return x\n", False, (), max_tokens, indent="    ")
    written: list[tuple[int, ...]] = []

    class Guessless(Filler):
        async def write(self, *arguments: Any, **options: Any) -> Any:
            rows = await super().write(*arguments, **options)
            written.extend(path.ids for path, _ in rows)
            return rows

        def guess(self, paths: Sequence[Written], *_: object, **__: object) -> list[tuple[int, ...]]:
            return [()] * len(paths)

    class Guessing(Filler):
        def guess(self, paths: Sequence[Written], *_: object, **__: object) -> list[tuple[int, ...]]:
            found = []
            for path in paths:
                size = len(path.ids)
                behind = [*next(ids for ids in written if ids[:size] == path.ids)[size : size + 3]]
                wrong = size % 5  # from 3 on nothing is wrong
                found.append(tuple(token if place < wrong else 1 for place, token in enumerate(behind)))
            return found

    def draft(kind: type[Filler]) -> tuple[list[Candidate], int]:
        filler = kind(base, stretch, Drawing(1, temperature, 1.0, torch.Generator().manual_seed(4)))
        prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
        firsts = ["first = 1", "return items", "for é in items:"]
        drafts = filler.draw(prefix, filler.drawing) if temperature else filler.draft_bodies(prefix, firsts)
        forwards = ForwardCounter()
        return complete(base, forwards.run(drafts)), forwards.count

    plain, num_plain = draft(Guessless)
    found, num_found = draft(Guessing)
    assert [each.text for each in found] == [each.text for each in plain] != []
    for one, other in zip(found, plain, strict=True):
        assert one.following == pytest.approx(other.following, abs=1e-3)
        assert [log for _, log in one.logs] == pytest.approx([log for _, log in other.logs], abs=1e-3)
    assert num_found < 0.7 * num_plain or not temperature  # greedily it writes too little for that


@pytest.mark.parametrize(("drawing", "is_given_up"), [(Drawing(), True), (Drawing(4), False)])
def test_a_body_that_goes_on_where_others_ended_is_given_up(drawing: Drawing, is_given_up: bool, base: Runtime) -> None:
    """All but one leave their indent in a second line; where four are wanted, none is given up."""
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\ndef third(x):\n    return x\n", False, indent="    ")
    filler, encode = Filler(base, stretch, drawing), base.loaded.tokenizer.encode
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    beam, firsts = Beam(base, prefix), ["a = 1", "b = 1", "c = 1", "d = 1"]
    begun = [tuple(encode(filler.pending.decode() + first)) for first in firsts]
    texts = [encode("\n    return 7\nx" + "".join(map(chr, range(97, 107)))) for _ in firsts[:-1]]
    texts.append(encode("\n    " + "".join(f"{number} + " for number in range(90))))
    paths, scores = complete(base, beam.open(begun))

    def choose(path: Written, _: torch.Tensor) -> int:
        row = next(index for index, ids in enumerate(begun) if path.ids[: len(ids)] == ids)
        return texts[row][len(path.ids) - len(begun[row])]

    rows = [(path, GrowingText(stretch, first)) for path, first in zip(paths, firsts, strict=True)]
    written = complete(base, filler.write(beam, rows, list(scores[:, None]), choose, 120))
    *ended, last = [len(path.ids) - len(ids) for (path, _), ids in zip(written, begun, strict=True)]
    assert [growing_text.is_whole for _, growing_text in written] == [True, True, True, False]
    assert last == (int(1.5 * max(ended)) + 1 if is_given_up else 120)


def test_tokens_are_guessed_from_the_prompt_the_ended_paths_and_the_others(base: Runtime) -> None:
    filler = Filler(base, Stretch("one two three", "", False))
    known, own = filler.prompt.ids, (7, 8, 9, 10, 11, 7, 8)
    paths = [Written(each) for each in (known[:2], own, (6, 8), (90, 91))]
    assert filler.guess(paths) == [known[2:6], (9, 10, 11, 7), (9, 10, 11, 7), ()]
    assert filler.guess(paths[3:], [Written((5, 90, 91, 92, 93))]) == [(92, 93)]


@given(st.lists(st.integers(1, 4), max_size=12), st.lists(st.integers(1, 4), max_size=40), st.booleans())
def test_a_guess_follows_the_longest_end_that_is_known(text: list[int], before: list[int], is_sure: bool) -> None:
    """Of several tokens that followed it, the most frequent one, and then the last one of these; a sure guess none."""
    known = [*before, *text]
    for size in range(min(len(text), MAX_MATCHED), is_sure, -1):
        ends = [end for end in range(size, len(known)) if known[end - size : end] == text[-size:]]
        if ends:
            counts = Counter(known[end] for end in ends)
            end = max(ends, key=lambda end: (counts[known[end]], end))
            num_guessed = GUESSED if len(counts) == 1 else GUESSED_OF_SEVERAL * (not is_sure)
            assert guess_next(spell(text), spell(known), is_sure=is_sure) == tuple(known[end : end + num_guessed])
            return
    assert guess_next(spell(text), spell(known), is_sure=is_sure) == ()


def test_bodies_are_shown_while_they_are_written_and_lines_when_they_are_done(base: Runtime) -> None:
    """What is shown is no part of the answer until the last event of its hole, so nothing of it is settled."""
    before, between, after = (
        TEXT + "def other(items):\n    ",
        "\n\ndef third(x):\n    ",
        "\n\nprint(third(other([1])))\n",
    )
    body = HoleSegment(hole=HoleSpec(indent="    ", max_tokens=24))
    line = HoleSegment(hole=HoleSpec(forbid=["\n"], max_tokens=24))
    texts = TextSegment(text=before), TextSegment(text=between), TextSegment(text=after)
    events, answer = run(denoise(base, ask(texts[0], body, texts[1], body, texts[2])))
    for number, done in enumerate(answer.holes):
        shown = [event.holes[number] for event in events]
        written = [hole for hole in shown if hole.masked]
        assert all(not hole.settled for hole in written) and len({hole.text for hole in written}) >= 3
        others = shown[len(written) :]
        assert others and all((hole.text, hole.masked) == (done.text, 0) for hole in others)
    steps = [event.step for event in events]
    assert steps == sorted(steps) and all(event.step <= event.num_steps for event in events)
    events, answer = run(denoise(base, ask(texts[0], line, texts[2])))
    assert [event.holes[0].text for event in events] == ["", answer.holes[0].text]


@pytest.mark.parametrize("count", [2, 3])
def test_a_body_is_the_same_with_two_or_three_alternatives(base: Runtime, count: int) -> None:
    before, after = TextSegment(text=TEXT + "def other(items):\n    "), TextSegment(text="\n\nprint(other([1]))\n")
    given = GivenText(text="return items", certainty=0.5)
    body = HoleSegment(hole=HoleSpec(indent="    ", max_tokens=24, candidates=[given]))
    alone, several = (answer_of(base, ask(before, body, after, n=n)) for n in (1, count))
    assert several.holes[0].text == alone.holes[0].text and len(several.alternatives) == count - 1


def test_given_bodies_that_begin_unlikely_are_not_read_any_further(
    base: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they are certain by their proposer. And no draft begins with their first line."""
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\ndef third(x):\n    return x\n", False, indent="    ")
    texts = ["return items\n    return 1", "qqqq = zzzz\n    return zzzz", "pass"]

    def fill(least: float, certainty: float = 0.1) -> tuple[dict[str, float], list[str]]:
        monkeypatch.setattr("midfill_engine.causal.filler.LEAST_LIKELY", least)
        filler = Filler(base, stretch)
        judged = complete(base, filler.fill([Candidate(text, certainty=certainty) for text in texts]))
        return {each.text: each.nats for each in judged}, [each.text for each in judged if not each.certainty]

    prefix, _ = complete(base, read_prefix(base, (filler := Filler(base, stretch)).prompt.ids))
    heads = [base.loaded.tokenizer.encode(filler.pending.decode() + text)[:HEAD_TOKENS] for text in texts]
    means = [fmean(logs) for logs in complete(base, score(base, prefix, heads))]
    (most, _), (some, drafts), (none, _) = fill(min(means) - 1), fill(sorted(means)[1] - 1e-6), fill(0.0)
    assert set(texts) <= set(fill(0.0, certainty=0.5)[0])
    unlikely = texts[means.index(min(means))]
    assert set(texts) <= set(most) and set(texts) - set(some) == {unlikely} and not set(texts) & set(none)
    assert not any(draft.startswith(unlikely.split("\n")[0]) for draft in drafts)
    for text in set(texts) - {unlikely}:
        assert some[text] == pytest.approx(most[text], abs=1e-3)


@pytest.mark.parametrize("max_rows", [branches.MAX_TREE_ROWS, 8])
def test_a_body_is_as_likely_as_while_it_was_written(
    base: Runtime, max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches, "MAX_TREE_ROWS", max_rows)  # 8: in several groups
    stretch = Stretch(TEXT + "def other(items):\n    ", "\n\ndef third(x):\n    return x\n", False, indent="    ")
    filler = Filler(base, stretch)
    prefix, _ = complete(base, read_prefix(base, filler.prompt.ids))
    drafted = complete(base, filler.draft_bodies(prefix, ["first = 1", "return items", "for é in items:"]))
    assert len(drafted) >= 2 and all(each.logs for each in drafted)
    encode, following = base.loaded.tokenizer.encode, find_following(stretch.after)
    for each in drafted:
        kept = [token for token in encode(filler.pending.decode() + each.text + following)]
        whole = read_whole(base, [*filler.prompt.ids, *kept])[len(filler.prompt.ids) - 1 : -1]
        exact = float(whole[torch.arange(len(kept)), torch.tensor(kept)].sum())
        assert each.nats + each.following == pytest.approx(exact, abs=1e-2), each.text
