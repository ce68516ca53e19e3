"""Measures stub detection: false positives in finished Python libraries, and recall of planted stubs.

    python -m bench planted_stubs DIR... [--show]

A random tenth of the functions gets one of six placeholders as its body, hooks, base classes and dummies included,
where nobody could tell a stub from a decision. Precision counts all that is found then.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from midfill_infill.errors import MidfillError
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Hole, Patch

PLACEHOLDERS: Final = {
    "...": "...",
    "NotImplementedError": "raise NotImplementedError",
    "not implemented": 'raise NotImplementedError("not implemented yet")',
    "TODO": "# TODO: write this\n{indent}pass",
    "TODO behind": "pass  # TODO",
    "pass": "pass",
}
SHARE: Final = 0.1


def find_documents(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.rglob("*.py")):
        try:
            yield Document.read(path)
        except MidfillError:
            continue


def plant(document: Document) -> tuple[Document, list[tuple[str, str]]]:
    """Returns the document with stubs, and the name and placeholder of each. Skips functions inside functions.

    What a function draws depends on its path and name alone, so that two versions of the rules get the same stubs.
    """
    stubs = {hole.name for hole in find_stubs(document)}
    edits: list[Edit] = []
    planted: list[tuple[str, str]] = []
    end = 0
    for function in outline(document).functions:
        names = [other.name for other in outline(document).functions]
        drawn = random.Random(f"{document.path}:{function.name}")
        is_fit = function.name and function.name not in stubs and names.count(function.name) == 1
        if function.head < end or not is_fit or function.is_deliberate or drawn.random() > SHARE:
            continue
        hole = body_hole(document, function)
        kind = drawn.choice(list(PLACEHOLDERS))
        edits.append(replace_body(hole, PLACEHOLDERS[kind].format(indent=hole.indent)))
        planted.append((function.name or "", kind))
        end = function.end
    return Document(Patch.of(edits).apply(document.data), "python", document.path), planted


def replace_body(hole: Hole, text: str) -> Edit:
    return Edit(hole.start_byte, hole.end_byte, (hole.lead + text + hole.tail).encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--show", action="store_true", help="print what is found wrongly, and what is not found")
    options = parser.parse_args()
    print("| library | functions | stubs before | planted | found | precision |", "|---|---|---|---|---|---|", sep="\n")
    sums, kinds, missed = Counter[str](), Counter[str](), Counter[str]()
    for folder in options.folders:
        counts = Counter[str]()
        for document in find_documents(folder):
            wrong = find_stubs(document)
            changed, planted = plant(document)
            names = {hole.name for hole in find_stubs(changed)}
            counts.update(functions=len(outline(document).functions), wrong=len(wrong), planted=len(planted))
            for name, kind in planted:
                kinds[kind] += 1
                counts["found"] += name in names
                missed[kind] += name not in names
                if options.show and name not in names:
                    print(f"not found: {kind} in {name} of {document.path}")
            for hole in wrong if options.show else ():
                print(f"wrong: {hole.name} of {document.path}:{document.position_at(hole.start_byte)[0]}")
        print(f"| {folder.name} | {_row(counts)}", flush=True)
        sums.update(counts)
    print(f"| all | {_row(sums)}")
    print(*(f"{kind}: {count - missed[kind]} of {count} found" for kind, count in sorted(kinds.items())), sep="\n")


def _row(counts: Counter[str]) -> str:
    shown = [str(counts[name]) for name in ("functions", "wrong", "planted", "found")]
    precision = 100 * counts["found"] / max(1, counts["found"] + counts["wrong"])
    return " | ".join([*shown, f"{precision:.1f} %"]) + " |"


if __name__ == "__main__":
    main()
