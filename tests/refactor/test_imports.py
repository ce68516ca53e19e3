"""Imports that a fill needs stand at the top, sorted, and go with it; what nobody added stays."""

import itertools
import random
import sysconfig
import time
from pathlib import Path

import pytest
from tests.refactor.trees import init_git
from tests.refactor.workers import ScriptedWorkers

from midfill_engine.wire import InfillRequest, TextSegment
from midfill_infill.refactor.generating.generate import generate
from midfill_infill.refactor.generating.needs import Resolver
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.planning.plan import Planning, Request, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.refactor.reporting.export import exported
from midfill_infill.refactor.verifying.verify import Verifier
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.refactor.writing.imports import find_undefined, put_in, take_out
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import open_copy
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Edit, Patch

JSON, ANY, NUMPY = "import json", "from typing import Any", "import numpy as np"
PLACED = [
    ("def f(): ...\n", (JSON,), "import json\n\n\ndef f(): ...\n"),
    ('"""Doc."""\n\nx = 1\n', (JSON, ANY), '"""Doc."""\n\nimport json\nfrom typing import Any\n\nx = 1\n'),
    ("#!/bin/x\n\nx = 1", (JSON,), "#!/bin/x\n\nimport json\n\nx = 1"),
    ("import os\nimport sys\n", (JSON, NUMPY), "import json\nimport os\nimport sys\n\nimport numpy as np\n"),
    ("import requests\n\nfrom . import a\n", (JSON,), "import json\n\nimport requests\n\nfrom . import a\n"),
    ("from typing import IO, cast\n", (ANY,), "from typing import IO, Any, cast\n"),
    ("from typing import (\n    IO,\n    cast,\n)", (ANY,), "from typing import (\n    IO,\n    Any,\n    cast,\n)"),
    ("from typing import Any\n", (ANY,), "from typing import Any\n"),
    ("import os\r\n", ("import zlib",), "import os\r\nimport zlib\r\n"),
    ("", (JSON,), "import json"),
    ("\ufeffx = 1\r\n", (JSON,), "\ufeffimport json\r\n\r\nx = 1\r\n"),
    ("\ufeffimport os\n", (JSON, "import os"), "\ufeffimport json\nimport os\n"),
    ("import os\nfrom . import a\n", (NUMPY,), "import os\nimport numpy as np\nfrom . import a\n"),
]  # fmt: skip


def put_all(document: Document, statements: tuple[str, ...]) -> Document:
    for statement in statements:
        if edit := put_in(document, statement):
            document = Document(Patch((edit,)).apply(document.data), "python")
    return document


def take_all(document: Document, statements: tuple[str, ...]) -> Document:
    for statement in statements:
        if edit := take_out(document, statement):
            document = Document(Patch((edit,)).apply(document.data), "python")
    return document


@pytest.mark.parametrize(("before", "statements", "after"), PLACED)
def test_imports_are_put_into_place_and_taken_out_again(before: str, statements: tuple[str, ...], after: str) -> None:
    document = Document(before.encode(), "python")
    there = tuple(statement for statement in statements if put_in(document, statement) is None)
    filled = put_all(document, statements)
    assert filled.data.decode() == after
    for order in itertools.permutations(set(statements) - set(there)):
        assert take_all(filled, order).data == document.data


def test_imports_put_into_real_files_and_taken_out_leave_them_unchanged() -> None:
    draw = random.Random(5)
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    statements = (JSON, ANY, NUMPY, "from a.b import C", "import zzz", "from pathlib import Path", "import re")
    for path in draw.sample(files, 60):
        document = Document(path.read_bytes(), "python")
        wanted = tuple(text for text in draw.sample(statements, 4) if put_in(document, text))
        filled = put_all(document, tuple(sorted(wanted)))
        assert (find_undefined(filled.source) is None) == (find_undefined(document.source) is None)
        assert take_all(filled, wanted).data == document.data, path


NAMES = {
    "import os\nprint(os.x, y, [z for z in ()], len, __file__)\n": {"y"},
    "def f(a: T, *b: 'U') -> V:\n    global w\n    w = a\n    return w + c\n": {"T", "V", "c"},
    "from __future__ import annotations\ndef f(a: T): pass\n": {"T"},
    "\ufeffprint(y)\n": {"y"},
    "class A:\n    b = 1\n    def g(self): return b\n": {"b"},
}


@pytest.mark.parametrize("source", NAMES)
def test_names_that_nothing_binds(source: str) -> None:
    assert find_undefined(source.encode()) == NAMES[source]


def test_names_of_thousands_of_functions_are_told_in_a_moment() -> None:
    code = "".join(f"def f{number}(): return x{number % 3}\n" for number in range(8000))
    start_s = time.process_time()
    assert find_undefined(code.encode()) == {"x0", "x1", "x2"}
    assert time.process_time() - start_s < 1


@pytest.mark.parametrize("source", ["def f(:\n", "from x import *\ny\n"])
def test_names_that_cannot_be_told(source: str) -> None:
    assert find_undefined(source.encode()) is None


FILES = {
    "src/pkg/tools.py": "import numpy as np\n\n\nclass Box:\n    pass\n",
    "src/pkg/a.py": '"""Doc."""\n\nfrom typing import IO\n\n\ndef f(x):\n    ...\n\n\ndef g(x):\n    ...\n',
    "tests/test_a.py": "class Other:\n    pass\n",
}
FILLS = {
    "f": "y: Any = Box(json.loads(x))\n    return y, Other, nowhere",
    "g": "return np.array(json.dumps(x))",
}
FILLED = (
    '"""Doc."""\n\nimport json\nfrom typing import IO, Any\n\nimport numpy as np\nfrom pkg.tools import Box\n\n\n'
    f"def f(x):\n    {FILLS['f']}\n\n\ndef g(x):\n    {FILLS['g']}\n"
)


def answer(request: InfillRequest) -> str:
    before = next(segment.text for segment in request.segments if isinstance(segment, TextSegment))
    return FILLS[before.rpartition("def ")[2][:1]]


def fill_all(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    init_git(root)
    run = make_run(find_repository(root), Request(Selection(stubs=True, names=("pkg.a:*",))), Planning())
    with Journal(run) as journal:
        generate(journal, root, ScriptedWorkers(answer), jobs=1)
        journal.accept(journal.acceptable())
    return run


def test_a_fill_brings_what_it_needs_and_takes_it_along(tmp_path: Path) -> None:
    path = tmp_path / "src/pkg/a.py"
    with Journal(fill_all(tmp_path)) as journal:
        first, second = journal.holes_in(State.ACCEPTED)
        fill = journal.fill(first)
        assert fill and fill.imports == ("from pkg.tools import Box", ANY, JSON)
        assert next(iter(exported(journal))).after.decode() == FILLED
        writer = Writer(journal, tmp_path)
        writer.apply([first, second], is_git=True)
        assert path.read_text() == FILLED
        writer.undo([journal.hole(first.id)])
        text = path.read_text()
        assert "import json" in text and "np" in text and "Any" not in text and "Box" not in text
        writer.undo([journal.hole(second.id)])
        assert path.read_text() == FILES["src/pkg/a.py"]


@pytest.mark.parametrize(
    ("files", "statement"),
    [
        (("src/pkg/m.py",), "from pkg.m import Box"),
        (
            ("backend/app/__init__.py", "backend/app/sub/__init__.py", "backend/app/sub/m.py"),
            "from app.sub.m import Box",
        ),
        (("libs/a/src/a/__init__.py", "libs/a/src/a/m.py"), "from a.m import Box"),
        (("__init__.py", "pkg/__init__.py", "pkg/m.py"), "from pkg.m import Box"),
        (("space/pkg/m.py",), "from space.pkg.m import Box"),
    ],
)
def test_a_module_is_imported_from_its_outermost_package(
    tmp_path: Path, files: tuple[str, ...], statement: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("class Box: pass\n" if name.endswith("m.py") else "")
    document = Document(b"def f():\n    ...\n", "python", Path("use.py"))
    assert Resolver(tmp_path).find(document, Edit(13, 16, b"return Box()")) == (statement,)


def test_an_import_that_somebody_uses_by_now_stays(tmp_path: Path) -> None:
    path = tmp_path / "src/pkg/a.py"
    with Journal(fill_all(tmp_path)) as journal:
        writer = Writer(journal, tmp_path)
        writer.apply(list(journal.holes_in(State.ACCEPTED)), is_git=True)
        path.write_text(path.read_text() + "\n\nprint(json.dumps(1))\n")
        report = writer.undo(list(journal.holes_in(State.APPLIED)))
    assert report.troubles == [] and "import json\n" in path.read_text() and "numpy" not in path.read_text()


@pytest.mark.parametrize("when", ["before", "between", "wildcard"])
def test_an_import_of_the_user_stays(tmp_path: Path, when: str) -> None:
    path = tmp_path / "src/pkg/a.py"
    mine = '"""Doc."""\n\nimport json\nfrom typing import IO\n'
    with Journal(fill_all(tmp_path)) as journal:
        writer = Writer(journal, tmp_path, allow_dirty=True)
        holes = list(journal.holes_in(State.ACCEPTED))
        if when == "before":
            path.write_text(path.read_text().replace('"""Doc."""\n\nfrom typing import IO\n', mine))
            before = path.read_text()
            assert before.startswith(mine)
        writer.apply(holes, is_git=True)
        if when == "between":  # the run's own import is replaced by the user's
            writer.undo(list(journal.holes_in(State.APPLIED)))
            path.write_text(path.read_text().replace('"""Doc."""\n\nfrom typing import IO\n', mine))
            before = path.read_text()
            writer.apply([journal.hole(hole.id) for hole in holes], is_git=True)
        if when == "wildcard":
            path.write_text(path.read_text() + "\nfrom os import *\n\nprint(json)\n")
            before = FILES["src/pkg/a.py"].replace("\nfrom typing", "\nimport json\nfrom typing", 1)
            before += "\nfrom os import *\n\nprint(json)\n"
        assert writer.undo(list(journal.holes_in(State.APPLIED))).troubles == []
    assert path.read_text() == before


@pytest.mark.parametrize("chosen", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("is_written", [False, True])
def test_the_copy_that_is_tested_has_what_its_fills_need(
    tmp_path: Path, chosen: tuple[int, ...], is_written: bool
) -> None:
    with Journal(fill_all(tmp_path / "repo")) as journal:
        if is_written:
            Writer(journal, tmp_path / "repo").apply(list(journal.holes_in(State.ACCEPTED)), is_git=True)
        with open_copy(find_repository(tmp_path / "repo"), sandboxed=False) as copy:
            Verifier(copy, journal, [1, 2], Command(("true",), sandboxed=False)).put(chosen)
            text = (copy.mirror.work / "src/pkg/a.py").read_text()
    assert ("import json" in text, "Box" in text, "numpy" in text) == (bool(chosen), 1 in chosen, 2 in chosen)
    assert chosen != () or text == FILES["src/pkg/a.py"]
    assert chosen != (1, 2) or text == FILLED
