"""Proposes bodies that agree with a function's examples: doctests in its docstring, asserts in the tests beside it.

A body is one expression of the parameters. Our own operations compute its value from the examples' literals; none of
the user's code runs. Knows Python's syntax, no model.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, Final

from midfill_infill.proposals.base import Proposal, Surroundings
from midfill_infill.proposals.weights import shipped_weights
from midfill_infill.syntax.outline import find_own

ORIGIN: Final = "as its examples say"
MAX_EXAMPLES: Final = 8
MAX_BODIES: Final = 5
MAX_PARAMETERS: Final = 4
MAX_CHARACTERS: Final = 2000  # of an example
MAX_SIZE: Final = 1000  # of a value in it
_DOCTEST: Final = re.compile(r"^[ \t]*>>> (.+)\n[ \t]*(?!>>>)(\S.*)$", re.MULTILINE)
_ASSERT: Final = re.compile(r"^[ \t]*assert (.+)$", re.MULTILINE)
_EQUAL: Final = re.compile(r"^[ \t]*self\.assertEqual\((.+)\)$", re.MULTILINE)
_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "{}": lambda x: x,
    "len({})": len, "sum({})": sum, "max({})": max, "min({})": min, "abs({})": abs, "not {}": operator.not_,
    "-{}": operator.neg, "sorted({})": sorted, "list({})": list, "set({})": set, "str({})": str, "int({})": int,
    "float({})": float, "bool({})": bool, "{}[0]": lambda x: x[0], "{}[-1]": lambda x: x[-1],
    "{}[::-1]": lambda x: x[::-1], "sum({0}) / len({0})": lambda x: sum(x) / len(x),
    "len(set({}))": lambda x: len(set(x)),
    "{0} * {0}": lambda x: x * x, "{} * 2": lambda x: x * 2, "{} / 2": lambda x: x / 2, "{} + 1": lambda x: x + 1,
    "{} - 1": lambda x: x - 1, "{} % 2 == 0": lambda x: x % 2 == 0, "{} > 0": lambda x: x > 0,
    "{}.strip()": lambda x: x.strip(), "{}.lower()": lambda x: x.lower(), "{}.upper()": lambda x: x.upper(),
    "{}.title()": lambda x: x.title(), "{}.capitalize()": lambda x: x.capitalize(), "{}.split()": lambda x: x.split(),
    "{}.strip().lower()": lambda x: x.strip().lower(), '" ".join({})': " ".join, '"".join({})': "".join,
    '", ".join({})': ", ".join, "{0} == {0}[::-1]": lambda x: x == x[::-1], "sorted(set({}))": lambda x: sorted(set(x)),
}  # fmt: skip
_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "{} + {}": operator.add, "{} - {}": operator.sub, "{} * {}": operator.mul, "{} / {}": operator.truediv,
    "{} // {}": operator.floordiv, "{} % {}": operator.mod, "{} in {}": lambda x, y: x in y,
    "{}[{}]": operator.getitem,
    "{} == {}": operator.eq, "{} < {}": operator.lt, "{} <= {}": operator.le, "{}.split({})": lambda x, y: x.split(y),
    "{}.join({})": lambda x, y: x.join(y), "max({}, {})": max, "min({}, {})": min,
    "{} * {} / 100": lambda x, y: x * y / 100,
    "{}.startswith({})": lambda x, y: x.startswith(y), "{}.count({})": lambda x, y: x.count(y),
    "{}.get({})": lambda x, y: x.get(y),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """One call: the parameter values by name, and the result."""

    given: Mapping[str, Any]
    result: Any


def propose_examples(around: Surroundings, index: int) -> list[Proposal]:
    """At most five bodies that give the right result for all examples, the simplest first."""
    document = around.document
    own = find_own(document, around.holes[index]) if document.language == "python" else None
    if own is None or not own.path:
        return []
    header = document.source[own.head : own.body[0]].decode("utf-8", "replace").strip()
    parameters = _read_parameters(header)
    if parameters is None:
        return []
    texts = [document.source[slice(*own.keep)].decode("utf-8", "replace")] if own.keep else []
    texts += [*around.texts, *(each.text for each in around.references)]
    found = dict.fromkeys(_find_calls(own.path[-1], texts))
    examples = [each for call in islice(found, MAX_EXAMPLES) if (each := _read(call, parameters)) is not None]
    if not examples:
        return []
    share = 1 - (1 - shipped_weights().examples) ** len(examples)
    bodies = islice(_find_bodies(list(parameters), examples), MAX_BODIES)
    return [Proposal(f"return {body}", share / place, ORIGIN) for place, body in enumerate(bodies, 1)]


def _read_parameters(header: str) -> list[str] | None:
    """Parameter names; None for methods, and for variadic or more than 4 parameters."""
    with suppress(SyntaxError, ValueError):
        function = ast.parse(f"{header} ...").body[0]
        if isinstance(function, ast.FunctionDef) and not (function.args.vararg or function.args.kwarg):
            names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
            return names if len(names) <= MAX_PARAMETERS and "self" not in names else None
    return None


def _find_calls(name: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Calls of the function with their results, as source text; of an assert both are in the first text."""
    for text in texts:
        if f"{name}(" in text:
            for match in _DOCTEST.finditer(text):
                yield match[1], match[2]
            for match in (*_ASSERT.finditer(text), *_EQUAL.finditer(text)):
                yield match[1], ""


def _read(call: tuple[str, str], parameters: Sequence[str]) -> Example | None:
    """The example of a call; None for other functions, and for values that are not literals."""
    left, right = call
    if len(left) + len(right) > MAX_CHARACTERS:
        return None
    with suppress(SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        asked, result = (ast.parse(each, mode="eval").body for each in call) if right else _split(left)
        if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Name):
            given = dict(zip(parameters, map(ast.literal_eval, asked.args), strict=False))
            given |= {each.arg: ast.literal_eval(each.value) for each in asked.keywords if each.arg}
            if given.keys() == set(parameters) and len(given) == len(asked.args) + len(asked.keywords):
                return Example(given, ast.literal_eval(result))
    return None


def _split(text: str) -> tuple[ast.expr, ast.expr]:
    """Splits `call == result`, `call is True` or `call, result`. Raises ValueError for other expressions."""
    match ast.parse(text, mode="eval").body:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            return left, right
        case ast.Tuple(elts=[left, right]):
            return left, right
    raise ValueError(text)


def _find_bodies(names: Sequence[str], examples: Sequence[Example]) -> Iterator[str]:
    results = [each.result for each in examples]
    if not names or (len(examples) > 2 and all(each == results[0] for each in results)):
        yield repr(results[0])
    for name in names:
        columns = [each.given[name] for each in examples]
        yield from (form.format(name) for form, act in _UNARY.items() if _agrees(act, zip(columns), results))
    for first, second in permutations(names, 2):
        pairs = [(each.given[first], each.given[second]) for each in examples]
        yield from (form.format(first, second) for form, act in _BINARY.items() if _agrees(act, pairs, results))
    if (text := _template(names, examples)) is not None:
        yield text


def _agrees(act: Callable[..., Any], rows: Any, results: Sequence[Any]) -> bool:
    """True if `act` gives every result, with the same type."""
    try:
        for row, result in zip(rows, results, strict=True):
            if any(len(repr(each)) > MAX_SIZE or (isinstance(each, int) and abs(each) > MAX_SIZE) for each in row):
                return False
            found = act(*row)
            if type(found) is not type(result) or found != result:
                return False
    except Exception:  # noqa: BLE001 - the operation may fail on the values in any way
        return False
    return True


def _template(names: Sequence[str], examples: Sequence[Example]) -> str | None:
    """An f-string that gives every result from the arguments; None if there is none."""
    found = set()
    for each in examples:
        if not isinstance(each.result, str) or set("{}\\\"'\n") & set(each.result):
            return None
        text = each.result
        for name in sorted(names, key=lambda name: -len(str(each.given[name]))):
            value = str(each.given[name])
            if value and text.count(value) == 1:
                text = text.replace(value, f"{{{name}}}")
        found.add(text)
    text = found.pop() if len(found) == 1 else ""
    return f'f"{text}"' if "{" in text and text.strip("{}") not in names else None
