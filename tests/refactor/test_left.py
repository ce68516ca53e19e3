"""A migration lists what it does not follow: one line for each place, with the reason."""

from pathlib import Path

import pytest
from tests.refactor.migrations import WORDS
from tests.refactor.workers import ScriptedWorkers
from typer.testing import CliRunner

from midfill_infill.cli import build_app
from midfill_infill.refactor.generating.generate import generate
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.planning.plan import Planning, Request, find_holes, make_run
from midfill_infill.refactor.planning.selection import Selection
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.repository.roots import find_repository
from midfill_infill.text.document import Document

LEFT = [
    ("python", "import old.api\nx = map(old.api.load, y)\n", [(2, "old.api.load is used, not called")]),
    ("python", "from old.api import load\n@load\ndef f(load): pass\n", [(2, "load is used as a decorator")]),
    (
        "python",
        "from old import api\ngetattr(api, 'load')(1)\ngetattr(x, 'load')\n",
        [(2, "load is looked up by its name")],
    ),
    ("python", "from old.api import load\n__all__ = ['f', 'load']\n", [(2, "load is exported again")]),
    ("python", "from old.api import load as load\n", [(1, "load is exported again")]),
    ("python", "mock.patch('old.api.load')\n# load('old.api.load')\n", [(1, "old.api.load is named in a string")]),
    ("python", "x = importlib.import_module('old.api')\nx.load(1)\n", [(1, "old.api is imported by its name")]),
    (
        "python",
        "from old.api import *\nfrom b import *\nload(1)\n",
        [(3, "load may be another function: 2 wildcard imports may bind load")],
    ),
    (
        "python",
        "from old.api import load\nif x:\n    load = f\nload(1)\n",
        [(4, "load may be another function: line 3 binds load to something else")],
    ),
    (
        "python",
        "from old.api import load\ndef f():\n    global load\n    load = 1\ndef g():\n    load(1)\n",
        [(6, "load may be another function: line 4 binds load to something else")],
    ),
    ("python", "from old.api import load\nclass A:\n    load = f(load)\n", [(3, "load is used, not called")]),
    ("python", "from old.api import load\nload(load(1))\n", [(2, "load is called within a call that is written anew")]),
    ("python", "def load(x): pass\nf(load=1)\nx.load(2)\n", []),
    ("python", "from old.api import load\nload(1)\ndef f(load):\n    return load\n", []),
    (
        "javascript",
        "import { load } from 'old/api';\nxs.map(load);\nconst o = { load };\n",
        [(2, "load is used, not called"), (3, "load is used, not called")],
    ),
    ("javascript", "import { load } from 'old/api';\nload`x`;\n", [(2, "load is called with a template")]),
    (
        "javascript",
        "import { load } from 'old/api';\nexport { load as x };\nexport default load;\n",
        [(2, "load is exported again"), (3, "load is exported again")],
    ),
    (
        "javascript",
        "export { load } from 'old/api';\nexport * from 'old/api';\n",
        [(1, "load is exported again"), (2, "all of old/api is exported again")],
    ),
    (
        "javascript",
        "import * as api from 'old/api';\nconst { load } = api;\napi['load'](1);\n",
        [(2, "api.load is taken out of its module"), (3, "load is looked up by its name")],
    ),
    (
        "javascript",
        "const api = wrap(require('old/api'));\n",
        [(1, "old/api is imported in a way that is not followed")],
    ),
    (
        "javascript",
        "import { load } from 'old/api';\nimport { read } from 'fresh/api';\nconst f = (read) => load(1);\n",
        [(3, "load is called where fresh.api.read is something else")],
    ),
    ("javascript", "import { load } from 'old/api';\nlet a = load(1);\na.load(2);\nf({ load: 1 });\n", []),
    (
        "javascript",
        "module.exports = require('old/api');\n",
        [(1, "old/api is imported in a way that is not followed")],
    ),
    ("typescript", "import { load } from 'old/api';\nlet a: typeof load;\n", [(2, "load is used, not called")]),
    (
        "rust",
        "use old::api::load;\nfn f() { assert_eq!(load(1), 2); }\nfn g() { xs.map(load); }\n",
        [(2, "load stands in a macro"), (3, "load is used, not called")],
    ),
    (
        "rust",
        "pub use old::api::load;\npub use old::api::*;\n",
        [(1, "load is exported again"), (2, "load is exported again")],
    ),
    ("rust", "use old::api::load;\nmod m { pub use super::load; }\n", [(2, "load is exported again")]),
    ("python", "from old.api import load\nglobals()['load'](1)\n", [(2, "load is looked up by its name")]),
    ("go", 'package p\n\nimport "old/api"\n\nvar f = api.Load\n', [(5, "api.Load is used, not called")]),
    (
        "go",
        'package p\n\nimport (\n\t"old/api"\n\tn "fresh/api"\n)\n\nfunc f(n int) { api.Load(1) }\n',
        [(8, "api.Load is called where fresh/api.Read is something else")],
    ),
    (
        "java",
        "import old.api.Loader;\nclass A { Object x = xs.map(Loader::load); }\n",
        [(2, "Loader.load is used, not called")],
    ),
    (
        "java",
        "import old.api.*;\nimport b.*;\nclass A { int x = Loader.load(1); }\n",
        [(3, "Loader.load may be another function: 2 wildcard imports may bind Loader")],
    ),
    (
        "cpp",
        "using old::api::load;\n#define M(x) load(x)\nauto f = &load;\n",
        [(2, "load stands in a macro"), (3, "load is used, not called")],
    ),
    ("cpp", "namespace mine { using old::api::load; }\n", [(1, "load is exported again")]),
    (
        "c",
        "#define M(x) old_load(x)\nvoid (*p)(int) = old_load;\nint f(int new_read) { return old_load(1); }\n",
        [
            (1, "old_load stands in a macro"),
            (2, "old_load is used, not called"),
            (3, "old_load is called where new_read is something else"),
        ],
    ),
]


@pytest.mark.parametrize(("language", "code", "expected"), LEFT)
def test_what_is_not_followed_is_listed_with_its_line(
    language: str, code: str, expected: list[tuple[int, str]]
) -> None:
    document = Document(code.encode(), language)
    selection = Selection(recipe=f"migrate-call={WORDS.get(language, 'old.api.load:fresh.api.read')}")
    found = [(document.position_at(at)[0], reason) for at, reason in selection.list_unfollowed(document, "m")]
    assert sorted(found) == expected


GO = "package l\n\nfunc (l *List) Push(v any) {\n\tl.lazyInit()\n\tl.root.lazyInit()\n\tl.init()\n}\n"
JAVA = "class A {\n  int f(A u) {\n    return own(4) + this.own(5) + u.own(3);\n  }\n}\n"
METHOD = "is called on a value, whose type is not followed"


@pytest.mark.parametrize(("language", "code", "old", "num_holes", "expected"), [
    ("go", GO, "lazyInit", 0, [f"l.lazyInit {METHOD}", f"l.root.lazyInit {METHOD}"]),
    ("go", GO, "*.lazyInit", 0, [f"l.lazyInit {METHOD}", f"l.root.lazyInit {METHOD}"]),
    ("go", GO, "l.lazyInit", 0, [f"l.lazyInit {METHOD}"]),
    ("go", GO, "list.lazyInit", 0, []),
    ("java", JAVA, "own", 1, [f"this.own {METHOD}", f"u.own {METHOD}"]),
    ("java", JAVA, "*.own", 1, [f"u.own {METHOD}"]),
])  # fmt: skip
def test_methods_that_are_not_followed_are_listed(
    language: str, code: str, old: str, num_holes: int, expected: list[str]
) -> None:
    document, selection = Document(code.encode(), language), Selection(recipe=f"migrate-call={old}:setup")
    assert len(list(selection.find(document, "m"))) == num_holes
    assert [reason for _, reason in selection.list_unfollowed(document, "m")] == expected


def test_a_plan_lists_what_it_does_not_follow(tmp_path: Path) -> None:
    files = {
        "a.py": "from old.api import load\nx = load(1)\nf(load)\n",
        "b.go": 'package b\n\nimport "old/api"\n\nvar f = api.load\n',
        "c.py": "def g(load):\n    return load\n",
        "p/__init__.py": "from old.api import load\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    planning = Planning()
    request = Request(Selection(recipe="migrate-call=old.api.load:fresh.api.read"), folder=tmp_path)
    found = [file.path for file in find_holes(find_repository(tmp_path), request, planning)]
    assert found == ["a.py"]
    assert planning.unfollowed == [
        ("a.py", 3, "load is used, not called"),
        ("b.go", 5, "api.load is used, not called"),
        ("p/__init__.py", 1, "load is exported again"),
    ]


def test_the_command_prints_a_line_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("from old.api import load\nx = map(load, [load(1)])\ngetattr(old.api, 'load')\n")
    monkeypatch.chdir(tmp_path)
    words = ["refactor", "plan", "--recipe", "migrate-call=old.api.load:fresh.api.read"]
    for more in (["--dry-run"], []):
        said = CliRunner().invoke(build_app(), [*words, *more]).stderr.splitlines()
        assert said == [
            "1 hole in 1 file; 1 file looked at",
            "not followed, a.py:2: load is used, not called",
            "not followed, a.py:3: load is looked up by its name",
        ]


def test_what_is_written_calls_the_new_function(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from fresh.api import read\nfrom old.api import load\n\n\ndef f(read):\n    return load(1)\n\n\n"
        "def g(load):\n    return load(2)\n\n\nx = load(3)\n"
    )
    selection = Selection(recipe="migrate-call=old.api.load:fresh.api.read")
    with Journal(make_run(find_repository(tmp_path), Request(selection, folder=tmp_path), Planning())) as journal:
        generate(journal, tmp_path, ScriptedWorkers(lambda _: "path"), jobs=1)
        journal.accept(journal.acceptable())
        Writer(journal, tmp_path).apply(list(journal.holes_in(State.ACCEPTED)), is_git=False)
    assert (tmp_path / "a.py").read_text() == (
        "import fresh.api\nfrom fresh.api import read\nfrom old.api import load\n\n\ndef f(read):\n"
        "    return fresh.api.read(path)\n\n\ndef g(load):\n    return load(2)\n\n\nx = read(path)\n"
    )


def test_what_is_not_followed_obeys_the_selection() -> None:
    code = "from old.api import load\ndef f():\n    return map(load, x)\ndef g():\n    return map(load, x)\n"
    selection = Selection(recipe="migrate-call=old.api.load:fresh.api.read", names=("*:g",))
    document = Document(code.encode(), "python")
    assert [document.position_at(at)[0] for at, _ in selection.list_unfollowed(document, "m.py")] == [5]
