"""Why a command failed, as test programs and compilers other than pytest print it."""

import time

import pytest

from midfill_engine.wire import Stats
from midfill_infill.filling.candidates import Alternative
from midfill_infill.filling.fill import Filled
from midfill_infill.sandbox.failures import read_output
from midfill_infill.sandbox.reasons import find_reason
from midfill_infill.sandbox.runner import Ran
from midfill_infill.text.spans import Patch
from midfill_infill.until.trying import Tried, Try

NODE = """TAP version 13
# Subtest: cart
    # Subtest: total of two
    not ok 1 - total of two
      ---
      duration_ms: 11.018402
      failureType: 'testCodeFailure'
      error: |-
        Expected values to be strictly equal:

        0 !== 3

      code: 'ERR_ASSERTION'
      name: 'AssertionError'
      ...
not ok 1 - cart
  ---
  error: '1 subtest failed'
  ...
"""
CARGO = """   Compiling x v0.1.0 (/x)
warning: unused variable: `p`
 --> src/lib.rs:1:14

test tests::total_of_two ... FAILED

---- tests::total_of_two stdout ----

thread 'tests::total_of_two' (30255) panicked at src/lib.rs:4:29:
assertion `left == right` failed
  left: 0
 right: 3
stack backtrace:
   0: __rustc::rust_begin_unwind
note: Some details are omitted

error: test failed, to rerun pass `--lib`
"""
OUTPUTS = {
    "node": (NODE, "Expected values to be strictly equal: 0 !== 3"),
    "node, a message": ("not ok 2 - ok\n  ---\n  error: 'wants more'\n  code: 'ERR_ASSERTION'\n", "wants more"),
    "node, a file that ends": (
        "# TypeError: a.b is not a function\n#     at x.js:1\nnot ok 1 - x.js\n  ---\n  error: 'test failed'\n  ...\n",
        "TypeError: a.b is not a function",
    ),
    "node, on a terminal": (
        "\x1b[31m✖ total\n  AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n\n  0 !== 3\n",
        "AssertionError [ERR_ASSERTION]: Expected values to be strictly equal: 0 !== 3",
    ),
    "jest": (
        "  ● total\n\n    expect(received).toBe(expected) // Object.is\n\n    Expected: 3\n    Received: 0\n\n",
        "Expected: 3 Received: 0",
    ),
    "cargo": (CARGO, "assertion `left == right` failed left: 0 right: 3"),
    "cargo, older": ("thread 't' panicked at 'no x', src/lib.rs:6:48\nnote: run with `RUST_BACKTRACE=1`\n", "no x"),
    "rustc": (
        "   Compiling x\nerror[E0308]: mismatched types\n --> src/lib.rs:1:34\n\nerror: could not compile `x`\n",
        "mismatched types",
    ),
    "go, a compiler's": ("# shop\n./cart.go:5:2: undefined: x\nFAIL\tshop [build failed]\nFAIL\n", "undefined: x"),
    "tsc": ("src/a.ts(3,5): error TS2322: Type 'a' is no 'b'.\n", "TS2322: Type 'a' is no 'b'."),
    "java": ("java.lang.AssertionError: expected:<3> but was:<0>\n\tat A.b(A.java:3)\n",
             "java.lang.AssertionError: expected:<3> but was:<0>"),
    "nothing known": ("all is quiet\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_reason_is_found_in_the_output(kind: str) -> None:
    output, reason = OUTPUTS[kind]
    assert find_reason(output) == reason


@pytest.mark.parametrize("piece", ["a", ".", "\n", "Error", "error: |-\nx\n"])
def test_long_output_is_read_in_linear_time(piece: str) -> None:
    output = piece * (40_000 // len(piece)) + "!"
    began_s = time.process_time()
    assert read_output(output) == (None, ())
    find_reason(output)
    assert time.process_time() - began_s < 2  # a quadratic pattern takes half a minute


def make_tried(num_runs: int, num_allowed: int) -> Tried:
    candidate = Alternative(Patch(()), (), 0)
    ran = Ran(1, NODE, 0.1)
    tries = tuple(Try(number + 1, candidate, ran) for number in range(num_runs))
    return Tried(Filled(candidate, (), Stats(steps=1, forwards=1, tokens=1, ms=1.0), "m"), tries, num_allowed)


def test_tries_have_the_reason_of_their_output() -> None:
    assert make_tried(2, 2).tries[0].ran.reason == "Expected values to be strictly equal: 0 !== 3"
    assert make_tried(2, 2).sentence.endswith("all for one reason: Expected values to be strictly equal: 0 !== 3")
    assert Ran(0, NODE, 0.1).reason == "" == Ran(None, NODE, 0.1).reason


def test_more_tries_are_advised_only_where_all_were_used() -> None:
    assert make_tried(2, 2).next_step is None, "what the table says"
    assert make_tried(2, 20).next_step == "there are no other candidates, so give a larger --model"
