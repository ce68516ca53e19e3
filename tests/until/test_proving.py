"""What `midfill refactor generate --until` journals, and what it proves again; the tests run in this process."""

import json
from pathlib import Path

import pytest
from tests.until.quick import QuickRunner, use_quick_runner
from tests.until.runs import Engine, generate, run, states
from tests.until.shops import needs_bubblewrap

from midfill_infill.refactor.generating import until
from midfill_infill.refactor.generating.generate import HoleResult
from midfill_infill.refactor.journal.records import HoleRow

pytestmark = needs_bubblewrap
CHAIN = "def inner(x):\n    ...\n\n\ndef outer(x):\n    ...\n"
CHAIN_TESTS = "import chain\n\n\ndef test_outer():\n    assert chain.outer(1) == 3\n"

BESIDE = {
    "chain.py": f"{CHAIN}\n\ndef show(x):\n    ...\n\n\ndef wrap(x):\n    return show(x)\n",
    "test_inner.py": "import chain\n\n\ndef test_inner():\n    assert chain.wrap(chain.inner(1)) == '2'\n",
    "test_outer.py": "import chain\n\n\ndef test_outer():\n    assert chain.outer(1) == 3\n",
    "test_show.py": "import chain\n\n\ndef test_show():\n    assert chain.show(1) == '1'\n",
}


@pytest.fixture(autouse=True)
def quick_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    use_quick_runner(monkeypatch, until)


def list_holes() -> list[tuple[str, str, str]]:
    holes = [json.loads(line) for line in run("export", "--format", "jsonl").stdout.splitlines()]
    return [(hole["name"], hole["state"], hole["new"] or "") for hole in holes]


def test_a_fill_that_waits_for_its_proof_survives_a_kill(
    root: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.bodies = {"outer": "return inner(x) + 1", "inner": "return x + 1"}
    with monkeypatch.context() as patch:
        patch.setattr(until.Tester, "prove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        generate(root, {"chain.py": CHAIN, "test_chain.py": CHAIN_TESTS})
    assert list_holes() == [("inner", "planned", "return x + 1"), ("outer", "planned", "return inner(x) + 1")]
    assert "0 holes written" in run("apply", "--all").stderr
    engine.bodies = {}
    assert run("generate", "--until", "pytest").exit_code == 0
    assert list_holes() == [("inner", "generated", "return x + 1"), ("outer", "generated", "return inner(x) + 1")]


def test_a_fill_that_passed_only_beside_a_refused_one_is_refused_too(root: Path, engine: Engine) -> None:
    """`outer` passes with a wrong `inner`, whose own test stops in `show` until that is filled."""
    engine.bodies = {"inner": "return x + 2", "outer": "return inner(x)", "show": "return str(x)"}
    result = generate(root, BESIDE)
    found = {name: state for name, state, _ in list_holes()}
    assert found == {"inner": "failed", "outer": "failed", "show": "generated"}, result.stderr


def test_a_fill_that_passed_beside_a_refused_one_before_an_interruption_is_refused(
    root: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.bodies = {"inner": "return x + 2", "outer": "return inner(x)", "show": "return str(x)"}
    prove = until.Tester.prove
    num_asked = 0

    def prove_one(tester: until.Tester, hole: HoleRow) -> HoleResult:
        nonlocal num_asked
        num_asked += 1
        if num_asked > 1:
            raise KeyboardInterrupt
        return prove(tester, hole)

    with monkeypatch.context() as patch:
        patch.setattr(until.Tester, "prove", prove_one)
        generate(root, BESIDE)
    assert states() == {"failed": 1, "planned": 2}, "`inner` is refused, `outer` may have passed by it"
    run("generate", "--until", "pytest")
    found = {name: state for name, state, _ in list_holes()}
    assert found == {"inner": "failed", "outer": "failed", "show": "generated"}


def test_a_command_that_is_warm_is_not_started_anew_for_the_next_hole(root: Path, engine: Engine) -> None:
    engine.bodies = {"outer": "return x + 2", "inner": "return x + 1"}
    tests = f"{CHAIN_TESTS}\n\ndef test_inner():\n    assert chain.inner(1) == 2\n"
    generate(root, {"chain.py": CHAIN, "test_chain.py": tests})
    assert states() == {"generated": 2}
    assert QuickRunner.num_cold == 4, "of the tree as it is, of each fill that passes, and of the proof of the first"
    assert QuickRunner.num_warm == 6, "of the tree as it is, of a probe and of the fill, for both holes"
