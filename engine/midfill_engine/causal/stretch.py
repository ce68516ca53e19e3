"""A stretch of text to fill, and a text that is being written there. Knows text only."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from midfill_engine.loops import find_loop, is_endless

MAX_LINES: Final = 32
JOINT_CHARACTERS: Final = 16


@dataclass(frozen=True)
class Stretch:
    """The gap between `before` and `after`. The text `after` ends where the next unknown text begins.

    The prompt shows `behind`, the text after the whole hole, or `after` if `behind` is None. Drafts for a `single`
    stretch have no line break; in all others each line but the first begins with `indent`. The bounds of lines are
    those of the whole hole, which has the kept texts `head` before the stretch and `tail` behind it.
    """

    before: str
    after: str
    single: bool
    forbid: tuple[str, ...] = ()
    max_tokens: int = 256
    indent: str = ""
    behind: str | None = None
    min_tokens: int = 0
    min_lines: int = 0
    max_lines: int | None = None
    head: str = ""
    tail: str = ""

    @property
    def is_bounded(self) -> bool:
        """True if a text may be too short, or have too many lines."""
        return bool(self.min_tokens or self.min_lines or self.max_lines)

    def is_long_enough(self, text: str, num_tokens: int) -> bool:
        if num_tokens < self.min_tokens:
            return False
        return not self.min_lines or self.count_lines(text) >= self.min_lines

    def has_too_many_lines(self, text: str) -> bool:
        return self.max_lines is not None and self.count_lines(text) > self.max_lines

    def count_lines(self, text: str) -> int:
        """The number of lines with text in the whole hole if it is filled with `text`."""
        whole = self.head + text + self.tail
        return sum(bool(line.strip()) for line in whole.split("\n"))

    @cached_property  # because the text after may be long, and each token that is written asks for its next line
    def next_line(self) -> str | None:
        """The first non-blank line after the line in which the stretch ends; None if there is none."""
        _, *later = self.after.split("\n")
        return next((line for line in later if line.strip()), None)

    @property
    def is_inside(self) -> bool:
        """True if the stretch ends within a line, so that the rest of this line follows."""
        return self.after[:1] not in ("", "\n")

    @property
    def joint(self) -> str:
        """The beginning of the text after: a draft that reaches it ends there. Empty if it is blank."""
        start = self.after[:JOINT_CHARACTERS]
        if start.strip():
            return start
        return ""

    @cached_property
    def is_body(self) -> bool:
        """True for a body: the next line lacks its `indent`, so a text ends at the first line without it."""
        if self.single or not self.indent:
            return False
        next_line = self.next_line or ""
        return not next_line.startswith(self.indent)


@dataclass
class GrowingText:
    """A text that is being written in a stretch: a first line or "" as `text`, and behind it `data`, tokens' bytes."""

    stretch: Stretch
    text: str
    data: bytes = b""
    is_open: bool = True
    is_whole: bool = False  # it ended by itself, neither by a limit nor because it repeats itself
    is_met: bool = False  # the draft reached the text after, which was cut off
    loop: int | None = None  # the number of lines after which it repeats itself

    def write(self, piece: bytes) -> None:
        """Adds the bytes of a token. Ends the text if its last line lacks the indent, or is the next line; if it has
        reached the text after, which it cuts off; if it repeats itself; or if it has too many lines.
        """
        self.data += piece
        written = self.written
        joint = self.stretch.joint
        if not self.stretch.single and joint and joint in written:
            end = written.index(joint)
            self.text = written[:end]
            self.data = b""
            self.is_met = True
            self.end()
            return
        *lines, last = written.split("\n")
        if is_endless(last):
            self.loop = len(lines)
        elif b"\n" in piece:
            self._mark_loop(lines)
        leaves = bool(lines) and bool(last.strip()) and not last.startswith(self.stretch.indent)
        meets = len(lines) > 1 and lines[-1] == self.stretch.next_line
        if self.loop is not None:
            self.is_open = False
        elif leaves or meets:
            self.end()
        else:
            max_lines = max(MAX_LINES, self.stretch.min_lines + 1)
            if len(lines) > max_lines or self.stretch.has_too_many_lines(written):
                self.is_open = False

    def end(self) -> None:
        """Ends the text; it is whole unless its last lines repeat themselves."""
        self._mark_loop(self.written.split("\n"))
        self.is_open = False
        self.is_whole = self.loop is None

    def _mark_loop(self, lines: Sequence[str]) -> None:
        """Sets `loop`. The first line counts as indented like the others, because a loop may include it."""
        first, *later = lines
        indented = self.stretch.indent + first
        self.loop = find_loop([indented, *later])

    @property
    def written(self) -> str:
        """All text so far, without a last character whose bytes are incomplete."""
        return self.text + self.data.decode(errors="ignore")

    @property
    def first(self) -> str:
        """The first line."""
        return self.written.split("\n")[0]

    @property
    def has_line(self) -> bool:
        """True if it has at least one whole line: it ended by itself, or has a line break."""
        return self.is_whole or "\n" in self.written

    def endings(self) -> list[str]:
        """The texts that may be taken of what was written: up to each end of a line with text, without lines that leave
        the body or repeat others. For a body only the longest of them, unless it may have too many lines. If a stretch
        of several lines ends within a line, only the whole text, and only if it has reached the rest of that line.
        """
        if not self.stretch.single and not self.stretch.is_body and self.stretch.is_inside:
            return [self.written] if self.is_met else []
        first, *lines = self.written.split("\n")
        is_cut = not self.is_whole and self.loop is None
        if is_cut:
            lines = lines[:-1]
        elif self.loop is not None:
            lines = lines[: max(self.loop - 1, 0)]
        endings = [first]
        text = first
        seen_lines = {first.strip()}
        for line in lines:
            stripped = line.strip()
            leaves = bool(stripped) and not line.startswith(self.stretch.indent)
            if leaves or line == self.stretch.next_line or (is_cut and stripped in seen_lines):
                break
            text += "\n" + line
            if stripped:
                seen_lines.add(stripped)
                endings.append(text)
        if self.stretch.is_body and not self.stretch.max_lines:
            return endings[-1:]
        return endings
