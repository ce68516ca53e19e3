"""Requests for the engine's tests."""

import random
from typing import Any

from midfill_engine.wire import HoleSegment, HoleSpec, InfillRequest, TextSegment

TEXT = "def total(items):\n    result = 0\n    for item in items:\n        result += item\n    return result\n"
HEADER = TEXT + "\n\ndef other(items):\n    "
NEXT = "\n\n\ndef third(x):\n    return x\n"
ATOMS: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**64,
    1e308,
    "",
    "\x00",
    "\U0001f600" * 9,
    "\u202e",
    [],
    {},
    [[]],
    [{}],
    {"hole": {}},
]


def ask(*segments: TextSegment | HoleSegment, **other: object) -> InfillRequest:
    return InfillRequest(segments=list(segments), **other)  # type: ignore[arg-type]


def ask_after_return(hole: dict[str, object] | None = None, **options: object) -> InfillRequest:
    segments = [{"text": "def f(a):\n    return "}, {"hole": hole or {"max_tokens": 9}}, {"text": "\n\nf(1)\n"}]
    return InfillRequest.model_validate({"segments": segments, **options})


def body(spec: HoleSpec, **options: object) -> InfillRequest:
    return ask(TextSegment(text=HEADER), HoleSegment(hole=spec), TextSegment(text=NEXT), **options)


def selection(spec: HoleSpec, **options: object) -> InfillRequest:
    """Whole lines among others of the same block."""
    before = TextSegment(text=TEXT + "\n\ndef other(items):\n")
    return ask(before, HoleSegment(hole=spec), TextSegment(text="    x = 3\n    return x\n"), **options)


def line(spec: HoleSpec, **options: object) -> InfillRequest:
    return ask(TextSegment(text=HEADER + "x = "), HoleSegment(hole=spec), TextSegment(text=NEXT), **options)


def mutate(value: Any, rng: random.Random) -> Any:
    """`value` with something somewhere in it replaced, doubled or dropped."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        changed = {**value, key: mutate(value[key], rng)}
        return changed if rng.random() < 0.9 else {name: part for name, part in value.items() if name != key}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        return value[:index] + [mutate(value[index], rng)] * rng.randint(0, 3) + value[index + 1 :]
    return rng.choice(ATOMS)
