"""`midfill refactor generate --until` where tests come to several stubs, or fail for reasons of their own."""

import re
import sys
from pathlib import Path

import pytest
from tests.until.runs import PYTEST, Engine, generate, run, states
from tests.until.shops import needs_bubblewrap

pytestmark = needs_bubblewrap
CART = """class Cart:
    def __init__(self):
        ...

    def add(self, price):
        ...

    def total(self):
        ...
"""
CART_TESTS = """from cart import Cart


def test_nothing():
    assert Cart().total() == 0


def test_sum():
    cart = Cart()
    cart.add(2)
    cart.add(3)
    assert cart.total() == 5
"""
RIGHT_CART = {
    "__init__": "self.prices = []",
    "add": "self.prices.append(price)",
    "total": "return sum(self.prices)",
}


def test_each_stub_is_judged_by_the_tests_that_come_to_it(root: Path, engine: Engine) -> None:
    engine.bodies = {"half": "return a / 2", "thrice": "return 3 * a"}
    engine.drawn = {"thrice"}
    functions = "def half(a):\n    ...\n\n\ndef never(a):\n    ...\n\n\ndef thrice(a):\n    ...\n"
    tests = (
        "import maths\n\n\ndef test_half():\n    assert maths.half(4) == 2\n\n\n"
        "def test_never():\n    assert maths.never(4) == 'x'\n\n\ndef test_thrice():\n    assert maths.thrice(1) == 3\n"
    )
    result = generate(root, {"maths.py": functions, "test_maths.py": tests})
    assert states() == {"generated": 2, "failed": 1}, result.stderr
    applied = run("apply", "--all", "--verify", PYTEST)
    assert applied.exit_code == 0 and "2 kept, 0 rolled back" in applied.stderr, "never's test fails before and after"
    assert "half -> test_maths.py\n  passes at try 1\n" in result.stderr
    assert re.search(r"thrice -> test_maths.py\n  passes at try [2-4]\n", result.stderr), "a wrong draft is told by it"


def test_methods_that_only_work_together_are_proven_at_the_end(root: Path, engine: Engine) -> None:
    engine.bodies = RIGHT_CART
    result = generate(root, {"cart.py": CART, "test_cart.py": CART_TESTS})
    assert states() == {"generated": 3}, result.stderr
    assert "Cart.__init__ passes with the others" in result.stderr
    assert run("apply", "--all", "--verify", PYTEST).exit_code == 0
    for body in RIGHT_CART.values():
        assert body in (root / "cart.py").read_text()


def test_a_fill_that_lets_tests_go_on_but_fails_them_in_the_end_fails(root: Path, engine: Engine) -> None:
    engine.bodies = {"outer": "return inner(x)", "inner": "return x + 1"}
    functions = "def outer(x):\n    ...\n\n\ndef inner(x):\n    ...\n"
    files = {
        "nested.py": functions,
        "test_outer.py": "import nested\n\n\ndef test_outer():\n    assert nested.outer(1) == 3\n",
        "test_inner.py": "import nested\n\n\ndef test_inner():\n    assert nested.inner(1) == 2\n",
    }
    result = generate(root, files)
    assert states() == {"generated": 1, "failed": 1}, result.stderr
    assert "nested.py: outer: its tests fail once others are filled: assert 2 == 3" in result.stderr
    assert result.exit_code == 3


def test_fills_whose_tests_never_come_to_an_end_fail(root: Path, engine: Engine) -> None:
    engine.bodies = {**RIGHT_CART, "add": "self.prices.append(-price)"}
    result = generate(root, {"cart.py": CART, "test_cart.py": CART_TESTS})
    assert states() == {"failed": 3}, result.stderr
    assert "Cart.__init__: its tests stop in functions that are not filled" in result.stderr


@pytest.mark.soak
def test_hundreds_of_failing_tests_of_another_stub(root: Path, engine: Engine) -> None:
    engine.bodies = {"half": "return a / 2"}
    tests = (
        "import maths\nimport pytest\n\n@pytest.mark.parametrize('a', range(300))\n"
        "def test_never(a):\n    assert maths.never(a) == 'x'\n\ndef test_half():\n    assert maths.half(4) == 2\n"
    )
    result = generate(root, {"maths.py": "def never(a):\n    ...\n\n\ndef half(a):\n    ...\n", "test_maths.py": tests})
    assert states() == {"generated": 1, "failed": 1}, result.stderr


def test_two_functions_that_undo_each_other(root: Path, engine: Engine) -> None:
    engine.bodies = {"encode": "return text[::-1]", "decode": "return text[::-1]"}
    functions = (
        "def encode(text):\n    raise NotImplementedError\n\n\ndef decode(text):\n    raise NotImplementedError\n"
    )
    tests = "from codec import decode, encode\n\n\ndef test_both():\n    assert decode(encode('ab')) == 'ab'\n"
    result = generate(root, {"codec.py": functions, "test_codec.py": tests})
    assert states() == {"generated": 2}, result.stderr


def test_a_test_that_fails_for_a_reason_of_its_own_does_not_count(root: Path, engine: Engine) -> None:
    engine.bodies = {"half": "return a / 2"}
    tests = (
        "import maths\n\n\ndef test_half():\n    assert maths.half(4) == 2\n\n\ndef test_old():\n    assert 1 == 2\n"
    )
    result = generate(root, {"maths.py": "def half(a):\n    ...\n", "test_maths.py": tests})
    assert states() == {"generated": 1}, result.stderr


CAUGHT = """import app


def call():
    try:
        return app.total([1, 2, 3])
    except Exception:
        return None
"""
SHARED = """import pytest
import server


@pytest.fixture(scope="session")
def answer():
    return server.call()


def test_answer_is_there(answer):
    assert answer is not None


def test_answer(answer):
    assert answer == 6
"""
IN_ORDER = """import server

answers = []


def test_call():
    answers.append(server.call())
    assert answers[0] is not None


def test_answer():
    assert answers == [6]
"""


@pytest.mark.parametrize("tests", [SHARED, IN_ORDER], ids=["fixture", "order"])
def test_a_test_that_only_uses_what_another_one_got_counts(root: Path, engine: Engine, tests: str) -> None:
    engine.bodies = {"total": "return 7"}
    files = {"app.py": "def total(xs):\n    ...\n", "server.py": CAUGHT, "test_server.py": tests}
    result = generate(root, files)
    assert states() == {"failed": 1}, result.stderr


@pytest.mark.parametrize("options", [["--no-sandbox"], []], ids=["cold", "warm"])
def test_a_test_that_catches_what_the_hole_raises_counts(root: Path, engine: Engine, options: list[str]) -> None:
    engine.bodies = {"total": "return 7"}
    tests = "import server\n\n\ndef test_call():\n    assert server.call() == 6\n"
    files = {"app.py": "def total(xs):\n    ...\n", "server.py": CAUGHT, "test_server.py": tests}
    result = generate(root, files, PYTEST, *options)
    assert states() == {"failed": 1}, result.stderr
    assert run("generate").exit_code == 3
    run("plan", "--stubs")
    run("generate")
    applied = run("apply", "--all", "--verify", PYTEST, *options)
    assert applied.exit_code == 5 and (root / "app.py").read_text() == files["app.py"], applied.stderr


def test_a_test_that_another_stub_stops_counts_in_the_end(root: Path, engine: Engine) -> None:
    engine.bodies = {"area": "return w + h", "load": "return tuple(map(int, text.split('x')))"}
    files = {
        "shapes.py": "def area(w, h):\n    ...\n\n\ndef load(text):\n    ...\n\n\n"
        "def size(text):\n    return area(*load(text))\n",
        "test_area.py": "import shapes\n\ndef test_area():\n    assert shapes.area(2, 2) == 4\n\n"
        "def test_size():\n    assert shapes.size('3x5') == 15\n",
        "test_load.py": "import shapes\n\ndef test_load():\n    assert shapes.load('3x5') == (3, 5)\n",
    }
    result = generate(root, files)
    assert states() == {"generated": 1, "failed": 1}, result.stderr
    assert "shapes.py: area: its tests fail once others are filled: assert 8 == 15" in result.stderr
    assert "1 clean, 0 with syntax errors, 1 failed" in result.stderr and result.exit_code == 3


def test_a_stub_without_a_fill_raises_nothing_that_a_test_expects(root: Path, engine: Engine) -> None:
    engine.bodies = {"check": "return parse(text)", "parse": "return 0"}
    functions = "def check(text):\n    ...\n\n\ndef parse(text):\n    ...\n"
    tests = (
        "import pytest\nimport words\n\n\ndef test_check():\n    with pytest.raises(Exception):\n"
        "        words.check('-1')\n\n\ndef test_parse():\n    assert words.parse('1') == 1\n"
    )
    result = generate(root, {"words.py": functions, "test_words.py": tests})
    assert states() == {"failed": 2}, result.stderr


def test_one_line_stubs_stop_tests_too(root: Path, engine: Engine) -> None:
    engine.bodies = RIGHT_CART
    result = generate(root, {"cart.py": CART.replace(":\n        ...", ": ..."), "test_cart.py": CART_TESTS})
    assert states() == {"generated": 3}, result.stderr


def test_tests_that_import_the_code_in_their_conftest(root: Path, engine: Engine) -> None:
    engine.bodies = {"half": "return a / 2"}
    conftest = "import maths\nimport pytest\n\n\n@pytest.fixture\ndef half():\n    return maths.half\n"
    tests = "def test_half(half):\n    assert half(4) == 2\n"
    files = {"maths.py": "def half(a):\n    ...\n", "conftest.py": conftest, "test_maths.py": tests}
    result = generate(root, files)
    assert states() == {"generated": 1}, result.stderr


def test_a_function_that_no_failing_test_comes_to_fails(root: Path, engine: Engine) -> None:
    tests = "import maths\n\n\ndef test_old():\n    assert 1 == 2\n\n\ndef test_call():\n    maths.half(4)\n"
    result = generate(root, {"maths.py": "def half(a):\n    ...\n", "test_maths.py": tests})
    assert states() == {"failed": 1}
    assert "that comes to half fails" in result.stderr


@pytest.mark.parametrize("command", [f"{sys.executable} -m unittest", f"{sys.executable} check.py"])
def test_a_command_that_takes_no_test_files_runs_as_it_is(root: Path, engine: Engine, command: str) -> None:
    engine.bodies = {"half": "return a / 2"}
    files = {
        "maths.py": "def half(a):\n    ...\n",
        "check.py": "import importlib\nassert importlib.import_module('maths').half(4) == 2\n",
        "test_all.py": "import importlib\nimport unittest\n\n\nclass Test(unittest.TestCase):\n"
        "    def test_half(self):\n        self.assertEqual(importlib.import_module('maths').half(4), 2)\n",
    }
    result = generate(root, files, command)
    assert states() == {"generated": 1}, result.stderr


def test_a_stub_that_is_called_when_its_module_is_imported_does_not_stop_the_others(root: Path, engine: Engine) -> None:
    engine.bodies = {"half": "return a / 2"}
    functions = "def half(a):\n    ...\n\n\ndef name():\n    ...\n\n\nNAME = name()\n"
    tests = "import maths\n\n\ndef test_half():\n    assert maths.half(4) == 2\n"
    result = generate(root, {"maths.py": functions, "test_maths.py": tests})
    assert states() == {"generated": 1, "failed": 1}, result.stderr
