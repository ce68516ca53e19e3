"""Reads a notebook as one document of its code cells, and puts edits back into the file. Knows JSON, no syntax."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from json.decoder import JSONDecoder
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from midfill_infill.errors import MidfillError
from midfill_infill.text.diffs import common_ends
from midfill_infill.text.document import MAX_DOCUMENT_BYTES, Document
from midfill_infill.text.spans import Edit, Hole, Patch

SUFFIX: Final = ".ipynb"
BETWEEN_CELLS: Final = "\n\n"
_LANGUAGES: Final = {"c++": "cpp", "ipython": "python", "node": "javascript"}
# Cells with these magics are still in the notebook's language.
_OWN_MAGICS: Final = re.compile(r"%%(?:time|timeit|capture|prun)\b")
_WHITE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = JSONDecoder(strict=False)
Span = tuple[int, int]


@dataclass(frozen=True)
class Cell:
    """One cell. `start_byte` is None if the document does not contain the cell, as for markdown."""

    kind: str
    text: str
    value: Span  # where the cell's source is in the JSON
    start_byte: int | None = None  # its first byte in the document

    def holds(self, start_byte: int, end_byte: int) -> bool:
        """True if a range of the document is within this cell."""
        if self.start_byte is None:
            return False
        cell_end = self.start_byte + len(_encode(self.text))
        return self.start_byte <= start_byte <= end_byte <= cell_end

    def edit(self, edits: Sequence[Edit]) -> str:
        """The cell's text after edits of the document that are all in this cell."""
        assert self.start_byte is not None
        moved: list[Edit] = []
        for edit in edits:
            start = edit.start_byte - self.start_byte
            end = edit.end_byte - self.start_byte
            moved.append(Edit(start, end, edit.replacement))
        return Patch.of(moved).apply(_encode(self.text)).decode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Notebook(Document):
    """A document of all code cells, joined by `BETWEEN_CELLS`; the lines of positions count from their cell's start.
    `cells` are all cells, markdown included; `json` is the file's text.
    """

    json: str = ""
    cells: tuple[Cell, ...] = ()
    max_bytes: ClassVar[int] = 64 * 1024 * 1024
    """More than for other documents, because outputs such as pictures are not parsed as code."""

    @classmethod
    def from_bytes(cls, data: bytes, path: Path, language: str | None = None) -> Self:
        """Raises MidfillError `file_unreadable` for what is no notebook of version 4, and as documents do."""
        try:
            text = data.decode("utf-8")
            root = json.loads(text.lstrip("\ufeff"), strict=False)
            language = language or _find_language(root)
            cells = tuple(_join(list(_read_cells(text, root)), is_python=language == "python"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"{path} is not a notebook of version 4 ({type(error).__name__})"
            raise MidfillError("file_unreadable", message, "open it in Jupyter and save it there") from None
        joined = _encode(BETWEEN_CELLS.join(cell.text for cell in cells if cell.start_byte is not None))
        if len(joined) > MAX_DOCUMENT_BYTES:
            raise MidfillError("file_too_large", f"the code of {path} has {len(joined) // 1024} KiB")
        return cls(joined, language, path, "utf-8", text, cells)

    @property
    def original(self) -> bytes:
        return self.json.encode("utf-8")

    def with_patch(self, patch: Patch) -> Document:
        """The code of the cells with a patch applied, which knows no cells: they are those of the file."""
        return Document(patch.apply(self.data), self.language, self.path, self.stored_as)

    def find_cell(self, number: int) -> Cell:
        """A code cell by its number from 1; markdown counts. Raises MidfillError `position_outside` for other cells."""
        if not 1 <= number <= len(self.cells):
            message = f"{self.name} has {len(self.cells)} cells, not {number}"
            raise MidfillError("position_outside", message, "give a cell that it has")
        cell = self.cells[number - 1]
        if cell.start_byte is None:
            what = cell.kind if cell.kind != "code" else "in another language"
            message = f"cell {number} of {self.name} is {what}"
            raise MidfillError("position_outside", message, "give a cell of code; markdown cells count")
        return cell

    def line_of(self, number: int, line: int) -> int:
        """The document's line, from 1, of a line of a cell. Raises MidfillError `position_outside`."""
        cell = self.find_cell(number)
        assert cell.start_byte is not None
        first = self.lines.at(cell.start_byte)
        num_lines = self.lines.at(cell.start_byte + len(_encode(cell.text))) - first + 1
        if not 1 <= line <= num_lines:
            message = f"cell {number} of {self.name} has {num_lines} lines, not {line}"
            raise MidfillError("position_outside", message)
        return first + line

    def position_at(self, byte: int) -> tuple[int, int]:
        line, column = super().position_at(byte)
        _, start_byte = self.cell_at(byte)
        return line - self.lines.at(start_byte), column

    def where(self, byte: int) -> str:
        cell, _ = self.cell_at(byte)
        line, _ = self.position_at(byte)
        return f"{self.path}:{cell}:{line}"

    def cell_at(self, byte: int) -> tuple[int, int]:
        cell = self._cell_at(byte)
        return self.cells.index(cell) + 1, cell.start_byte or 0

    def fit_to_cell(self, hole: Hole) -> Hole:
        """The hole as it is valid in its cell: at a cell's start, it has no indentation from the cell before. Raises
        MidfillError `no_hole` for a hole that leaves its cell.
        """
        cell = self._cell_at(hole.start_byte)
        if not cell.holds(hole.start_byte, hole.end_byte):
            raise MidfillError("no_hole", f"what was chosen of {self.name} is in two cells")
        if hole.is_at_cursor and hole.start_byte == cell.start_byte:
            return replace(hole, lead="", indent="")
        return hole

    def apply(self, patch: Patch) -> bytes:
        """The notebook's file after edits, each within one cell; all other bytes stay."""
        pieces: list[str] = []
        position = 0
        for cell in self.cells:
            inside = [edit for edit in patch.edits if cell.holds(edit.start_byte, edit.end_byte)]
            if inside:
                start, end = cell.value
                pieces += [self.json[position:start], _write_source(self.json, cell.value, cell.edit(inside))]
                position = end
        return "".join([*pieces, self.json[position:]]).encode("utf-8")

    def _cell_at(self, byte: int) -> Cell:
        """The last cell of the document that starts at or before a byte. Raises MidfillError `position_outside`."""
        before = [cell for cell in self.cells if cell.start_byte is not None and cell.start_byte <= byte]
        if not before:
            raise MidfillError("position_outside", f"{self.name} has no cell of code", "add one")
        return before[-1]


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _find_language(root: dict[str, Any]) -> str | None:
    """The id of the language in the notebook's metadata; Python if they name none, as in IPython notebooks."""
    about = root.get("metadata", {})
    named = about.get("language_info", {}).get("name") or about.get("kernelspec", {}).get("language") or "python"
    from midfill_infill.languages import REGISTRY

    name = re.sub(r"(?<=c\+\+)\d+$", "", named.lower())  # kernels of C++ name its version
    name = _LANGUAGES.get(name, name)
    return name if name in REGISTRY else None


def _read_cells(text: str, root: dict[str, Any]) -> Iterator[Cell]:
    """The cells of a notebook by its JSON `text` and what this holds, without their places in the document."""
    root_start = _skip_white(text, int(text.startswith("\ufeff")))
    cells_start, _ = dict(_members(text, root_start))["cells"]
    for ((start, _), _), cell in zip(_items(text, cells_start), root["cells"], strict=True):
        value = dict(_members(text, start))["source"]
        source = cell["source"]
        if not isinstance(source, str):
            source = "".join(source)
        yield Cell(cell["cell_type"], source, value)


def _join(cells: Sequence[Cell], *, is_python: bool) -> Iterator[Cell]:
    """The cells with their places in the document; a code cell whose magic names another language has none."""
    position = 0
    for cell in cells:
        is_other = is_python and cell.text.startswith("%%") and not _OWN_MAGICS.match(cell.text)
        if cell.kind != "code" or is_other:
            yield cell
            continue
        yield replace(cell, start_byte=position)
        position += len(_encode(cell.text + BETWEEN_CELLS))


def _skip_white(text: str, position: int) -> int:
    """The position of the first character from `position` on that is no white space."""
    match = _WHITE.match(text, position)
    assert match is not None
    return match.end()


def _items(text: str, start: int) -> Iterator[tuple[Span, Any]]:
    """The span and value of each element of the JSON array at `start`; for an object, of keys and values in turn."""
    position = _skip_white(text, start + 1)
    while text[position] not in "]}":
        value, end = _DECODER.raw_decode(text, position)
        yield (position, end), value
        position = _skip_white(text, end)
        if text[position] in ",:":
            position = _skip_white(text, position + 1)


def _members(text: str, start: int) -> Iterator[tuple[str, Span]]:
    """The keys of the JSON object that begins at `start`, with the spans of their values."""
    keys_and_values = _items(text, start)
    for (_, key), (span, _) in zip(keys_and_values, keys_and_values, strict=True):  # takes two items at a time
        yield key, span


def _write_source(text: str, value: Span, source: str) -> str:
    """A cell's new source in its old form: one string, or a list of lines, of which the unchanged ones stay as is."""
    # Escapes that the file could do without: those of control characters are needed.
    has_escapes = re.search(r"(?<!\\)(?:\\\\)*\\u(?!00[01])", text) is not None

    def dump(line: str) -> str:
        has_surrogate = any("\ud800" <= char <= "\udfff" for char in line)
        return json.dumps(line, ensure_ascii=has_escapes or has_surrogate)

    start, _ = value
    if text[start] == '"':
        return dump(source)
    items = list(_items(text, start))
    old_lines = [line for _, line in items]
    old_json = [text[first:last] for (first, last), _ in items]
    lines = [line for line in re.split(r"(?<=\n)", source) if line]
    num_kept, num_behind = common_ends(old_lines, lines)
    changed = [dump(line) for line in lines[num_kept : len(lines) - num_behind]]
    new_json = [*old_json[:num_kept], *changed, *old_json[len(old_json) - num_behind :]]
    if not new_json:
        return "[]"
    lead, between, trail = _find_white(text, value, [span for span, _ in items])
    return f"[{lead}{between.join(new_json)}{trail}]"


def _find_white(text: str, value: Span, items: Sequence[Span]) -> tuple[str, str, str]:
    """The text of a JSON array before, between and behind its `items`; without items, as the file's layout suggests."""
    start, end = value
    if items:
        first_start, first_end = items[0]
        _, last_end = items[-1]
        lead = text[start + 1 : first_start]
        between = f",{lead}"
        if len(items) > 1:
            second_start, _ = items[1]
            between = text[first_end:second_start]
        return lead, between, text[last_end : end - 1]
    if "\n" not in text[:start]:
        return "", ", ", ""
    line_start = text.rfind("\n", 0, start) + 1
    trail = "\n" + text[line_start : _skip_white(text, line_start)]
    return f"{trail} ", f",{trail} ", trail
