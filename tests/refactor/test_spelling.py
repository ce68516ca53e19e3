"""The new function of a migration is spelled with a name that stands for it at the call."""

import pytest
from tests.refactor.migrations import find

BOTH = "from old.api import load\nfrom fresh.api import read\n"
QUALIFIED = ("fresh.api.read()", ("import fresh.api",))
SPELLED = [
    ("python", f"{BOTH}load(1)\n", "read()", ()),
    ("python", f"{BOTH}def f(read):\n    load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    load(1)\n    read = 2\n", *QUALIFIED),
    ("python", f"{BOTH}x = [load(read) for read in y]\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    for read in x:\n        load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    def read(): pass\n    load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    class read: pass\n    load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    if (read := 1):\n        load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    try:\n        pass\n    except E as read:\n        load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f():\n    with x as read:\n        load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f(x):\n    match x:\n        case [read]:\n            load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}f = lambda read: load(1)\n", *QUALIFIED),
    ("python", f"{BOTH}read = 1\nload(1)\n", *QUALIFIED),
    ("python", f"{BOTH}def f(fresh, read):\n    load(1)\n", "fresh_api.read()", ("import fresh.api as fresh_api",)),
    (
        "python",
        "import old.api, fresh.api\ndef f(fresh):\n    old.api.load(1)\n",
        "read()",
        ("from fresh.api import read",),
    ),
    (
        "python",
        "from old.api import load\nread = fresh = fresh_api = 1\nload(1)\n",
        "fresh_api_.read()",
        ("import fresh.api as fresh_api_",),
    ),
    ("python", "from old.api import load\ndef f():\n    from fresh.api import read\nload(1)\n", *QUALIFIED),
    ("python", "from old.api import load\ndef f():\n    load(1)\n    from fresh.api import read\n", *QUALIFIED),
    (
        "python",
        "from old.api import load\ndef f():\n    if x:\n        from fresh.api import read\n    load(1)\n",
        *QUALIFIED,
    ),
    (
        "python",
        "from old.api import load\ndef f():\n    if x:\n        from fresh.api import read\n        load(1)\n",
        "read()",
        (),
    ),
    (
        "python",
        "from old.api import load\nclass A:\n    from fresh.api import read\n    def f(self):\n        load(1)\n",
        *QUALIFIED,
    ),
    ("python", "from old.api import load\nif TYPE_CHECKING:\n    from fresh.api import read\nload(1)\n", *QUALIFIED),
    (
        "python",
        "from old.api import load\ntry:\n    from fresh.api import read\nexcept E:\n    raise\nload(1)\n",
        "read()",
        (),
    ),
    (
        "python",
        "from old.api import load\ntry:\n    pass\nexcept E:\n    from fresh.api import read\nload(1)\n",
        *QUALIFIED,
    ),
    ("rust", "use old::api::load;\nuse fresh::api::read;\nfn f(read: u8) { load(1); }\n", "fresh::api::read()", ()),
    ("rust", "use old::api::load;\nfn g() { use fresh::api::read; }\nfn f() { load(1); }\n", "fresh::api::read()", ()),
    ("rust", "use old::api::load;\nuse crate::fresh::api::read as r;\nfn f() { load(1); }\n", "r()", ()),
    (
        "cpp",
        "using old::api::load;\nusing fresh::api::read;\nint f(int read) { return load(1); }\n",
        "fresh::api::read()",
        (),
    ),
    ("cpp", "using old::api::load;\nnamespace n = fresh::api;\nint f(int n) { return load(1); }\n", "n::read()", ()),
    (
        "java",
        "import static old.api.Loader.load;\nimport static fresh.api.Reader.read;\n"
        "class A { void read() {} int x = load(1); }\n",
        "fresh.api.Reader.read()",
        (),
    ),
    (
        "java",
        "import static old.api.Loader.load;\nimport static fresh.api.Reader.read;\n"
        "class A { int f(int read) { return load(1); } }\n",
        "read()",
        (),
    ),
    (
        "go",
        'package p\n\nimport (\n\t"x.org/old/api"\n\tn "x.org/fresh/api"\n)\n\nfunc f() { api.Load(1) }\n',
        "n.Read()",
        (),
    ),
    (
        "javascript",
        "import { load } from 'old/api';\nconst { read: r } = require('../lib/fresh/api');\nload(1);\n",
        "r()",
        (),
    ),
]


@pytest.mark.parametrize(("language", "code", "expected", "imports"), SPELLED)
def test_the_new_function_is_spelled_as_it_is_known_there(
    language: str, code: str, expected: str, imports: tuple[str, ...]
) -> None:
    (hole,) = find(language, code)
    assert (hole.lead + hole.tail, hole.imports) == (expected, imports)
