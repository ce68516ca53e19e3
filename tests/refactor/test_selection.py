"""Selectors restrict one another; `--where` asks the tree; a recipe takes what it says in every language it names."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from midfill_infill.errors import MidfillError
from midfill_infill.languages import find_language
from midfill_infill.refactor.journal.records import spec_of
from midfill_infill.refactor.planning.calls import CallSite, find_calls
from midfill_infill.refactor.planning.recipes import docstrings
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.text.document import Document

CODE = '''import old.api as oa
from old.api import load, save as keep


def public(path):  # TODO: say what it does
    return load(path)


def described(path):
    """Not TODO, and load(path) is not called here."""
    return path.load(1)


def stub(path):
    ...


class Box:
    def get(self):
        text = "TODO load(x)"
        return oa.load(
            text
        )

    def _own(self):
        return keep(self)


load(1)
'''


def found(selection: Selection, code: str = CODE, name: str = "pkg/mod.py") -> list[str | None]:
    document = Document(code.encode(), find_language(Path(name)), Path(name))
    return [
        hole.name or document.data[hole.start_byte : hole.end_byte].decode() for hole in selection.find(document, name)
    ]


BROAD = "oa.load(\n            text\n        )"
ALL = ["public", "described", "stub", "Box.get", "Box._own"]
CASES: list[tuple[dict[str, object], list[str]]] = [
    ({"names": ("*:*",)}, ALL),
    ({"names": ("pkg.mod:public", "pkg.mod:Box.*")}, ["public", "Box.get", "Box._own"]),
    ({"names": ("other:*",)}, []),
    ({"stubs": True, "names": ("*:Box.*",)}, []),
    ({"stubs": True, "names": ("*:stub",)}, ["stub"]),
    ({"recipe": "add-docstrings"}, ["public", "Box.get"]),
    ({"recipe": "add-docstrings", "names": ("*:Box.*",)}, ["Box.get"]),
    ({"recipe": "add-docstrings", "where": ("calls load",), "names": ("*:public",)}, ["public"]),
    ({"recipe": "migrate-call=old.api.load"}, ["load(path)", BROAD, "load(1)"]),
    ({"recipe": "migrate-call=old.api.*", "names": ("*:Box.*",)}, [BROAD, "keep(self)"]),
    ({"recipe": "migrate-call=load"}, ["load(path)", "load(1)"]),
    ({"recipe": "migrate-call=old.api.load", "where": ("lines > 4",)}, [BROAD]),
    ({"recipe": "migrate-call=old.api.load", "query": "(class_definition) @fill"}, [BROAD]),
    ({"query": "(return_statement) @fill", "names": ("*:public",)}, ["return load(path)"]),
    ({"where": ("calls load",)}, ["public", "described", "Box.get"]),
    ({"where": ("calls old.api.load",)}, ["public", "Box.get"]),
    ({"where": ("calls old.api.save",)}, ["Box._own"]),
    ({"where": ("not calls load",)}, ["stub", "Box._own"]),
    ({"where": ("has TODO",)}, ["public"]),
    ({"where": ("no docstring", "lines <= 2")}, ["public", "stub", "Box._own"]),
    ({"where": ("has docstring",)}, ["described"]),
    ({"where": ("lines > 4",)}, ["Box.get"]),
    ({"where": ("lines = 3",), "stubs": True}, []),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), CASES, ids=[json.dumps(options) for options, _ in CASES])
def test_selectors_restrict_one_another(options: dict[str, object], expected: list[str]) -> None:
    assert found(Selection(**options)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "calls", "has", "lines 40", "lines > many", "no comment", "is long"])
def test_a_condition_that_is_not_understood_names_the_forms(text: str) -> None:
    with pytest.raises(MidfillError) as raised:
        Selection(where=(text,))
    assert raised.value.code == "bad_selector" and "calls NAME" in raised.value.next_step


def certainly_calls(call: CallSite, pattern: str) -> bool:
    return call.may_call(pattern) and not call.meaning.doubt


CALLS = {
    "a.rs": (
        "use old::api::{load, save as s};\nuse old::api;\n"
        "fn f() { load(1); s(1); api::load::<i32>(2); old::api::load(3); x.load(4); Box::new(5); mine::load(6); }\n",
        "old::api::load",
        ["load(1)", "api::load::<i32>(2)", "old::api::load(3)"],
    ),
    "a.java": (
        "import old.api.Loader;\nimport static old.api.Loader.load;\nclass A { void f() {\n"
        "Loader.load(1); load(2); other.load(3); new Loader(4); old.api.Loader.load(5); } }\n",
        "old.api.Loader.load",
        ["Loader.load(1)", "load(2)", "old.api.Loader.load(5)"],
    ),
    "b.java": (
        "import old.api.Loader;\nclass A { Object f() { return new Loader<String>(1); } }\n",
        "old.api.Loader",
        ["new Loader<String>(1)"],
    ),
    "a.go": (
        'package a\nimport (\n\t"example.com/old/api"\n\to "example.com/other"\n)\n'
        "func f() { api.Load(1); o.Load(2); Load(3) }\n",
        "old/api.Load",
        ["api.Load(1)"],
    ),
    "a.ts": (
        "import { load as l, save } from 'old/api';\nimport * as api from 'old/api';\nimport Thing from 'old/thing';\n"
        "l(1); save(2); api.load(3); load(4); new Thing(5); api?.load(6);\n",
        "old/api.load",
        ["l(1)", "api.load(3)", "api?.load(6)"],
    ),
    "b.ts": ("import Thing from 'old/thing';\nconst a = new Thing<number>(5);\n", "Thing", ["new Thing<number>(5)"]),
    "a.cpp": ("int f() { return old::api::load<int>(1) + p->load(2); }\n", "old::api::*", ["old::api::load<int>(1)"]),
    "a.c": ("int f(void) { return old_load(1) + load(2); }\n", "old_*", ["old_load(1)"]),
    "a.py": ("from old import *\nfrom . import api\nload(1)\napi.load(2)\n", "old.load", ["load(1)"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_known_by_imports(name: str) -> None:
    code, pattern, expected = CALLS[name]
    document = Document(code.encode(), find_language(Path(name)), Path(name))
    calls = [
        document.source[call.start : call.end].decode()
        for call in find_calls(document)
        if certainly_calls(call, pattern)
    ]
    assert calls == expected
    assert found(Selection(recipe=f"migrate-call={pattern}"), code, name) == expected


MIGRATED = {
    "a.py": ("from old.api import load\nload(1)\n", "read()", ("from new.api import read",)),
    "b.py": ("import new.api as n\nimport old.api\nold.api.load(1)\n", "n.read()", ()),
    "c.py": ("import old.api\nread = old.api.load(1)\n", "new.api.read()", ("import new.api",)),
    "d.py": ("from new import api\nfrom old.api import load\nload(1)\n", "api.read()", ()),
    "e.py": ("import new\nfrom old.api import load\nload(1)\n", "read()", ("from new.api import read",)),
    "a.ts": ("import { load } from 'old/api';\nimport { read as r } from 'new/api';\nload(1);\n", "r()", ()),
    "a.java": ("import new.api;\nimport old.api;\nclass A { int a = api.load(1); }\n", "new.api.read()", ()),
    "a.go": ('package a\nimport "x.org/old/api"\nfunc f() { api.load(1) }\n', "api.read()", ()),
    "a.rs": ("use old::api;\nfn f() { api::load(1); }\n", "new::api::read()", ()),
}


@pytest.mark.parametrize("name", MIGRATED)
def test_the_new_function_is_written_as_the_file_knows_it_and_the_old_call_is_shown(name: str) -> None:
    code, expected, imports = MIGRATED[name]
    document = Document(code.encode(), find_language(Path(name)), Path(name))
    new = "new/api.read" if name == "a.go" else "new.api.read"
    (hole,) = Selection(recipe=f"migrate-call=old.api.load:{new}").find(document, name)
    assert (hole.lead + hole.tail, hole.imports) == (expected, imports)
    assert hole.note.endswith("load(1)") and spec_of(hole).count(hole.note) == 1


WHERE = {
    "a.ts": (
        "// TODO later\nfunction a() {\n  // TODO now\n  return f('TODO');\n}\n\n"
        "/** Said. */\nfunction b() { return 'TODO'; }\n"
    ),
    "a.go": (
        'package a\n\nfunc a() int {\n\t// TODO now\n\treturn f(1)\n}\n\n'
        '// Said.\nfunc b() string { return "TODO" }\n'
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHERE)
def test_conditions_know_other_languages(name: str) -> None:
    assert found(Selection(where=("has TODO",)), WHERE[name], name) == ["a"]
    assert found(Selection(where=("calls f",)), WHERE[name], name) == ["a"]
    assert found(Selection(where=("has docstring",)), WHERE[name], name)[-1:] == ["b"]


LONG = {
    "docstring.js": ("// a\nfunction f{0}() {{}}\n", Selection(where=("has docstring",))),
    "calls.py": ("def f{0}():\n    g()\n", Selection(where=("calls g",))),
    "words.py": ("def f{0}():\n    # a TODO\n    g()\n", Selection(where=("has TODO",))),
    "used.py": ("@a\ndef g{0}(): return 1\n@a\ndef f{0}():\n    ...\n", Selection(stubs=True)),
    "space.cpp": ("int f{0}() {{ return old::load(1); }}\n", Selection(recipe="migrate-call=old::load:b::c")),
    "again.py": ("x = old.load({0})\nx.y()\n", Selection(recipe="migrate-call=old.load:new.read")),
}


def count_calls(run: Callable[[], object]) -> int:
    """How many functions of Python `run` calls."""
    num_calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event == "call"

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return num_calls


@pytest.mark.parametrize("name", LONG)
def test_ten_times_the_file_takes_about_ten_times_as_long(name: str) -> None:
    item, selection = LONG[name]

    def select(num_items: int) -> None:
        code = "".join(item.format(number) for number in range(num_items))
        code = {".py": f"import old\n{code}", ".cpp": f"namespace a {{\n{code}}}\n"}.get(Path(name).suffix, code)
        document = Document(code.encode(), find_language(Path(name)), Path(name))
        assert len(selection.find(document, name)) == num_items
        assert [*selection.list_unfollowed(document, name)] == []

    select(1)  # fills the caches that all documents share
    assert count_calls(lambda: select(200)) < 13 * count_calls(lambda: select(20))


def test_a_thousand_stubs_of_a_file_are_found_in_a_moment() -> None:
    code = "".join(f"def f{number}(a):\n    ...\n\n\n" for number in range(1500))
    start_s = time.process_time()
    assert len(found(Selection(stubs=True), code, "a.py")) == 1500
    assert time.process_time() - start_s < 1.5


PUBLIC = """__all__ = ["shown", "Shown"]
from typing import overload, override


def shown(): return 1


def hidden():
    return 1


@overload
def shown(x): return 2


class Shown:
    def get(self):
        return 1

    def __call__(self): return 1
    def __init__(self):
        self.x = 1

    def __str__(self):
        return ""

    @property
    def a(self):
        return 1

    @a.setter
    def a(self, x):
        self.x = x

    @override
    def b(self):
        return 1

    class In:
        def c(self):
            def inner():
                return 1
            return inner

    class _In:
        def d(self):
            return 1

    def said(self):
        "Said."

    def bytes(self):
        b"no"

    async def e(
        self, x="):",
    ):  # note
        # note
        return x
"""


def test_docstrings_go_where_ruff_misses_them(tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("needs ruff")
    expected = []
    files = {
        "mod.py": PUBLIC,
        "_mod.py": PUBLIC,
        "_pkg/mod.py": PUBLIC,
        "__init__.py": PUBLIC,
        "note.py": PUBLIC.replace('"]', '",  # "hidden"\n]', 1),
        "said.py": '"""\n__all__ is not set.\n"""\ndef f(): return 1\n',
    }
    for name, code in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
        (path.parent / "__init__.py").touch()
        words = [
            ruff,
            "check",
            "--isolated",
            "--no-cache",
            "--select",
            "D102,D103",
            "--output-format",
            "json",
            str(path),
        ]
        said = json.loads(subprocess.run(words, capture_output=True, check=False).stdout)
        rows = [found["location"]["row"] for found in said if found["code"] in ("D102", "D103")]
        document = Document(code.encode(), "python", Path(name))
        holes = list(docstrings.find(document, ""))
        expected.append((name, len(rows)))
        assert len(holes) == len(rows)
    assert expected == [
        ("mod.py", 7),
        ("_mod.py", 0),
        ("_pkg/mod.py", 0),
        ("__init__.py", 7),
        ("note.py", 7),
        ("said.py", 1),
    ]


IMPORTED = {
    "python": [
        "try:\n    from old.api import load\nexcept ImportError:\n    load = None\nload(1)\n",
        "if X:\n    import old.api as api\napi.load(1)\n",
        "def f(x):\n    from old.api import load\n    return load(x)\n",
        "def f(x):\n    from old.api import load as read\n    return [read(y) for y in x]\n",
        "import old.api\n\n\nclass A:\n    def f(self):\n        return old.api.load(self)\n",
    ],
    "javascript": [
        "const { load } = require('old/api');\nload(1);\n",
        "const api = require('old/api');\napi.load(1);\n",
        "function f() {\n  const { load: read } = require('./old/api');\n  return read(1);\n}\n",
        "const load = require('old/api').load;\nload?.(1);\n",
        "async function f() {\n  const { load } = await import('old/api');\n  return await load(1);\n}\n",
    ],
    "typescript": [
        "import { load } from 'old/api';\nconst x = await load<T>(1);\n",
        "import { load } from 'old/api';\nasync function f(): Promise<T> {\n  return await load<T>(1);\n}\n",
    ],
    "rust": [
        "fn f() {\n    use old::api::load;\n    load(1);\n}\n",
        "mod m {\n    use old::api;\n    fn f() { api::load(1); }\n}\n",
    ],
}
SHADOWED = {
    "python": [
        "from old.api import load\n\n\ndef f(load, x):\n    return load(x)\n",
        "from old.api import load\n\n\nf = lambda load, x: load(x)\n",
        "from old.api import load\n\n\ndef f(*, load=None):\n    def g(y):\n        return load(y)\n\n    return g\n",
        "def f(x):\n    from old.api import load\n\n\ndef g(x):\n    return read(x)\n",
    ],
    "javascript": [
        "import { load } from 'old/api';\nconst f = (load, x) => load(x);\n",
        "import { load } from 'old/api';\nfunction f({ load }) {\n  return load(1);\n}\n",
        "import { load } from 'old/api';\nconst f = load => load(1);\n",
    ],
    "rust": ["use old::api::load;\nfn f(load: fn(i32)) {\n    load(1);\n}\n"],
    "go": ['package p\n\nimport "old/api"\n\nfunc f(api T) {\n\tapi.load(1)\n}\n'],
}
SCOPED = [(language, code, 1) for language, codes in IMPORTED.items() for code in codes]
SCOPED += [(language, code, 0) for language, codes in SHADOWED.items() for code in codes]


@pytest.mark.parametrize(("language", "code", "count"), SCOPED)
def test_calls_are_resolved_where_their_imports_stand(language: str, code: str, count: int) -> None:
    document = Document(code.encode(), language)
    calls = [call for call in find_calls(document) if certainly_calls(call, "old.api.load")]
    assert len(calls) == count
    assert not any(code.encode()[call.start : call.end].startswith(b"await") for call in calls)


def test_a_default_or_a_type_binds_no_name() -> None:
    code = "from old.api import load\n\n\ndef f(x=load, y: load = 1):\n    return load(x)\n"
    calls = [call for call in find_calls(Document(code.encode(), "python")) if certainly_calls(call, "old.api.load")]
    assert len(calls) == 1
