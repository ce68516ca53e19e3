"""Where a repeat goes in a file: not where the change is made, on lines like its own, never into a syntax error."""

import pytest

from midfill_infill.repeats import repeat as repeats
from midfill_infill.repeats.repeat import find_repeats
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Patch

# name -> language, the text before the change, the change, and the text with all repeats
MADE = {
    "the same items in Go": (
        "go",
        "package a\n\nfunc f() {\n\tfoo(ctx, 1)\n\tfoo(2)\n\tfoo(3)\n}\n",
        ("foo(2)", "foo(ctx, 2)"),
        "package a\n\nfunc f() {\n\tfoo(ctx, 1)\n\tfoo(ctx, 2)\n\tfoo(ctx, 3)\n}\n",
    ),
    "the same items in Python": (
        "python",
        "foo(ctx, 1)\nfoo(2)\nfoo(3)\n",
        ("foo(2)", "foo(ctx, 2)"),
        "foo(ctx, 1)\nfoo(ctx, 2)\nfoo(ctx, 3)\n",
    ),
    "the same items in Java": (
        "java",
        'class A {\n  void f() {\n    log("a");\n    log("b", e);\n    log(\n        "c");\n  }\n}\n',
        ('log("a")', 'log("a", e)'),
        'class A {\n  void f() {\n    log("a", e);\n    log("b", e);\n    log(\n        "c", e);\n  }\n}\n',
    ),
    "a keyword": (
        "python",
        "a = open('a')\nb = open('b', encoding='utf-8')\nc = open('c')\nd = open('d', encoding='latin-1')\n",
        ("open('a')", "open('a', encoding='utf-8')"),
        "a = open('a', encoding='utf-8')\nb = open('b', encoding='utf-8')\nc = open('c', encoding='utf-8')\n"
        "d = open('d', encoding='latin-1')\n",
    ),
    "a key of an object": (
        "javascript",
        "get(a, { x: 1 });\nget(b, { timeout: 9, x: 1 });\nget(c, { x: 1 });\n",
        ("x: 1 }", "x: 1, timeout: 5 }"),
        "get(a, { x: 1, timeout: 5 });\nget(b, { timeout: 9, x: 1 });\nget(c, { x: 1, timeout: 5 });\n",
    ),
    "a field before the rest in Rust": (
        "rust",
        "fn f() {\n    let a = Cfg { x: 1 };\n    let b = Cfg { x: 2, ..d };\n    let c = Cfg { x: 3, y: 9 };\n}\n",
        ("Cfg { x: 1 }", "Cfg { x: 1, y: 2 }"),
        "fn f() {\n    let a = Cfg { x: 1, y: 2 };\n    let b = Cfg { x: 2, y: 2, ..d };\n"
        "    let c = Cfg { x: 3, y: 9 };\n}\n",
    ),
    "an attribute": (
        "tsx",
        "const a = <Foo a={1} />;\nconst b = <Foo b={3} a={1} />;\nconst c = <Foo a={1} />;\n",
        ("a={1}", "a={1} b={2}"),
        "const a = <Foo a={1} b={2} />;\nconst b = <Foo b={3} a={1} />;\nconst c = <Foo a={1} b={2} />;\n",
    ),
    "a word of its own line": (
        "javascript",
        "const user = load(u);\nconst group = load(g, group);\nconst item = load(i);\n",
        ("load(u)", "load(u, user)"),
        "const user = load(u, user);\nconst group = load(g, group);\nconst item = load(i, item);\n",
    ),
    "a statement": (
        "javascript",
        "if (a) {\n  foo()\n}\nif (b) {\n  foo()\n  bar()\n}\nif (c) {\n  foo()\n}\n",
        ("  foo()\n", "  foo()\n  bar()\n"),
        "if (a) {\n  foo()\n  bar()\n}\nif (b) {\n  foo()\n  bar()\n}\nif (c) {\n  foo()\n  bar()\n}\n",
    ),
    "a modifier": (
        "cpp",
        "void f(int& a);\nvoid g(const int& a);\nvoid h(int& a);\n",
        ("(int& a)", "(const int& a)"),
        "void f(const int& a);\nvoid g(const int& a);\nvoid h(const int& a);\n",
    ),
}

LAYOUTS = {
    "a modifier of a field": (
        "typescript",
        "class A {\n  a: string;\n}\nclass B {\n  a: string;\n  b: string;\n}\n",
        ("a: string", "readonly a: string"),
        "class A {\n  readonly a: string;\n}\nclass B {\n  readonly a: string;\n  b: string;\n}\n",
    ),
    "a modifier of a field that stands alone": (
        "typescript",
        "class A {\n  a = 1;\n  b = 2;\n}\n",
        ("a = 1", "readonly a = 1"),
        "class A {\n  readonly a = 1;\n  b = 2;\n}\n",
    ),
    "a word in a block": (
        "javascript",
        "async function f() {\n  try {\n    go(1);\n  } catch (e) {}\n  try {\n    go(2);\n  } catch (e) {}\n}\n",
        ("go(1)", "await go(1)"),
        "async function f() {\n  try {\n    await go(1);\n  } catch (e) {}\n"
        "  try {\n    await go(2);\n  } catch (e) {}\n}\n",
    ),
    "a word in a block of Rust": (
        "rust",
        "fn f() {\n    if x {\n        go(1);\n    }\n    if x {\n        go(2);\n    }\n}\n",
        ("go(1)", "return go(1)"),
        "fn f() {\n    if x {\n        return go(1);\n    }\n    if x {\n        return go(2);\n    }\n}\n",
    ),
    "an argument on its own line": (
        "python",
        "f(\n    a,\n    b,\n)\nif x:\n    f(\n        c,\n        d,\n    )\nf(e, f)\n",
        ("    b,\n", "    b,\n    timeout=5,\n"),
        "f(\n    a,\n    b,\n    timeout=5,\n)\n"
        "if x:\n    f(\n        c,\n        d,\n        timeout=5,\n    )\nf(e, f, timeout=5)\n",
    ),
    "an argument on its own line without a comma behind it": (
        "python",
        "f(\n    a,\n    b\n)\nf(\n    c,\n    d  # 4\n)\n",
        ("    b\n", "    b,\n    timeout=5\n"),
        "f(\n    a,\n    b,\n    timeout=5\n)\nf(\n    c,\n    d,  # 4\n    timeout=5\n)\n",
    ),
    "an argument below a comment": (
        "javascript",
        "foo(\n  a,\n  b, // second\n);\nfoo(\n  c,\n  d, // (fourth\n);\n",
        ("b, // second\n", "b, // second\n  opts,\n"),
        "foo(\n  a,\n  b, // second\n  opts,\n);\nfoo(\n  c,\n  d, // (fourth\n  opts,\n);\n",
    ),
    "a field on its own line with tabs": (
        "go",
        "package a\n\nvar x = Opts{\n\tA: 1,\n}\nvar y = Opts{\n\tA: 2,\n}\nvar z = Opts{A: 3}\nvar w = Opts{}\n",
        ("\tA: 1,\n", "\tA: 1,\n\tB: 2,\n"),
        "package a\n\nvar x = Opts{\n\tA: 1,\n\tB: 2,\n}\nvar y = Opts{\n\tA: 2,\n\tB: 2,\n}\n"
        "var z = Opts{A: 3, B: 2}\nvar w = Opts{B: 2}\n",
    ),
    "a first argument before one on its own line": (
        "python",
        "run(a)\r\nrun(\r\n    b,\r\n    c,\r\n)\r\n",
        ("run(a)", "run(ctx, a)"),
        "run(ctx, a)\r\nrun(\r\n    ctx,\r\n    b,\r\n    c,\r\n)\r\n",
    ),
    "brackets and commas in strings": (
        "c",
        "void f() {\n  run(a);\n  run(\"(\", ',');\n}\n",
        ("run(a)", "run(a, ctx)"),
        "void f() {\n  run(a, ctx);\n  run(\"(\", ',', ctx);\n}\n",
    ),
}

ENDS = {
    "a line break out of brackets in Python": (
        "python",
        "x = add(a, b)\ny = add(c,\n        d)\nz = (add(c,\n         d))\n",
        ("add(a, b)", "a + b"),
        "x = a + b\ny = add(c,\n        d)\nz = (c +\n         d)\n",
    ),
    "a line break in a file that does not compile": (
        "python",
        "x = add(a, b)\ny = add(c,\n        d)\n\n\ndef f(:\n    pass\n",
        ("add(a, b)", "a + b"),
        "x = a + b\ny = add(c,\n        d)\n\n\ndef f(:\n    pass\n",
    ),
    "a line break of an assertion": (
        "python",
        "self.assertEqual(a, 1)\nself.assertEqual(c,\n  4)\nself.assertEqual(d, 5)\n",
        ("self.assertEqual(a, 1)", "assert a == 1"),
        "assert a == 1\nself.assertEqual(c,\n  4)\nassert d == 5\n",
    ),
    "a value that begins below `return`": (
        "javascript",
        "function f() {\n  x = add(a, b);\n  y = add(c,\n    d);\n  return add(\n    c, d);\n}\n",
        ("add(a, b)", "a + b"),
        "function f() {\n  x = a + b;\n  y = c +\n    d;\n  return add(\n    c, d);\n}\n",
    ),
    "a value that begins below `throw`": (
        "typescript",
        "function f() {\n  const x = add(a, b);\n  throw add(\n    c, d);\n}\n",
        ("add(a, b)", "a + b"),
        "function f() {\n  const x = a + b;\n  throw add(\n    c, d);\n}\n",
    ),
    "a line that would go on with the one above": (
        "javascript",
        "x = first(a, 1)\ny = z\nfirst((c), 2)\n",
        ("first(a, 1)", "a.first(1)"),
        "x = a.first(1)\ny = z\nfirst((c), 2)\n",
    ),
    "a value that begins below `return` in Go": (
        "go",
        "package a\n\nfunc f() int {\n\tx := add(b, c)\n\ty := add(d,\n\t\te)\n\treturn add(\n\t\tg, h)\n}\n",
        ("add(b, c)", "b + c"),
        "package a\n\nfunc f() int {\n\tx := b + c\n\ty := d +\n\t\te\n\treturn add(\n\t\tg, h)\n}\n",
    ),
    "line breaks where they are white space": (
        "rust",
        "fn f() -> i32 {\n    let a = add(b, c);\n    return add(d,\n        e);\n}\n",
        ("add(b, c)", "b + c"),
        "fn f() -> i32 {\n    let a = b + c;\n    return d +\n        e;\n}\n",
    ),
}

COMPILED = {
    "behind a keyword": (
        "python",
        "g(a, 1)\ng(b, k=1)\ng(x, **d)\ng(y, 3)\n",
        ("g(a, 1)", "g(a, 1, 2)"),
        "g(a, 1, 2)\ng(b, k=1)\ng(x, **d)\ng(y, 3, 2)\n",
    ),
    "behind a keyword in a file that does not compile": (
        "python",
        "g(a, 1)\ng(b, k=1)\ng(y, 3)\n\n\ndef f(:\n    pass\n",
        ("g(a, 1)", "g(a, 1, 2)"),
        "g(a, 1, 2)\ng(b, k=1)\ng(y, 3, 2)\n\n\ndef f(:\n    pass\n",
    ),
    "await where nothing may wait": (
        "python",
        "async def f():\n    with x:\n        go(1)\n\n\ndef g():\n    with x:\n        go(2)\n",
        ("go(1)", "await go(1)"),
        "async def f():\n    with x:\n        await go(1)\n\n\ndef g():\n    with x:\n        go(2)\n",
    ),
    "await in a plain function": (
        "typescript",
        "async function f() {\n  if (x) {\n    go(1);\n  }\n}\nfunction g() {\n  if (x) {\n    go(2);\n  }\n}\n",
        ("go(1)", "await go(1)"),
        "async function f() {\n  if (x) {\n    await go(1);\n  }\n}\nfunction g() {\n  if (x) {\n    go(2);\n  }\n}\n",
    ),
    "behind the rest of the parameters": (
        "javascript",
        "const a = run((b) => {});\nfunction run(f, ...rest) {}\n",
        ("run((b) => {})", "run((b) => {}, ctx)"),
        "const a = run((b) => {}, ctx);\nfunction run(f, ...rest) {}\n",
    ),
    "behind a variadic argument": (
        "go",
        "package a\n\nfunc f() {\n\trun(a)\n\trun(b...)\n\trun(c)\n}\n",
        ("run(a)", "run(a, x)"),
        "package a\n\nfunc f() {\n\trun(a, x)\n\trun(b...)\n\trun(c, x)\n}\n",
    ),
    "a parameter behind a variadic one": (
        "java",
        "class A {\n  void f(int a) {}\n  void f(int... b) {}\n  void f(long a) {}\n}\n",
        ("f(int a)", "f(int a, int c)"),
        "class A {\n  void f(int a, int c) {}\n  void f(int... b) {}\n  void f(long a, long c) {}\n}\n",
    ),
    "a constant without a value": (
        "javascript",
        "let a = 1;\nlet b;\nlet c = 3;\n",
        ("let a", "const a"),
        "const a = 1;\nlet b;\nconst c = 3;\n",
    ),
}


def apply_all(language: str, before: str, after: str) -> str:
    found = find_repeats(Document.from_text(before, language), Document.from_text(after, language))
    return Patch.of(repeat.edit for repeat in found).apply(after.encode()).decode()


@pytest.mark.parametrize("name, cases", [(name, cases) for cases in (MADE, LAYOUTS, ENDS, COMPILED) for name in cases])
def test_a_repeat_goes_where_it_belongs(name: str, cases: dict[str, tuple[str, str, tuple[str, str], str]]) -> None:
    language, before, change, wanted = cases[name]
    after = before.replace(*change, 1)
    assert after != before
    assert apply_all(language, before, after) == wanted


def test_each_of_several_repeats_may_be_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What opens and closes one string would be right together, and each alone an open string."""
    monkeypatch.setattr(repeats, "POSSIBLE", 0.0)
    before = '"""Check that all of them are installed."""\n\n\ndef require():\n    """Raise an error."""\n    a = b\n'
    after = before.replace('"""Check', '"not ""Check', 1)
    found = find_repeats(Document(before.encode(), "python"), Document(after.encode(), "python"))
    assert found
    for repeat in found:
        compile(Patch.of([repeat.edit]).apply(after.encode()), "alone", "exec")


@pytest.mark.parametrize("language, lines", [
    ("go", ["package a\n\nvar _ = foo(1)\n", "var _ = foo(2)\n", "var _ = foo(3)\n"]),
    ("python", ["foo(1)\n", "foo(2)\n", "foo(3)\n"]),
    ("javascript", ["foo(1);\n", "foo(2);\n", "foo(3);\n"]),
])  # fmt: skip
def test_after_the_second_of_two_changes_the_first_stays_as_it_is(language: str, lines: list[str]) -> None:
    done = [line.replace("foo(", "foo(ctx, ") for line in lines]
    texts = ["".join([*done[:number], *lines[number:]]) for number in range(3)]
    documents = [Document.from_text(text, language) for text in texts[1:]]
    found = find_repeats(*documents, earlier=(texts[0].encode(), texts[1].encode()))
    assert Patch.of(repeat.edit for repeat in found).apply(texts[2].encode()).decode() == "".join(done)
