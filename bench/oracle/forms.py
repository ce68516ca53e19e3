"""The forms in which models write the text of a hole: other indentation, fences, text written again, text behind the
end. Each takes a hole and gives what the model writes, None where it would write the exact text or where the form
leaves open what is meant.
"""

import random
import re
from collections.abc import Callable, Iterable
from typing import Final

from bench.oracle.corpus import Span
from bench.oracle.places import Gap, protected_lines

MARKERS: Final = (
    "<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|im_end|>", "</s>", "<EOT>",
    "<｜end▁of▁sentence｜>", "<file_sep>", "<|cursor|>",
)  # fmt: skip
BEFORE: Final = (
    "Here is the completed code:", "Sure! Here's the code that fills the gap:", "The missing part is as follows:",
    "To complete this, you can write the following.",
)  # fmt: skip
BEHIND: Final = (
    "This fills the missing part and keeps the rest of the file unchanged.",
    "**Explanation**\n\n- The code uses the names above.\n- It returns what the caller expects.",
    "Let me know if you need anything else!",
)
THOUGHTS: Final = (
    "The gap needs the code between the two parts. I will write it.",
    "Okay, the user wants the missing code.\n\nThe text behind it uses its names, so:\n\n    x = 1\n\nThat is it.",
)
MOST_OVERRUN: Final = 4
_HELPERS: Final = {
    "python": "def helper(value):\n    return value",
    "javascript": "function helper(value) {\n    return value;\n}",
    "go": "func helper(value int) int {\n    return value\n}",
    "rust": "fn helper(value: i32) -> i32 {\n    value\n}",
    "java": "private int helper(int value) {\n    return value;\n}",
    "c": "static int helper(int value) {\n    return value;\n}",
}
_METHODS: Final = {
    "python": "def helper(self, value):\n    return value",
    "javascript": "helper(value) {\n    return value;\n}",
}
_MAIN: Final = 'if __name__ == "__main__":\n    main()'
_FAMILY: Final = {"typescript": "javascript", "tsx": "javascript", "cpp": "c"}
_UNITS: Final = {"\t": "    ", "    ": "  ", "  ": "    "}
Form = Callable[[Gap, random.Random], str | None]


def _move(text: str, protected: Iterable[int], change: Callable[[str], str | None], first: int = 1) -> str | None:
    """Changes the indentation of every line from `first` on that begins with code; None if one cannot be changed."""
    lines = text.split("\n")
    for number in sorted(set(range(first, len(lines))) - set(protected)):
        rest = lines[number].lstrip(" \t")
        if not rest:
            continue
        changed = change(lines[number][: len(lines[number]) - len(rest)])
        if changed is None:
            return None
        lines[number] = changed + rest
    return "\n".join(lines)


def _dedent(indent: str) -> Callable[[str], str | None]:
    def change(white: str) -> str | None:
        if not white.startswith(indent):
            return None
        return white.removeprefix(indent)

    return change


def _in_unit(unit: str, other: str) -> Callable[[str], str | None]:
    def change(white: str) -> str | None:
        levels = len(white) // len(unit)
        if white != unit * levels:
            return None
        return other * levels

    return change


def _reindent(gap: Gap, change: Callable[[str], str | None]) -> str | None:
    return _move(gap.truth, protected_lines(gap.file, gap.span), change, first=int(not gap.own))


def write_exact(gap: Gap, drawn: random.Random) -> str | None:
    return gap.truth


def write_indented(gap: Gap, drawn: random.Random) -> str | None:
    if gap.is_inside or gap.own:
        return None
    return gap.indent + gap.truth


def write_from_column_0(gap: Gap, drawn: random.Random) -> str | None:
    if gap.is_inside or (gap.own and gap.own != gap.hole.indent):  # else the indent that is meant is not known
        return None
    return _reindent(gap, _dedent(gap.indent))


def write_in_unit(gap: Gap, drawn: random.Random) -> str | None:
    unit = gap.file.document.indent_unit
    if unit not in _UNITS or gap.is_inside or "\n" not in gap.truth:  # a line alone does not tell its unit
        return None
    return _reindent(gap, _in_unit(unit, _UNITS[unit]))


def write_in_tabs(gap: Gap, drawn: random.Random) -> str | None:
    unit = gap.file.document.indent_unit
    if unit == "\t" or gap.is_inside:
        return None
    return _reindent(gap, _in_unit(unit, "\t"))


def write_crlf(gap: Gap, drawn: random.Random) -> str | None:
    return gap.truth.replace("\n", "\r\n") + "\r\n"


def write_padded(gap: Gap, drawn: random.Random) -> str | None:
    """White space around the text, which a model writes where it begins a line or ends one."""
    if gap.is_inside:
        return gap.truth + drawn.choice(("\n", "\n\n"))
    if drawn.random() < 0.5 or gap.own:
        return gap.truth + drawn.choice(("\n", "\n\n", " ", f"\n{gap.indent}"))
    return f"\n{gap.indent}{gap.truth}"


def _in_file_form(gap: Gap, drawn: random.Random) -> str:
    """The text as it may stand in a fence: as in the file, from column 0, or as the cursor leaves off."""
    forms = [write_exact, write_indented, write_from_column_0]
    return drawn.choice([text for form in forms if (text := form(gap, drawn)) is not None])


def write_fenced(gap: Gap, drawn: random.Random) -> str | None:
    fence = drawn.choice(("```", f"```{gap.file.language}"))
    text = f"{fence}\n{_in_file_form(gap, drawn)}\n```"
    around = drawn.randrange(6)
    if around in (3, 5):
        text = f"{drawn.choice(BEFORE)}\n\n{text}"
    if around in (4, 5):
        return f"{text}\n\n{drawn.choice(BEHIND)}"
    return text + drawn.choice(("", "\n"))


def write_prose(gap: Gap, drawn: random.Random) -> str | None:
    return f"{drawn.choice(BEFORE)}\n\n{_in_file_form(gap, drawn)}"


def write_thoughts(gap: Gap, drawn: random.Random) -> str | None:
    return f"<think>\n{drawn.choice(THOUGHTS)}\n</think>\n\n{_in_file_form(gap, drawn)}"


def write_marked(gap: Gap, drawn: random.Random) -> str | None:
    marker = drawn.choice(MARKERS)
    junk = drawn.choice((f"\n{_helper(gap, is_method=False)}\n", drawn.choice(MARKERS), f"{gap.truth}\n{marker}"))
    return gap.truth + drawn.choice((marker, f"\n{marker}", marker + junk, marker + junk))


def write_signature(gap: Gap, drawn: random.Random) -> str | None:
    """The header of the hole's function or the line before the hole again; of a part of a line, the line's start."""
    lines = gap.file.document.lines
    line = lines.at(gap.span[0])
    if gap.is_inside:
        start = gap.file.data[lines.first_char(line) : gap.span[0]].decode()
        return start + gap.truth if start else None
    if gap.function is None:
        above = _find_above(gap, line)
        if above is None:
            return None
        text = gap.truth if gap.own else gap.indent + gap.truth
        return f"{lines.content(above).decode().strip()}\n{text}"
    span = lines.start(lines.at(gap.function.start)), gap.span[1]
    return _write_span(gap, drawn, span, _closing(gap))


def _find_above(gap: Gap, line: int) -> int | None:
    """The filled line before a line, if it has a word."""
    lines = gap.file.document.lines
    for number in range(line - 1, -1, -1):
        if not lines.is_blank(number):
            return number if re.search(r"\w\w", lines.content(number).decode()) else None
    return None


def _write_span(gap: Gap, drawn: random.Random, span: Span, closing: str = "") -> str | None:
    """The text of a span of whole lines as it stands, or from column 0 and with what closes it."""
    lines = gap.file.document.lines
    text, base = gap.file.document.visible_text(*span), lines.indent(lines.at(span[0])).decode()
    if drawn.random() < 0.5:
        return text
    return _move(text + closing, protected_lines(gap.file, span), _dedent(base), 0)


def _closing(gap: Gap) -> str:
    """The line that begins with the brace that closes the body, if there is one."""
    closing = re.match(r"\s*\n[ \t]*\}[^\n]*", gap.behind)
    return closing.group() if closing else ""


def write_overrun(gap: Gap, drawn: random.Random) -> str | None:
    """The text behind the hole again: the rest of the line, or that and up to four lines."""
    rest, *lines = gap.behind.split("\n")
    if rest.strip():
        return gap.truth + rest
    again = lines[: drawn.randint(1, MOST_OVERRUN)]
    while again and not "".join(again).strip() and len(again) < len(lines):
        again = lines[: len(again) + 1]
    if not "".join(again).strip():
        return None
    return "\n".join([gap.truth, *again])


def write_brackets(gap: Gap, drawn: random.Random) -> str | None:
    """The closing brackets or the quote directly behind a part of a line again."""
    closers = re.match(r"[)\]}\"'`]+", gap.behind)
    if closers is None or not gap.is_inside:
        return None
    return gap.truth + closers.group()[: drawn.randint(1, len(closers.group()))]


def _helper(gap: Gap, *, is_method: bool) -> str:
    language = _FAMILY.get(gap.file.language, gap.file.language)
    text = _HELPERS[language]
    if is_method:
        text = _METHODS.get(language, text)
    return text.replace("    ", gap.file.document.indent_unit)


def write_next(gap: Gap, drawn: random.Random) -> str | None:
    """Another function behind a body, at the level of the hole's own."""
    function, lines = gap.function, gap.file.document.lines
    if function is None or function.type in ("arrow_function", "function_expression", "func_literal"):
        return None
    base = lines.indent(lines.at(function.start)).decode()
    is_python = gap.file.language == "python"
    helper = _helper(gap, is_method=bool(base) and (is_python or function.type == "method_definition"))
    if is_python and not base and drawn.random() < 0.5:
        helper = _MAIN
    closing = _closing(gap)
    if not is_python and closing.strip() != "}":  # of a list, or another part of a statement
        return None
    breaks = "\n\n\n" if is_python and not base else "\n\n"
    return gap.truth + closing + breaks + "\n".join(base + line if line else line for line in helper.split("\n"))


def write_whole(gap: Gap, drawn: random.Random) -> str | None:
    """The hole with what it stands in: the whole line, the whole function, or the lines above and below."""
    lines, data = gap.file.document.lines, gap.file.data
    (start, end), document = gap.span, gap.file.document
    if gap.is_inside:
        text = document.visible_text(lines.start(lines.at(start)), lines.end(lines.at(end)))
        return text.strip() if drawn.random() < 0.5 else text
    first, last = lines.at(start), lines.at(end)
    if gap.function is not None:
        first = lines.at(gap.function.start)
        end = lines.end(last) + len(_closing(gap).encode())
    else:
        above = _find_above(gap, first)
        below = next((number for number in range(last + 1, len(lines)) if not lines.is_blank(number)), None)
        if above is None or below is None:
            return None
        first, end = above, lines.end(below)
    return _write_span(gap, drawn, (lines.start(first), min(end, len(data))))


def write_broken(gap: Gap, drawn: random.Random) -> str | None:
    """A line break before a part of a line."""
    if not gap.is_inside:
        return None
    return f"\n{gap.truth}"


def write_mixed(gap: Gap, drawn: random.Random) -> str | None:
    """What models of chats write: a form of the text in a fence, below a sentence, behind thoughts."""
    inner = [
        write_exact, write_indented, write_from_column_0, write_in_unit, write_in_tabs, write_signature, write_overrun,
        write_brackets, write_next, write_whole,
    ]  # fmt: skip
    text = drawn.choice([text for form in inner if (text := form(gap, drawn)) is not None])
    fenced = f"{drawn.choice(('```', f'```{gap.file.language}'))}\n{text}\n```"
    around = drawn.randrange(5)
    if around == 0:
        return f"<think>\n{drawn.choice(THOUGHTS)}\n</think>\n\n{fenced}"
    if around == 1:
        return f"{drawn.choice(BEFORE)}\n\n{fenced}\n\n{drawn.choice(BEHIND)}"
    if around == 2:
        return f"{text}\n{drawn.choice(MARKERS)}"
    if around == 3:
        return f"{fenced}{drawn.choice(MARKERS)}"
    return fenced


FORMS: Final[dict[str, Form]] = {
    "exact": write_exact,
    "indented": write_indented,
    "column0": write_from_column_0,
    "unit": write_in_unit,
    "tabs": write_in_tabs,
    "crlf": write_crlf,
    "padded": write_padded,
    "fenced": write_fenced,
    "prose": write_prose,
    "marked": write_marked,
    "signature": write_signature,
    "overrun": write_overrun,
    "brackets": write_brackets,
    "next": write_next,
    "think": write_thoughts,
    "whole": write_whole,
    "broken": write_broken,
    "mixed": write_mixed,
}


def write(form: str, gaps: Iterable[Gap], seed: int) -> list[str] | None:
    """What a model writes into each hole in a form; the exact text where the form changes nothing. None if it changes
    no hole. The same for the same seed.
    """
    texts, is_changed = [], form == "exact"
    for gap in gaps:
        drawn = random.Random(f"{seed} {form} {gap.span} {gap.truth}")
        text = FORMS[form](gap, drawn)
        if text is None:
            text = gap.truth
        is_changed = is_changed or text != gap.truth
        texts.append(text)
    return texts if is_changed else None
