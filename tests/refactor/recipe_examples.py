"""What each recipe does, by example."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RecipeExample:
    """`before` becomes `after` when `fills[i]` goes into the i-th hole. `word` is the recipe's own."""

    language: str
    before: str
    fills: tuple[str, ...]
    after: str
    word: str = ""


EXAMPLES = {
    "fill-stubs": (
        RecipeExample(
            "python",
            "def add(a, b):\n    ...\n\n\ndef sub(a, b):\n    return a - b\n",
            ("return a + b",),
            "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n",
        ),
        RecipeExample("go", "func one() int {\n}\n", ("return 1",), "func one() int {\n\treturn 1\n}\n"),
    ),
    "fill-todos": (
        RecipeExample(
            "python",
            "def area(w, h):\n    # TODO: refuse what is negative,\n    # whichever it is\n    return w * h\n",
            ("if w < 0 or h < 0:\n        raise ValueError",),
            "def area(w, h):\n    # refuse what is negative,\n    # whichever it is\n    if w < 0 or h < 0:\n"
            "        raise ValueError\n    return w * h\n",
        ),
        RecipeExample(
            "python",
            "def keep(n):\n    n = int(n)\n    # FIXME: say it\n\n\n# TODO: not here\n",
            ("print(n)",),
            "def keep(n):\n    n = int(n)\n    # say it\n    print(n)\n\n\n# TODO: not here\n",
        ),
        RecipeExample(
            "python",
            "def half(n):\n    n = int(n)\n    # TODO(ann)\n    pass\n",
            ("return n / 2",),
            "def half(n):\n    n = int(n)\n    return n / 2\n",
        ),
        RecipeExample(
            "go",
            "func f(n int) int {\n\tn++\n\t// TODO: double it\n\treturn n\n}\n",
            ("n *= 2",),
            "func f(n int) int {\n\tn++\n\t// double it\n\tn *= 2\n\treturn n\n}\n",
        ),
        RecipeExample(
            "typescript",
            "function f(n: number) {\n  /* TODO: check */\n  return n;\n}\n",
            ("if (!n) throw new Error();",),
            "function f(n: number) {\n  // check\n  if (!n) throw new Error();\n  return n;\n}\n",
        ),
    ),
    "add-docstrings": (
        RecipeExample(
            "python",
            "def area(w, h):  # of a room\n    return w * h\n\n\ndef _own():\n    return 1\n",
            ("The area of a room.",),
            'def area(w, h):  # of a room\n    """The area of a room."""\n    return w * h\n\n\n'
            "def _own():\n    return 1\n",
        ),
        RecipeExample(
            "python",
            "class A:\n    def get(self): return self.x\n",
            ("What it holds.",),
            'class A:\n    def get(self):\n        """What it holds."""\n        return self.x\n',
        ),
    ),
    "add-type-hints": (
        RecipeExample(
            "python",
            "def repeat(text, times=2):\n    return text * times\n\n\ndef done() -> None:\n    return\n",
            ("text: str, times: int = 2) -> str:",),
            "def repeat(text: str, times: int = 2) -> str:\n    return text * times\n\n\n"
            "def done() -> None:\n    return\n",
        ),
        RecipeExample(
            "python",
            "def cut(text, /, *, size: int = 2, **rest) -> str:\n    return text[:size]\n\n\n"
            "class A:\n    def get(self) -> int:\n        return 1\n",
            ("text: str, /, *, size: int = 2, **rest: object) -> str:",),
            "def cut(text: str, /, *, size: int = 2, **rest: object) -> str:\n    return text[:size]\n\n\n"
            "class A:\n    def get(self) -> int:\n        return 1\n",
        ),
        RecipeExample(
            "python",
            "class A:\n    def load(  # both\n        self, path,  # where\n        size=2):\n        return path\n",
            ("  # both\n        self, path: str,  # where\n        size: int = 2) -> str:",),
            "class A:\n    def load(  # both\n        self, path: str,  # where\n        size: int = 2) -> str:\n"
            "        return path\n",
        ),
    ),
    "fill-match-arms": (
        RecipeExample(
            "python",
            "def name(n):\n    match n:\n        case 1:\n            return 'one'\n        case 2:\n            ...\n",
            ("return 'two'",),
            "def name(n):\n    match n:\n        case 1:\n            return 'one'\n"
            "        case 2:\n            return 'two'\n",
        ),
    ),
    "migrate-call": (
        RecipeExample(
            "python",
            "data = old.read(path, 'r')\nprint(data)\n",
            ("new.load(path)",),
            "data = new.load(path)\nprint(data)\n",
            word="old.*",
        ),
        RecipeExample(
            "python",
            "import new.api\n\ndata = old.read(path, 'r')\n",
            ("path",),
            "import new.api\n\ndata = new.api.load(path)\n",
            word="old.read:new.api.load",
        ),
        RecipeExample(
            "javascript", "const a = fetchIt(x);\n", ("await get(x)",), "const a = await get(x);\n", word="fetchIt"
        ),
        RecipeExample("javascript", "const a = l?.(x, 1);\n", ("x",), "const a = read?.(x);\n", word="l:read"),
        RecipeExample("typescript", "const a = await l<T>(x);\n", ("x",), "const a = await read(x);\n", word="l:read"),
        RecipeExample(
            "java",
            "class A { B b = new old.B(1, x); }\n",
            ("x",),
            "class A { B b = new fresh.B(x); }\n",
            word="old.B:fresh.B",
        ),
        RecipeExample(
            "rust",
            "fn f() { old::load::<u8>(1, 2); }\n",
            ("2",),
            "fn f() { fresh::api::read(2); }\n",
            word="old::load:fresh::api::read",
        ),
    ),
}
