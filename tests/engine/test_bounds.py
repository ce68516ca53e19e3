"""What a request bounds: lines, tokens and time, in a causal base; and what a model does not heed, which is refused."""

import math
from collections.abc import Callable
from itertools import count

import pytest
from tests.engine.fakes import CountedFill
from tests.engine.in_process import answer_of
from tests.engine.requests import HEADER, NEXT, TEXT, ask, body, line, selection

from midfill_engine.causal.lines import MAX_LINE_TOKENS
from midfill_engine.errors import RequestError
from midfill_engine.families import FAMILIES
from midfill_engine.loading.runtime import Runtime
from midfill_engine.wire import GivenText, HoleSegment, HoleSpec, InfillRequest, InfillResponse, TextSegment


def count_lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.split("\n"))


def list_texts(answer: InfillResponse) -> list[str]:
    return [fills[0].text for fills in (answer.holes, *answer.alternatives)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("place", [body, selection])
def test_answers_keep_to_the_least_and_the_most_lines(
    base: Runtime, place: Callable[..., InfillRequest], temperature: float
) -> None:
    options = {"n": 3, "temperature": temperature, "seed": 5}
    free = answer_of(base, place(HoleSpec(indent="    "), **options))
    now = count_lines(free.holes[0].text)
    assert now >= 1
    for least in (now + 1, now + 3):
        longer = answer_of(base, place(HoleSpec(indent="    ", min_lines=least), **options))
        assert all(count_lines(text) >= least for text in list_texts(longer))
        for text in list_texts(longer):
            assert all(row.startswith("    ") for row in text.split("\n")[1:] if row.strip()), "it stays in its block"
    shorter = answer_of(base, place(HoleSpec(indent="    ", max_lines=2), **options))
    assert all(1 <= count_lines(text) <= 2 for text in list_texts(shorter))
    assert all(count_lines(each.text) <= 2 for each in shorter.candidates[0])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_within_a_line_tokens_count(base: Runtime, temperature: float) -> None:
    """A token of this base is a byte."""
    options = {"n": 2, "temperature": temperature, "seed": 5}
    now = len(answer_of(base, line(HoleSpec(), **options)).holes[0].text.encode())
    longer = answer_of(base, line(HoleSpec(min_tokens=now + 1), **options))
    assert all(len(text.encode()) > now and "\n" not in text for text in list_texts(longer))
    shorter = answer_of(base, line(HoleSpec(max_tokens=5, max_lines=1), **options))
    assert all(1 <= len(text.encode()) <= 5 for text in list_texts(shorter))


def test_what_is_kept_counts_as_lines(base: Runtime) -> None:
    draft = "    a = 1\n    b = 2\n"
    brackets = list("()[]{}")  # around what is kept they must balance, which random texts do not
    spec = HoleSpec(draft=draft, keep=[(0, 10)], indent="    ", min_lines=3, forbid=brackets)
    (text,) = list_texts(answer_of(base, selection(spec)))
    assert text.startswith("    a = 1\n") and count_lines(text) >= 3
    spec = HoleSpec(draft=draft + "    c = 3\n    d = 4\n", keep=[(0, 10)], indent="    ", max_lines=2)
    (text,) = list_texts(answer_of(base, selection(spec)))
    assert text.startswith("    a = 1\n") and count_lines(text) <= 2
    draft = "    a = 1\n    b = 2\n    c = 3\n"
    middle = HoleSpec(draft=draft, keep=[(14, 20)], indent="    ", min_lines=4, forbid=brackets)
    (text,) = list_texts(answer_of(base, selection(middle)))
    assert "b = 2\n" in text and count_lines(text) >= 4


def test_given_texts_beyond_the_bounds_are_left_out(base: Runtime) -> None:
    given = [GivenText(text=text, certainty=0.9) for text in ("return 1", "x = 1\n    return x")]
    answer = answer_of(base, body(HoleSpec(indent="    ", candidates=given, min_lines=2)))
    assert given[1].text in (texts := [each.text for each in answer.candidates[0]]) and given[0].text not in texts
    answer = answer_of(base, body(HoleSpec(indent="    ", candidates=given, max_lines=1)))
    assert given[0].text in (texts := [each.text for each in answer.candidates[0]]) and given[1].text not in texts


def test_bounds_that_no_text_meets_are_an_error(base: Runtime) -> None:
    with pytest.raises(RequestError, match="no text with so many lines") as caught:
        answer_of(base, line(HoleSpec(min_lines=2)))
    assert "another length" in caught.value.next_step
    with pytest.raises(ValueError, match="min_lines is larger"):
        HoleSpec(min_lines=3, max_lines=2)


@pytest.mark.parametrize("option", [{"steps": 4}, {"quality": 0.5}, {"quality": "authors"}])
def test_a_causal_base_refuses_what_is_for_steps(base: Runtime, option: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=f"does not heed {next(iter(option))}") as caught:
        answer_of(base, line(HoleSpec(), **option))
    assert caught.value.next_step


@pytest.mark.parametrize("name", ["embedded", "dream", "sdar", "causal"])
def test_every_model_says_what_it_heeds(name: str, runtime: Runtime, open_family: Callable[[str], Runtime]) -> None:
    """And refuses the rest."""
    model = runtime if name == "embedded" else open_family(name)
    requests = {
        "min_tokens": line(HoleSpec(min_tokens=2)),
        "lines": body(HoleSpec(indent="    ", min_lines=1)),
        "steps": line(HoleSpec(), steps=3),
        "quality": line(HoleSpec(), quality=0.5),
        "max_ms": line(HoleSpec(), max_ms=10**6),
        "seconds": line(HoleSpec(), line_ms=10**6),
    }
    assert [request.wishes for request in requests.values()] == [[wish] for wish in requests]
    for wish, request in requests.items():
        if wish in model.info.heeds:
            assert answer_of(model, request).holes
        else:
            with pytest.raises(RequestError, match="does not heed"):
                answer_of(model, request)
    assert ("steps" in model.info.heeds) == (name != "causal") and FAMILIES.find(name).heeds == model.info.heeds


def fill_until(base: Runtime, request: InfillRequest, num_passes: int) -> tuple[InfillResponse, int]:
    """The answer if the time is over after so many passes, and the number of passes."""
    counted, looks = CountedFill(), count()
    limited = request.model_copy(update={"max_ms": max(1, num_passes * 1000)})
    answer = counted.run(base, limited, lambda: counted.passes + 0.002 * (next(looks) > 1))
    return answer, counted.passes


def place_of(number: int) -> InfillRequest:
    """A body, a selection or a line; the likeliest fill, or three drawn ones."""
    place, is_drawn = (body, selection, line)[number // 2], number % 2 > 0
    options = {"n": 3, "temperature": 0.8, "seed": 1} if is_drawn else {}
    return place(HoleSpec(indent=None if place is line else "    "), **options)


@pytest.mark.parametrize("num_moments", [6, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("number", range(6))
def test_a_search_ends_with_the_best_so_far_when_its_time_is_over(base: Runtime, number: int, num_moments: int) -> None:
    """Whenever that is; and a text is whole: of a body at least the first line, which goes on to its end."""
    request = place_of(number)
    whole, num_whole = fill_until(base, request, 10**6)
    assert not whole.holes[0].cut and list_texts(whole) == list_texts(answer_of(base, request))
    for num_passes in (*range(0, num_whole, max(3, num_whole // num_moments)), num_whole - 1, num_whole):
        base.prefixes.clear()
        answer, taken = fill_until(base, request, num_passes)
        assert answer.holes[0].text.strip() and taken <= max(num_whole, num_passes + MAX_LINE_TOKENS + 9)
        assert answer.holes[0].cut or num_passes == num_whole
    base.prefixes.clear()
    greedy, num_greedy = fill_until(base, request, 0)
    assert num_greedy <= MAX_LINE_TOKENS + 9 and "\n" not in greedy.holes[0].text.strip()


def test_the_time_ends_the_judging_of_holes_by_each_other(base: Runtime) -> None:
    given = [GivenText(text=text, certainty=0.1) for text in ("result", "items", "other")]
    hole = HoleSegment(hole=HoleSpec(max_tokens=9, candidates=given))
    text = TextSegment(text="\n    y = ")
    request = ask(TextSegment(text=HEADER + "x = "), hole, text, hole, text, hole, text, hole, TextSegment(text=NEXT))
    base.prefixes.clear()
    _, num_whole = fill_until(base, request, 10**6)
    for limit in range(num_whole - 8, num_whole):
        base.prefixes.clear()
        answer, taken = fill_until(base, request, limit)
        assert taken == limit and all(fill.text.strip() for fill in answer.holes)


def test_without_time_the_surest_given_text_is_the_answer(base: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The surest text, without a pass; once texts are read they are weighed."""
    monkeypatch.setattr("midfill_engine.causal.filler.LEAST_LIKELY", -math.inf)  # to the base they all are unlikely
    given = [GivenText(text="return 1", certainty=0.2), GivenText(text="return items", certainty=0.7)]
    request = body(HoleSpec(indent="    ", candidates=given))
    base.prefixes.clear()
    answer, taken = fill_until(base, request, 0)
    assert taken == 0 and answer.holes[0].text == "return items" and answer.holes[0].cut
    assert [each.log_likelihood for each in answer.candidates[0]] == [None, None]
    answer, taken = fill_until(base, request, 3)
    weighed = {each.text: each.log_likelihood for each in answer.candidates[0]}
    assert taken >= 3 and weighed["return 1"] is not None and len(weighed) > 2
    read, _ = fill_until(base, body(HoleSpec(indent="    ")), 10**6)
    assert read.holes[0].text


def test_the_part_of_a_long_context_that_was_read_in_time_is_kept(base: Runtime) -> None:
    given = [GivenText(text="return 1", certainty=0.2)]
    text = TextSegment(text=TEXT * 8 + HEADER)
    request = ask(text, HoleSegment(hole=HoleSpec(indent="    ", candidates=given)), TextSegment(text=NEXT))
    base.prefixes.clear()
    first, taken = fill_until(base, request, 1)
    assert taken == 1 and first.holes[0].text == "return 1"
    _, num_kept = fill_until(base, request, 10**6)
    base.prefixes.clear()
    _, num_anew = fill_until(base, request, 10**6)
    assert num_kept == num_anew - 1
