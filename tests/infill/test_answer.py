"""What is done between an engine's answer and its fill, counted: as much in a large file as in a small one."""

import sys
from collections import Counter
from typing import cast

from tests.infill.fake_engines import WHOLE, Answering

from midfill_infill.engines.client import EngineClient
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.languages import REGISTRY
from midfill_infill.syntax.holes import body_named
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document

GOOD, BAD = "return a + b", "return (a"
PYTHON = REGISTRY["python"]


def fill_last(text: str, num_functions: int) -> tuple[Filled, Counter[str]]:
    others = "".join(
        f"def other_{number}(value):\n    return value + {number}\n\n\n" for number in range(num_functions)
    )
    document = Document(f"{others}def add(a, b):\n    ...\n".encode(), "python")
    outline(document)  # as an editor has it read while its user rests
    assert document.indent_unit
    client = Answering(text)
    try:
        *_, last = fill(document, [body_named(document, "add")], Options(repair=False), cast(EngineClient, client))
    finally:
        sys.setprofile(None)
    assert isinstance(last, Filled)
    return last, client.calls


def test_a_fill_without_a_fault_takes_as_much_in_a_large_file() -> None:
    (small, calls), (large, more) = (fill_last(GOOD, num_functions) for num_functions in (10, 1000))
    assert small.fills[0].text == large.fills[0].text == GOOD
    assert more.total() < 1.1 * calls.total(), (more - calls).most_common(5)
    assert WHOLE not in calls | more


def test_the_counter_sees_a_whole_file_that_is_parsed() -> None:
    filled, calls = fill_last(BAD, 10)
    assert filled.fills[0].text == "return value + 0" and "Sieve.count_errors" in calls
    counting = Answering(GOOD)
    sys.setprofile(counting.count)
    PYTHON.parse(b"x = 1")
    sys.setprofile(None)
    assert counting.calls[WHOLE] == 1
