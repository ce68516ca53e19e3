"""Takes off what models write around code: thinking, end markers, Markdown fences, sentences. Knows no language."""

import re
from collections.abc import Iterator
from typing import Final

from midfill_infill.answers.draft import DraftText, join
from midfill_infill.answers.markers import END_MARKERS, IN_CODE, MARKERS

_THINKING: Final = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>(?:\s*\n|\s*)|$)", re.DOTALL)
_OPEN_THINKING: Final = re.compile(r"\s*<(think|thinking|reasoning)>(?!.*</\1>)", re.DOTALL)
_FENCE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*[\w+#./-]*[ \t]*\n?")
_END: Final = re.compile("|".join(map(re.escape, dict.fromkeys((*END_MARKERS, *(set(MARKERS) - IN_CODE))))))
# A sentence before or after code: it begins with a capital or ends with a colon, and has at least three words.
_SENTENCE: Final = re.compile(r"\s*(?:[A-Z][\w'’]*[,!.]?(?:[ \t]+\S+){2,}[.:!?]?|(?:\S+[ \t]+){2,}\S+:)[ \t]*\n?")

# One that certainly stands before code, while more may come: `ERROR = 5` and `for row in rows:` are code.
_OPENING: Final = re.compile(
    r"\s*(?:[A-Z][\w'’]*[,!.]?(?:[ \t]+[^\s=;{}]+){2,}(?<=[.:!])"
    r"|(?!(?:if|elif|else|for|while|with|except|case|match|def|class|async|lambda|switch)\b)"
    r"(?:[^\s=;{}]+[ \t]+){2,}[^\s=;{}]+:)[ \t]*"
)
# Only words, which no line of code is.
_PLAIN_SENTENCE: Final = re.compile(r"\s*[A-Z][\w'’]*[,!]?(?:[ \t]+[\w'’-]+[,!]?){2,}[.:!]\s*")


def unwrap(answer: DraftText, known: str, *, is_code: bool = True) -> Iterator[DraftText]:
    """Readings of an answer, the likelier first; one of them is all of it. `known` is the text of the document: what
    stands there too is no marker. Where text is wanted and no code, fences and sentences belong to it.
    """
    marked = _cut_marker(answer)
    readings = [marked, answer] if marked is not None else [answer]
    if marked is not None and (match := _END.search(answer.text)) is not None and match[0] in known:
        readings.reverse()
    seen: set[str] = set()
    for reading in readings:
        is_wrapped = is_code and (reading is not answer or reading is readings[0])
        for bare in (*_unfence(_skip(reading, _THINKING)), reading) if is_wrapped else (reading,):
            for text in _drop_sentences(bare) if is_wrapped else (bare,):
                if text.text not in seen:
                    seen.add(text.text)
                    yield text


def has_end(text: str) -> bool:
    """True if an end marker follows some text, or the first fence is closed."""
    start = find_start(text)
    if start is None:
        return False
    is_fenced = _FENCE.fullmatch(text[:start].rstrip("\n").rpartition("\n")[2]) is not None
    is_closed = is_fenced and any(_FENCE.fullmatch(line) for line in text[start:].split("\n")[:-1])
    return is_closed or (match := _END.search(text, start)) is not None and bool(text[start : match.start()].strip())


def is_wrapping(text: str) -> bool:
    """True if a text consists only of what may come before code."""
    return bool(text.strip()) and find_start(text + "\n") in (None, len(text) + 1)


def find_start(text: str) -> int | None:
    """Where the code begins, behind thinking, a sentence and a fence's first line; None if that may still follow."""
    if _OPEN_THINKING.match(text):
        return None
    thinking = _THINKING.match(text)
    position = thinking.end() if thinking else 0
    while True:
        line, newline, _ = text[position:].partition("\n")
        if newline and (not line.strip() or _OPENING.fullmatch(line) or _FENCE.fullmatch(line)):
            position += len(line) + 1
            if _FENCE.fullmatch(line) and line.strip():
                return position
        else:
            return position


def _skip(text: DraftText, pattern: re.Pattern[str]) -> DraftText:
    match = pattern.match(text.text)
    return text[match.end() :] if match else text


def _cut_marker(text: DraftText) -> DraftText | None:
    """The text before its first end marker, without markers at its start; None if there is no marker."""
    start = 0
    while (match := re.compile(rf"\s*(?:{_END.pattern})").match(text.text, start)) is not None:
        start = match.end()
    end = _END.search(text.text, start)
    if not start and end is None:
        return None
    return text[start : end.start() if end else len(text.text)]


def _unfence(text: DraftText) -> Iterator[DraftText]:
    """The text between the first fence and the next one, if nothing but sentences is before it; the text before a fence
    that stands alone at its end; the text itself; the text of a fence in its middle.
    """
    lines = text.lines()
    fences = [number for number, line in enumerate(lines) if _FENCE.fullmatch(line.text)]
    if not fences:
        yield text
        return
    first = fences[0]
    closing = fences[1] if len(fences) > 1 else len(lines)
    inside = join(lines[first + 1 : closing])
    if all(not line.text.strip() or _SENTENCE.fullmatch(line.text) for line in lines[:first]):
        yield inside
    elif len(fences) == 1 and not join(lines[first + 1 :]).text.strip():
        yield join(lines[:first])
        yield text
    else:
        yield text
        yield inside


def _drop_sentences(text: DraftText) -> Iterator[DraftText]:
    """The text, and it without a sentence at its start, at its end, and at both; first the one without the sentences
    that no code is.
    """
    lines = text.lines()
    filled = [number for number, line in enumerate(lines) if line.text.strip()]
    if len(filled) < 2:
        yield text
        return
    first, last = filled[0], filled[-1] + 1
    start = first + 1 if _SENTENCE.fullmatch(lines[first].text) else first
    while start < last and not lines[start].text.strip():
        start += 1
    end = last
    while end - 1 > start and _SENTENCE.fullmatch(lines[end - 1].text):
        end -= 1
    is_plain = _PLAIN_SENTENCE.fullmatch(lines[first].text), _PLAIN_SENTENCE.fullmatch(lines[last - 1].text)
    likely = start if is_plain[0] else first, end if is_plain[1] else last
    if likely != (first, last):
        yield join(lines[slice(*likely)])
    yield text
    yield from (join(lines[begin:stop]) for begin, stop in ((start, last), (first, end), (start, end)))
