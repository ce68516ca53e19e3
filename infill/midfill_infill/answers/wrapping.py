"""Takes off what models write around code: thinking, end markers, Markdown fences, sentences. Also tells, while an
answer arrives, where its code begins and whether it has ended. Knows no language.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from midfill_infill.answers.draft import DraftText, join
from midfill_infill.answers.markers import END_MARKERS, IN_CODE, MARKERS

_THINKING: Final = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>(?:\s*\n|\s*)|$)", re.DOTALL)
_OPEN_THINKING: Final = re.compile(r"\s*<(think|thinking|reasoning)>(?!.*</\1>)", re.DOTALL)
# The first line of a fence may name a file or hold attributes behind the language: `ts:src/a.ts`, `ts {1,3}`.
_FENCE: Final = re.compile(
    r"(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w+#./-]*)"
    r"(?::[\w./\\-]+)?(?:[ \t]+[\w-]+=[^`\n]*|[ \t]*\{[^`{}\n]*\})?[ \t]*\n?"
)
_MARKDOWN: Final = ("markdown", "md", "mdx")  # languages whose texts have fences themselves
# Languages of blocks that prose shows, so that an answer may be prose which begins with a block and goes on behind it.
_MANY_BLOCKS: Final = (*_MARKDOWN, "sh", "bash", "shell", "console", "text", "txt")
_END: Final = re.compile("|".join(map(re.escape, dict.fromkeys((*END_MARKERS, *(set(MARKERS) - IN_CODE))))))
# The end marker of some models closes HTML's struck text.
_STRUCK: Final = re.compile(r"<s(?:\s[^<>]*)?>")
_STRUCK_END: Final = "</s>"
_LEADING: Final = re.compile(rf"\s*(?:{_END.pattern})")
# What may open or close a quotation, without what a backslash escapes. An apostrophe in a word only closes one.
_QUOTE: Final = re.compile(r"\\.|(?P<mark>[\"`]|(?:(?<!\w)|(?<=\b[bfru]))')|(?P<apostrophe>')")
# A line that may be a sentence: it begins with a capital or ends with a colon, and has at least three words. Much code
# does too, such as `String name = getName();`. A docstring's first line begins with quotes.
_SENTENCE: Final = re.compile(
    r"(?!.*(?:\"\"\"|'''))\s*(?:[A-Z][\w'’]*[,!.]?(?:[ \t]+\S+){2,}[.:!?]?|(?:\S+[ \t]+){2,}\S+:)[ \t]*\n?"
)

# A line that certainly is a sentence before code, while the rest of the answer is not there yet: no line such as
# `ERROR = 5` or `for row in rows:`.
_OPENING: Final = re.compile(
    r"(?!.*(?:\"\"\"|'''))\s*(?:[A-Z][\w'’]*[,!.]?(?:[ \t]+[^\s=;{}]+){2,}(?<=[.:!])"
    r"|(?!(?:if|elif|else|for|while|with|except|case|match|def|class|async|lambda|switch)\b)"
    r"(?:[^\s=;{}]+[ \t]+){2,}[^\s=;{}]+:|<(?:answer|code)>)[ \t]*"
)
# What chats write around code: quotes of Markdown, or a tag, which may not be closed yet.
_QUOTED: Final = re.compile(
    r"\s*(?:(?P<quote>`+)(?P<quoted>[^`]+)(?P=quote)|<(?P<tag>answer|code)>\n?(?P<tagged>.*?)(?:</(?P=tag)>)?)\s*",
    re.DOTALL,
)
# The end of thinking that the prompt has opened.
_THOUGHT: Final = re.compile(r".*^[ \t]*</(?:think|thinking|reasoning)>[ \t]*\n", re.DOTALL | re.MULTILINE)
# A line that certainly is a sentence: it has only words, as no line of code has.
_PLAIN_SENTENCE: Final = re.compile(r"\s*[A-Z][\w'’]*[,!]?(?:[ \t]+[\w'’-]+[,!]?){2,}[.:!]\s*")
# A line of words above such a sentence, which may go on in it.
_PROSE: Final = re.compile(r"\s*[A-Z][\w'’]*[,!]?(?:[ \t]+[\w'’-]+[,.:!]?){2,}\s*")
# What prose quotes within a line: tags, code.
_QUOTED_CODE: Final = re.compile(r"</?[A-Za-z][^<>]*>|`[^`]+`")
# A line that reads as prose, without what it quotes: words and punctuation, no statement, call, assignment, setting or
# command in capitals.
_WORDS: Final = re.compile(
    r"(?:[-*•][ \t]+)?[\"'“(]?(?![A-Z]{2,}\b|(?:return|import|from|del|raise|assert|echo|export|let|const|var)\b)"
    r"(?![a-z][\w-]*:)(?!.*(?:\w\(|::|->|=>))(?!(?:if|elif|for|while|with|def|class)\b.*:$)"
    r"[^\W\d_][^=;{}\[\]|\\$@]*"
)
_STOPS: Final = (".", "!", "?")  # that end a sentence


def unwrap(answer: DraftText, document_text: str, *, is_code: bool = True) -> Iterator[DraftText]:
    """Readings of an answer, the likelier first; one of them is all of it. That one is likelier than a text cut at a
    marker which `document_text` holds too. Unless the hole `is_code`, fences and sentences belong to its text, but no
    thinking does.
    """
    readings = [answer]
    unmarked = _cut_marker(answer)
    if unmarked is not None:
        readings.insert(0, unmarked)
        marker = _find_end_marker(answer.text)
        if marker is not None and marker[0] in document_text:
            readings.reverse()
    seen: set[str] = set()
    for reading in readings:
        may_be_wrapped = is_code and (reading is not answer or reading is readings[0])
        for text in _unwrap_code(reading) if may_be_wrapped else (_skip_thinking(reading), reading):
            if text.text not in seen:
                seen.add(text.text)
                yield text


def has_fence(answer: str) -> bool:
    """True if a line of an answer is a fence."""
    return any(line.strip() and _FENCE.fullmatch(line) for line in answer.split("\n"))


def take_off_fence(answer: str) -> str:
    """The answer without thinking before it, and without the fence that its prompt demanded: what is in that fence,
    which may stand below one sentence and above some. The answer with its fences if it is not certain where that fence
    ends.
    """
    draft = _skip_thinking(DraftText.of(answer))
    bare, lines = draft.text, [line.text for line in draft.lines()]
    first = next((number for number, line in enumerate(lines) if _FENCE.fullmatch(line)), None)
    if first is None:
        return bare
    before = [line for line in lines[:first] if line.strip()]
    if len(before) > 1 or not all(map(_is_sentence, before)):
        return bare
    closing = _find_closing(lines, first)
    if closing is None:
        closing = len(lines)
    following = [fence for line in lines[closing + 1 :] if (fence := _FENCE.fullmatch(line))]
    if following and _language_of(lines[first]) in _MARKDOWN:
        fitting = [number for number in range(first + 1, len(lines)) if _fits(lines[number], lines[first])]
        closing = fitting[-1] if len(fitting) % 2 else len(lines)  # pairs belong to the text
    elif following and not following[0]["language"]:  # the fence may end here, or a fence in its text may begin
        return bare
    return "".join(lines[first + 1 : closing]).removesuffix("\n")


def _unwrap_code(reading: DraftText) -> Iterator[DraftText]:
    """The code of a reading without thinking, fences and sentences around it; then the reading with its fences; then
    the code within quotes or a tag, and that behind the end of thinking.
    """
    texts = [text for bare in (*_unfence(_skip_thinking(reading)), reading) for text in _drop_sentences(bare)]
    yield from texts
    for text in texts:
        if quotation := _QUOTED.fullmatch(text.text):
            start, end = quotation.span("quoted" if quotation["quote"] else "tagged")
            yield text[start:end]
    if thought := _THOUGHT.match(reading.text):
        yield from _unwrap_code(reading[thought.end() :])


def closes_fence(text: str, start: int) -> bool:
    """True if a fence opens above the code, which begins at `start`, and a whole line closes it."""
    *_, opening = text[:start].rstrip("\n").rpartition("\n")
    if not _FENCE.fullmatch(opening) or _language_of(opening) in _MANY_BLOCKS:
        return False
    *whole_lines, _ = text[start:].split("\n")
    return _find_closing([opening, *whole_lines], 0) is not None


def has_marker(text: str, start: int) -> bool:
    """True if an end marker follows some text behind `start` and the markers there."""
    start = _skip_markers(text, start)
    marker = _find_end_marker(text, start)
    if marker is None or not text[start : marker.start()].strip():
        return False
    may_be_quoted = "\n" not in text[marker.end() :] and _find_open_quote(text, marker.start())
    return not may_be_quoted


def _find_end_marker(text: str, start: int = 0) -> re.Match[str] | None:
    """The next end marker from `start` on; None if there is none. One within quotes on its line is text, and so is one
    that closes a tag of HTML.
    """
    for marker in _END.finditer(text, start):
        before = text[: marker.start()]
        if marker[0] == _STRUCK_END and len(_STRUCK.findall(before)) > before.count(_STRUCK_END):
            continue
        quote = _find_open_quote(text, marker.start())
        rest_of_line, *_ = text[marker.end() :].split("\n", 1)
        if not quote or quote not in rest_of_line:
            return marker
    return None


def _find_open_quote(text: str, position: int) -> str:
    """The quote that is open at a position of its line; empty if none is. An apostrophe within a word is no quote."""
    open_quote = ""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    for quote in _QUOTE.finditer(line):
        if not open_quote:
            open_quote = quote["mark"] or ""
        elif quote["mark"] == open_quote or quote["apostrophe"] == open_quote:
            open_quote = ""
    return open_quote


def _skip_markers(text: str, start: int = 0) -> int:
    """The position behind the markers that stand at `start`; `start` if there is none."""
    while (match := _LEADING.match(text, start)) is not None:
        start = match.end()
    return start


def is_wrapping(text: str) -> bool:
    """True if an answer holds only thinking, sentences and the first line of a fence, but no code yet."""
    return bool(text.strip()) and find_start(text + "\n") in (None, len(text) + 1)


def find_start(text: str) -> int | None:
    """The position where the code begins: behind thinking, sentences and the first line of a fence. None while the
    thinking has not ended.
    """
    if _OPEN_THINKING.match(text):
        return None
    thinking = _THINKING.match(text)
    position = thinking.end() if thinking else 0
    while True:
        line, newline, _ = text[position:].partition("\n")
        if not newline:
            return position
        next_position = position + len(line) + 1
        if line.strip() and _FENCE.fullmatch(line):
            return next_position
        if line.strip() and not _OPENING.fullmatch(line):
            return position
        position = next_position


def _skip_thinking(text: DraftText) -> DraftText:
    """The text without the thinking at its start."""
    thinking = _THINKING.match(text.text)
    return text[thinking.end() :] if thinking else text


def _cut_marker(text: DraftText) -> DraftText | None:
    """The text between the markers at its start and the next end marker; None if there is no marker."""
    start = _skip_markers(text.text)
    end = _find_end_marker(text.text, start)
    if end is not None:
        return text[start : end.start()]
    if start == 0:
        return None
    return text[start:]


def _unfence(text: DraftText) -> Iterator[DraftText]:
    """The texts that fences may be around, the likeliest first; without a fence, all of it.

    If the text ends with its only fence, and some line before is certainly no sentence: what is before, then all of it.
    If all lines before the first fence may be sentences: what is from there to each line that may close it. Otherwise
    all of it first.
    """
    lines = text.lines()
    written = [line.text for line in lines]
    fences = [number for number, line in enumerate(written) if _FENCE.fullmatch(line)]
    if not fences:
        yield text
        return
    first = fences[0]
    before = [line for line in written[:first] if line.strip()]
    insides = [join(lines[first + 1 : closing]) for closing in _list_closings(written, first)]
    has_code_before = not all(map(_is_sentence, before))
    if len(fences) == 1 and not insides[0].text.strip() and has_code_before:
        yield join(lines[:first])
        yield text
        return
    if not all(map(_SENTENCE.fullmatch, before)):
        yield text
    yield from insides


def _is_sentence(line: str) -> bool:
    """True for a line that certainly is a sentence."""
    line = line.rstrip("\n")
    return bool(_OPENING.fullmatch(line) or _PLAIN_SENTENCE.fullmatch(line))


def _language_of(fence_line: str) -> str:
    """The language that a fence line names, in lower case; empty if it names none."""
    fence = _FENCE.fullmatch(fence_line)
    return fence["language"].lower() if fence else ""


def _fits(line: str, opening: str) -> bool:
    """True for a fence line that is as far indented as the fence line `opening`, of its character and as long."""
    fence, opener = _FENCE.fullmatch(line), _FENCE.fullmatch(opening)
    if fence is None or opener is None:
        return False
    return fence["indent"] == opener["indent"] and fence["mark"].startswith(opener["mark"])


def _find_closing(lines: Sequence[str], first: int) -> int | None:
    """The number of the line that closes the fence on line `first`; None if none does. A fitting fence line with a
    language opens another fence within.
    """
    depth = 1
    for number in range(first + 1, len(lines)):
        if _fits(lines[number], lines[first]):
            depth += 1 if _language_of(lines[number]) else -1
        if depth == 0:
            return number
    return None


def _list_closings(lines: Sequence[str], first: int) -> list[int]:
    """The numbers of the lines that may close the fence on line `first`, the likeliest first, which is the number of
    lines if that fence is open.
    """
    fences = [number for number in range(first + 1, len(lines)) if _FENCE.fullmatch(lines[number])]
    fitting = [number for number in fences if _fits(lines[number], lines[first]) and not _language_of(lines[number])]
    likeliest = _find_closing(lines, first)
    if likeliest is None:  # a pair belongs to the text, a single line closes the fence although it is indented
        likeliest = fences[-1] if len(fences) % 2 else len(lines)
    return list(dict.fromkeys((likeliest, *fitting[-1:], *fences[:1])))


def _drop_sentences(text: DraftText) -> Iterator[DraftText]:
    """The text without what is certainly a sentence at its start or its end, if anything is and code is left; then the
    text itself; then without what may be a sentence at its start, at its end, and at both. Never an empty text.
    """
    lines = text.lines()
    nonblank = [number for number, line in enumerate(lines) if line.text.strip()]
    if len(nonblank) < 2:
        yield text
        return
    first, last = nonblank[0], nonblank[-1] + 1
    start = first
    if _SENTENCE.fullmatch(lines[first].text):
        start = nonblank[1]
    end = last
    while end - 1 > start and _SENTENCE.fullmatch(lines[end - 1].text):
        end -= 1
    likely_start, likely_end = first, last
    if _PLAIN_SENTENCE.fullmatch(lines[first].text):
        likely_start = start
    if _PLAIN_SENTENCE.fullmatch(lines[last - 1].text):
        likely_end -= 1
        while likely_end - 1 > start and _PROSE.fullmatch(lines[likely_end - 1].text):
            likely_end -= 1
    without_sentences = [line.text for line in lines[likely_start:likely_end]]
    if (likely_start, likely_end) != (first, last) and not _is_prose(without_sentences):
        yield join(lines[likely_start:likely_end])
    yield text
    yield join(lines[start:last])
    yield join(lines[first:end])
    yield join(lines[start:end])


def _is_prose(lines: Sequence[str]) -> bool:
    """True if all lines read as prose, as of no lines at all. The first word is a capital's, unless a line goes on."""
    goes_on = False
    for line in lines:
        words = _QUOTED_CODE.sub("Quoted", line).strip()
        if not words:
            goes_on = False
            continue
        ends = words.endswith(_STOPS)
        is_long = len(words.split()) > 2 or (ends and goes_on)
        if not is_long or not _WORDS.fullmatch(words) or (words[0].islower() and not goes_on):
            return False
        goes_on = not ends and not words.endswith(":")
    return True
