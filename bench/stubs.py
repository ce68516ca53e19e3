"""Counts the stubs of finished packages, which should have none, and finds placeholders that are planted in them.

    python -m bench stubs DIR... [--show]

Each planted placeholder replaces the body of one function, drawn at random from all functions of all folders; the rest
of its file and package stay as they are.
"""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.outline import outline
from midfill_infill.syntax.stubs import is_stub
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Hole, Patch

PLACEHOLDERS: Final = (
    "...",
    "raise NotImplementedError",
    'raise NotImplementedError("later")',
    "pass  # TODO",
)
NUM_PLANTED: Final = 300


def find_documents(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.rglob("*.py")):
        try:
            yield Document.read(path)
        except MidfillError:
            continue


def show(document: Document, function: Function) -> str:
    lines = document.source_lines
    first, last = (lines.at(byte) for byte in (function.start, max(function.head, function.end - 1)))
    text = document.source[lines.start(first) : lines.end(last)].decode("utf-8", "replace")
    return f"{document.path}:{lines.at(function.head) + 1}: {function.name}\n{text}"


def replace_body(hole: Hole, text: str) -> Edit:
    return Edit(hole.start_byte, hole.end_byte, (hole.lead + text + hole.tail).encode())


def finds_planted(path: Path, head: int, placeholder: str) -> bool:
    document = Document.read(path)
    function = next(candidate for candidate in outline(document).functions if candidate.head == head)
    edit = replace_body(body_hole(document, function), placeholder)
    planted = Document(Patch.of([edit]).apply(document.data), document.language, path)
    return any(candidate.head == head and is_stub(planted, candidate) for candidate in outline(planted).functions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--show", action="store_true", help="print the stubs, and what is planted and not found")
    options = parser.parse_args()
    finished: list[tuple[Path, int]] = []
    num_functions = num_stubs = 0
    for folder in options.folders:
        functions = stubs = 0
        for document in find_documents(folder):
            for function in outline(document).functions:
                functions += 1
                if is_stub(document, function):
                    stubs += 1
                    if options.show:
                        print(show(document, function))
                elif function.path and function.statements and not (function.is_placeholder or function.is_deliberate):
                    assert document.path is not None
                    finished.append((document.path, function.head))
        print(f"{folder.name}: {functions} functions, {stubs} stubs", flush=True)
        num_functions, num_stubs = num_functions + functions, num_stubs + stubs
    print(f"all: {num_functions} functions, {num_stubs} stubs, {100 * num_stubs / max(1, num_functions):.3f} %")
    for placeholder in PLACEHOLDERS:
        drawn = random.Random(placeholder).sample(finished, min(NUM_PLANTED, len(finished)))
        missed = [(path, head) for path, head in drawn if not finds_planted(path, head, placeholder)]
        print(f"{placeholder}: {len(drawn) - len(missed)} of {len(drawn)} found", flush=True)
        for path, head in missed if options.show else ():
            print(f"not found: {placeholder} at byte {head} of {path}")


if __name__ == "__main__":
    main()
