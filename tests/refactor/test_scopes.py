"""A call is written anew where its name stands for the old function, and with a name that stands for the new one."""

import re

import pytest
from tests.refactor.migrations import find


def numbers(language: str, code: str) -> str:
    """The numbers that the calls to be written anew have as their arguments."""
    found = (code.encode()[hole.start_byte : hole.end_byte].decode() for hole in find(language, code))
    return " ".join(re.findall(r"\((\d)\)", " ".join(found)))


# Below an import of the old function: code, and the numbers of the calls that are still calls of it.
SHADOWS = {
    "python": (
        "from old.api import load\n",
        [
            ("[load(1) for load in load(2)]\n[load(3) for x in load(4) if load(5)]", "2 3 4 5"),
            ("{load: load(1) for load in y}\n{load(2) for (load, x) in y}\ng = (load(3) for x in y for load in x)", ""),
            ("def f():\n    load(1)\n    load = 2\ndef g():\n    load(3)", "3"),
            ("def f():\n    if (load := 1):\n        load(1)\n    return [load(2)]", ""),
            ("def f():\n    for load in x:\n        pass\n    load(1)\nload(2)", "2"),
            ("def f():\n    with a as (load, b):\n        load(1)", ""),
            ("def f():\n    try:\n        pass\n    except E as load:\n        load(1)", ""),
            (
                "def f(x):\n    match x:\n        case {'a': load} | [*load]:\n            load(1)\n"
                "        case A(load=y):\n            load(2)",
                "",
            ),
            ("def f(x):\n    match x:\n        case A(load=y):\n            load(1)", "1"),
            (
                "def f():\n    def load(): pass\n    load(1)\n"
                "class A:\n    def load(self):\n        load(2)\n    x = load(3)",
                "2",
            ),
            ("def f():\n    class load: pass\n    load(1)\ndef g(x=load(2)) -> load(3):\n    load = x", "2 3"),
            ("def f():\n    import load\n    load(1)\ndef g(*load):\n    load(2)\ndef h[load](x):\n    load(3)", ""),
            ("def f():\n    del load\n    load(1)\ndef g():\n    x.load = y['load'] = 1\n    load(2)", "2"),
            ("def f():\n    load = 1\n    def g():\n        nonlocal load\n        load = 2\n        load(1)", ""),
            ("load(1)\nload = 2\nload(3)", "1"),
            ("load = load(1)", "1"),
            ("with load(1) as load:\n    load(2)", "1"),
            ("for load in x:\n    load(1)\nload(2)", ""),
            ("def f(x: list[load], y=load) -> dict[str, load]:\n    load(1)", "1"),
            ("f(*load(1), **load(2))\nx = [*load(3)]\nawait load(4)", "1 2 3 4"),
            ("class A:\n    x = load(1)\n    load = 2\n    y = load(3)\n    f = lambda: load(4)", "1 4"),
            (
                "async def f():\n    async for load in x:\n        load(1)\n    async with x as load:\n        load(2)",
                "",
            ),
        ],
    ),
    "javascript": (
        "import { load } from 'old/api';\n",
        [
            ("{ let load = 1; load(1); }\nload(2);", "2"),
            ("function f() { if (x) { var load = 1; } load(1); }\nload(2);", "2"),
            ("function f() { load(1); function load() {} }\nfunction g() { class load {} load(2); }", ""),
            ("try { load(1); } catch (load) { load(2); }", "1"),
            ("for (const load of y) load(1);\nfor (let load = 0; ; ) { load(2); }\nfor (const x of load(3)) {}", "3"),
            ("const f = function load() { load(1); };\nconst g = ({ a: load }) => load(2);\nload(3);", "3"),
            ("const f = (a, { b, c: [load] }) => load(1);\nconst g = (...load) => load(2);", ""),
            ("switch (x) { case 1: let load = 1; load(1); }\nload(2);", "2"),
            ("class A { load() { load(1); this.load(2); } }", "1"),
            ("function f() { const { load } = require('other'); load(1); }\nload(2);", "2"),
            ("function f() { const { a: { load = 1 } } = x; load(1); }", ""),
        ],
    ),
    "typescript": (
        "import { load } from 'old/api';\n",
        [
            ("function f(load: T, a?: U): V { return load(1); }\nenum A { load }\nload(2);", "2"),
            ("function f(cb: (load: T) => void): (load: U) => V { return load(1); }", "1"),
            ("class A { constructor(private load: T) { load(1); this.load(2); } }", ""),
            ("namespace A { const load = 1; load(1); }\nload(2);", "2"),
            ("function f() { enum load { a } load(1); }", ""),
        ],
    ),
    "rust": (
        "use old::api::load;\n",
        [
            ("fn f() { load(1); let load = 2; load(2); }\nfn g() { load(3); }", "1 3"),
            ("fn f() { let g = |load: T, (a, b)| load(1); let h = |x| load(2); }", "2"),
            ("fn f() { match x { Some(load) if load(1) => load(2), _ => load(3) } }", "3"),
            ("fn f() { if let Some(load) = load(1) { load(2) } else { load(3) } }", "1 3"),
            ("fn f() { while let Some(load) = x { load(1) } for load in load(2) { load(3) } }", "2"),
            ("fn f() { fn load(x: u8) {} load(1); }\nimpl A { fn load(&self) { load(2); self.load(3) } }", "2"),
            ("impl A { fn f(&self, load: fn(u8)) { load(1); } fn g(&self) { load(2); } }", "2"),
            ("fn f() { let Some(load) = x else { return load(1) }; load(2); }", "1"),
            ("fn f(g: fn(load: u8)) { load(1); let P { load, x: b } = y; load(2) }", "1"),
            ("mod m { fn g() { load(1); } }\nmod t { use super::*; fn g() { load(2); } }", "2"),
            ("mod t { use super::load as l; fn g() { l(1); load(2); } }", "1"),
        ],
    ),
    "go": (
        'package p\n\nimport "x.org/old/api"\n\n',
        [
            ("func f() { api.Load(1); api := 1; api.Load(2) }\nfunc g() { api.Load(3) }", "1 3"),
            ("func f() { var api = api.Load(1); api.Load(2) }\nfunc g() { const api = 1; api.Load(3) }", "1"),
            ("func f() { if api := g(); api.Load(1) { api.Load(2) } else { api.Load(3) }; api.Load(4) }", "4"),
            ("func f() { for _, api := range xs { api.Load(1) }; for api := 0; ; { api.Load(2) } }", ""),
            (
                "func (api *T) f() { api.Load(1) }\nfunc g() (api T) { api.Load(2) }\nfunc (t T) api() { api.Load(3) }",
                "3",
            ),
            ("func f() { switch api := x.(type) { case T: api.Load(1) }; g := func(api int) { api.Load(2) } }", ""),
            ("func f() { select { case api := <-c: api.Load(1) }; defer api.Load(2) }", "2"),
            ("func f(g func(api int)) { api.Load(1) }\nfunc h(api ...int) { api.Load(2) }", "1"),
        ],
    ),
    "java": (
        "import old.api.Loader;\nimport static old.api.Loader.load;\n",
        [
            ("class A { void f(Object Loader) { Loader.load(1); load(2); } void g(int load) { load(3); } }", "2 3"),
            (
                "class A { void load(int x) {} void f() { load(1); } class B { int x = load(2); } }\n"
                "class C { int x = load(3); }",
                "3",
            ),
            (
                "class A { void f() { for (var Loader : xs) Loader.load(1); g(Loader -> Loader.load(2)); "
                "Loader.load(3); } }",
                "3",
            ),
            (
                "class A { void f() { try (var Loader = x) { Loader.load(1); } "
                "catch (E Loader) { Loader.load(2); } } }",
                "",
            ),
            (
                "class A { Object f() { return new Object() { void load() {} int x = load(1); }; } int y = load(2); }",
                "2",
            ),
            ("class A { private Loader Loader; int x = Loader.load(1); }\nclass B { int x = Loader.load(2); }", "2"),
        ],
    ),
    "cpp": (
        "using old::api::load;\n",
        [
            ("int f(int (*load)(int)) { return load(1); }\nint g(int (*h)(int load)) { return load(2); }", "2"),
            ("int f() { load(1); auto load = h; return load(2); }", "1"),
            ("int f() { auto l = [](auto load) { return load(1); }; [load = 1]() { load(2); }; return load(3); }", "3"),
            ("int f() { for (auto& load : xs) load(1); try {} catch (E& load) { load(2); } return load(3); }", "3"),
            ("int f() { if (auto load = g(); load) return load(1); return load(2); }", "2"),
            (
                "class A { int m() { return load(1); } int load(int); };\nint f() { A a; return a.load(2) + load(3); }",
                "3",
            ),
            (
                "namespace mine { int load(int); }\nnamespace mine { int g() { return load(1); } }\n"
                "int f() { return load(2); }",
                "2",
            ),
            ("int f() { auto [load, x] = y; return load(1); }\nint g(int api) { return old::api::load(2); }", "2"),
        ],
    ),
    "c": (
        "int old_load(int);\n",
        [
            ("int f(void) { { int old_load = 1; old_load(1); } return old_load(2); }", "2"),
            (
                "int f(int (*old_load)(int)) { return old_load(1); }\n"
                "int g(int (*h)(int old_load)) { return old_load(2); }",
                "2",
            ),
            ("int f(void) { for (int old_load = 0;;) old_load(1); return old_load(2); }", "2"),
        ],
    ),
}
SHADOWED = [(language, lead + code + "\n", left) for language, (lead, rows) in SHADOWS.items() for code, left in rows]


@pytest.mark.parametrize(("language", "code", "expected"), SHADOWED)
def test_a_name_that_something_else_binds_is_another(language: str, code: str, expected: str) -> None:
    assert numbers(language, code) == expected


IMPORTED = [
    ("python", "def f():\n    from old.api import load\n    def g():\n        load(1)\nload(2)\n", "1"),
    ("python", "class A:\n    from old.api import load\n    x = load(1)\n    def f(self):\n        load(2)\n", "1"),
    (
        "python",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from old.api import load\n"
        "else:\n    load = f\nload(1)\n",
        "1",
    ),
    (
        "python",
        "load = None\ntry:\n    from old.api import load\nexcept ImportError:\n    pass\ndef f():\n    load(1)\n",
        "1",
    ),
    ("python", "import old.api\nimport old.other\nold.api.load(1)\ndef f(old):\n    old.api.load(2)\n", "1"),
    ("python", "from old import api as a\na.load(1)\n[a.load(2) for a in y]\n", "1"),
    ("javascript", "const { load: l } = require('old/api');\nl(1);\nload(2);\n", "1"),
    ("javascript", "const { api: { load = 1 } } = require('old');\nload(1);\n", "1"),
    ("javascript", "if (x) { const { load } = require('old/api'); load(1); }\nload(2);\n", "1"),
    ("javascript", "if (x) { var load = require('old/api').load; load(1); }\nload(2);\n", "1 2"),
    ("javascript", "let load;\ntry { load = require('old/api').load; } catch (e) { load = null; }\nload(1);\n", "1"),
    ("javascript", "require('old/api').load(1);\n(await import('old/api')).load(2);\n", "1 2"),
    (
        "javascript",
        "import('old/api').then(({ load }) => load(1));\nimport('old/api').then((m) => m.load(2));\n",
        "1 2",
    ),
    (
        "javascript",
        "import l from 'old/api/load';\nimport { default as m } from 'old/api/load';\nl(1);\nm(2);\n",
        "1 2",
    ),
    ("javascript", "import api, * as o from 'old/api';\napi.load(1);\no.load(2);\n", "1 2"),
    ("typescript", "import x = require('old/api');\nimport y = old.api;\nx.load(1);\ny.load(2);\n", "1 2"),
    (
        "typescript",
        "import { load } from 'old/api';\nvoid load<T>(1);\nconst x = !load<T>(2);\nyield load<T>(3);\n",
        "1 2 3",
    ),
    (
        "tsx",
        "import { load } from 'old/api';\nconst a = <div>{load(1)}</div>;\nconst f = (load: T) => <p>{load(2)}</p>;\n",
        "1",
    ),
    ("rust", "fn f() { use old::api::load; load(1); }\nfn g() { load(2); }\n", "1"),
    (
        "rust",
        "use old::{api as a, api::{self, load as l}};\nfn f(api: u8) { a::load(1); l(2); api::load(3); load(4); }\n",
        "1 2 3",
    ),
    ("rust", "fn f() { crate::old::api::load(1); ::old::api::load(2); other::load(3); }\n", "1 2"),
    ("rust", "#[cfg(x)]\nuse old::api::load;\n#[cfg(not(x))]\nuse other::load;\nfn f() { load(1) }\n", ""),
    ("rust", "use old::api::load as l;\nmod m { fn g() { super::l(1); l(2); } }\n", "1"),
    ("javascript", "const m = await import(/* later */ 'old/api');\nm.load(1);\n", "1"),
    ("python", "from old import api\n(api).load(1)\napi.\\\n  load(2)\nf(api).load(3)\n", "1 2"),
    ("python", "from old import api\r\napi.\\\r\n  load(1)\r\n", "1"),
    ("python", "from old.api import load\n(load)(1)\n", "1"),
    ("rust", "use old::api::*;\nuse std::io::*;\nfn f() { load(1) }\n", "1"),
    (
        "go",
        'package p\n\nimport (\n\to "x.org/old/api"\n\t. "x.org/old/api"\n)\n\n'
        "func f() { o.Load(1); Load(2); api.Load(3) }\n",
        "1 2",
    ),
    ("java", "import static old.api.Loader.*;\nclass A { int x = load(1); }\n", "1"),
    ("java", "import old.api.*;\nimport java.util.*;\nclass A { int x = Loader.load(1); }\n", "1"),
    ("cpp", "using old::api::load, old::api::save;\nint f() { return load(1); }\n", "1"),
    ("cpp", "using namespace std;\nusing namespace old::api;\nint f() { return load(1); }\n", "1"),
    ("cpp", "namespace o = old::api;\nint f() { return o::load(1) + api::load(2); }\n", "1"),
    ("cpp", 'namespace { using old::api::load; }\nextern "C" { int f() { return load(1); } }\n', "1"),
    ("cpp", "using namespace old;\nint f() { return api::load(1) + load(2); }\n", "1"),
    ("rust", "use old::api::{\n    save, // it, too\n    load,\n};\nfn f() { load(1) }\n", "1"),
    ("javascript", "import {\n  save, // from 'x'\n  load,\n} from 'old/api';\nload(1);\n", "1"),
    ("go", 'package p\n\nimport (\n\t"x.org/old/api" // "other/api"\n)\n\nfunc f() { api.Load(1) }\n', "1"),
    ("cpp", "using old::api::load /* it */;\nint f() { return load(1); }\n", "1"),
    ("cpp", "int f() { using old::api::load; return load(1); }\nint g() { return load(2); }\n", "1"),
    ("cpp", "int f() { using namespace old::api; return load(1); }\nint g() { return load(2); }\n", "1"),
    ("cpp", "int f() { namespace o = old; return o::api::load(1); }\nint g() { return o::api::load(2); }\n", "1"),
    ("cpp", "namespace old::api { int load(int x); int f() { return load(1); } }\nint g() { return load(2); }\n", "1"),
    (
        "cpp",
        "namespace old { namespace api { int f() { return load(1); } } int g() { return api::load(2); } }\n",
        "1 2",
    ),
]


@pytest.mark.parametrize(("language", "code", "expected"), IMPORTED)
def test_an_import_holds_where_it_stands(language: str, code: str, expected: str) -> None:
    assert numbers(language, code) == expected


OPTIONAL = [
    ("l?.(x);\n", "l:read", "read?.()"),
    ("a?.load(x);\n", "a.load:b.read", "b?.read()"),
    ("a?.b?.(x);\n", "a.b:c.d", "c?.d?.()"),
    ("a.b?.c(x);\n", "a.b.c:d.e.f", "d.e?.f()"),
    ("import * as a from 'old/api';\nimport { read } from 'fresh/api';\na?.load(x);\n", "", "read?.()"),
    ("import * as a from 'old/api';\nimport * as b from 'fresh/api';\na?.load?.(x);\n", "", "b?.read?.()"),
    ("a.load(x);\n", "a.load:b.read", "b.read()"),
]


@pytest.mark.parametrize("language", ["javascript", "typescript", "tsx"])
@pytest.mark.parametrize(("code", "word", "expected"), OPTIONAL)
def test_a_migrated_call_stays_optional(language: str, code: str, word: str, expected: str) -> None:
    (hole,) = find(language, code, word)
    assert hole.lead + hole.tail == expected


def test_type_arguments_do_not_hide_that_a_call_is_optional() -> None:
    (hole,) = find("typescript", "const x = await l?.<T>(y);\n", "l:read")
    assert hole.lead + hole.tail == "read?.()"
