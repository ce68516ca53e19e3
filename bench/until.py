"""Measures `--until`: how many functions are solved within 1, 5 and 20 tries, and by the greedy fill.

    python -m bench until mbpp SUITE.jsonl.gz [--limit N] [--out FILE.jsonl]
    python -m bench until packages NAME==VERSION... [--each N] [--out FILE.jsonl]

    python -m bench until warm

MBPP: the body of each function is the hole; half of its assertions form the test file for `--until`, the others only
score. Packages: functions that their own tests call become stubs one at a time; every second test that fails with the
stub is shown. Needs bubblewrap, and pytest in this Python's environment.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.refactor.real_repositories import fetch

from bench.quality.engine import running_engine
from bench.stubs import replace_body
from midfill_infill.context.neighbors import is_test
from midfill_infill.context.references import find_references
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox.command import read_command
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.captures import Function
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Patch
from midfill_infill.until.choosing import ReachingTests
from midfill_infill.until.lab import Lab, open_lab
from midfill_infill.until.trying import Tried, Try

AT: Final = (1, 5, 20)
STUB: Final = "..."
MOST_LINES: Final = 8  # of a body that becomes a stub
MOST_TESTS: Final = 4  # files that name its function
PYTEST: Final = f"{sys.executable} -m pytest -q -p no:cacheprovider"


@dataclass
class Result:
    """One function. `solved_at` is the number of the try that passed the shown tests, 0 for none; `hidden` is true if
    it also passed the hidden tests; `greedy` and `greedy_hidden` are the same for the ordinary fill. `first_s`: seconds
    until the first try began; `run_seconds` those of all tries, of `seconds` in all.
    """

    name: str
    refused: str = ""
    greedy: bool = False
    greedy_hidden: bool = False
    solved_at: int = 0
    hidden: bool = False
    has_hidden: bool = True
    num_tries: int = 0
    seconds: float = 0.0
    run_seconds: float = 0.0
    first_s: float = 0.0
    num_warm: int = 0


def solve(name: str, path: Path, hidden: str, shown: str, client: EngineClient, num_tries: int) -> Result:
    """Fills the only stub of a file until `shown` passes; runs `hidden` for the fill that passed and the greedy one."""
    result = Result(name, has_hidden=bool(hidden))
    began_s = time.perf_counter()
    document = Document.read(path)
    holes = find_stubs(document)
    options = Options(references=find_references(document, path))
    root = next(folder for folder in path.parents if (folder / ".git").exists())
    with open_lab(document, path, read_command(shown, 120), root) as lab:
        examples = lab.find_examples(holes)
        tried: Tried | None = None
        try:
            with closing(lab.fill(examples, options, partial(fill, client=client), num_tries)) as events:
                for event in events:
                    if isinstance(event, Try):
                        result.first_s = result.first_s or time.perf_counter() - began_s - event.ran.seconds
                        result.run_seconds += event.ran.seconds
                        result.num_warm += event.ran.is_warm
                    elif isinstance(event, Tried):
                        tried = event
        except MidfillError as error:
            result.refused = error.sentence
            return result
        assert tried is not None
        result.seconds = time.perf_counter() - began_s
        *_, greedy = fill(document, holes, options, client)
        assert isinstance(greedy, Filled)
        result.greedy = lab.runner.run(lab._files(greedy.patch)).is_good
        result.num_tries = len(tried.tries)
        if tried.passed and tried.best:
            result.solved_at = tried.best.number
        if hidden:
            result.hidden = bool(result.solved_at) and _passes(lab, hidden, tried.filled.patch)
            result.greedy_hidden = result.greedy and _passes(lab, hidden, greedy.patch)
    return result


def _passes(lab: Lab, line: str, patch: Patch) -> bool:
    lab.runner.copy.put(lab._files(patch))
    return lab.runner.copy.run(read_command(line, 120)).passed


def read_mbpp(suite: Path, limit: int) -> Iterator[tuple[str, str, list[str]]]:
    """Programs with a stub for the body of their only function, and their assertions."""
    groups: set[str] = set()
    with gzip.open(suite, "rt") as lines:
        for task in map(json.loads, lines):
            group = task["group"]
            if task["split"] != "validation" or group in groups or len(groups) >= limit:
                continue
            program = task["prefix"] + task["middle"] + task["suffix"]
            tests = [line for line in task["program_tail"].splitlines() if line.startswith("assert ")]
            document = Document.from_bytes(program.encode(), Path("solution.py"))
            functions = outline(document).functions
            if len(functions) != 1 or len(tests) < 2:
                continue
            groups.add(group)
            yield f"mbpp/{group}", leave_stub(document, functions[0]).decode(), tests


def leave_stub(document: Document, function: Function) -> bytes:
    """The file with a stub for the function's body."""
    edit = replace_body(body_hole(document, function), STUB)
    return Patch.of([edit]).apply(document.data)


def run_mbpp(suite: Path, limit: int, client: EngineClient, num_tries: int) -> Iterator[Result]:
    for name, source, tests in read_mbpp(suite, limit):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            root = Path(folder)
            (root / ".git").mkdir()
            (root / "solution.py").write_text(source)
            middle = (len(tests) + 1) // 2
            for file, lines in (("test_shown.py", tests[:middle]), ("hidden.py", tests[middle:])):
                cases = "".join(f"\n\ndef test_{number}():\n    {line}\n" for number, line in enumerate(lines))
                (root / file).write_text(f"from solution import *\n{cases}")
            yield solve(name, root / "solution.py", f"{PYTEST} hidden.py", f"{PYTEST} test_shown.py", client, num_tries)


def run_packages(names: Sequence[str], each: int, client: EngineClient, num_tries: int) -> Iterator[Result]:
    for name in names:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            root = fetch(name, Path(folder))
            num_asked = 0
            for planted in _plant(root):
                planted.path.write_bytes(planted.source)
                shown, hidden = _split(root, planted.tests)
                if shown:
                    num_asked += 1
                    rest = f"{PYTEST} {hidden}" if hidden else ""
                    title = f"{name} {planted.function}"
                    yield solve(title, planted.path, rest, f"{PYTEST} {shown}", client, num_tries)
                planted.path.write_bytes(planted.original)
                if num_asked == each:
                    break


@dataclass(frozen=True)
class Planted:
    """A function of a file whose body became a stub in `source`, and the tests that name it."""

    function: str
    path: Path
    original: bytes
    source: bytes
    tests: list[Path]


def _plant(root: Path) -> Iterator[Planted]:
    """Random functions of the package."""
    tests = ReachingTests(find_repository(root))
    candidates: list[Planted] = []
    for path in sorted(root.rglob("*.py")):
        if is_test(path) or "test" in path.relative_to(root).parts[0] or path.name in ("setup.py", "conftest.py"):
            continue
        document = Document.read(path)
        functions = outline(document).functions
        names = [function.name for function in functions]
        for function in functions:
            if not function.name or names.count(function.name) > 1:
                continue
            hole = body_hole(document, function)
            num_lines = document.data[hole.start_byte : hole.end_byte].count(b"\n") + 1
            naming = tests.find(path, function.name)
            if num_lines <= MOST_LINES and 0 < len(naming) <= MOST_TESTS:
                source = leave_stub(document, function)
                candidates.append(Planted(function.name, path, document.data, source, naming))
    random.Random(0).shuffle(candidates)
    for planted in candidates:
        if len(find_stubs(Document(planted.source, "python", planted.path))) == 1:
            yield planted


def _split(root: Path, tests: Sequence[Path]) -> tuple[str, str]:
    """Command arguments of the shown and the hidden tests: every second one that fails with the stub is shown."""
    files = [str(path.relative_to(root)) for path in tests]
    words = [*PYTEST.split(), "-rfE", "--tb=no", "-W", "ignore", *files]
    source = root / "src" if (root / "src").is_dir() else root
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    output = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=300).stdout
    failing: dict[str, None] = {}
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            test = line.split(" ", 1)[1].split(" - ")[0]
            if " " not in test and "::" in test:
                failing[test] = None
    quoted = [f"'{test}'" for test in failing]
    return " ".join(quoted[::2][:20]), " ".join(quoted[1::2][:20])


def measure_warm() -> str:
    """Seconds and CPU seconds of a warm and of a cold try, for a suite that takes 0.2 s and imports numpy."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        root = Path(folder)
        (root / ".git").mkdir()
        (root / "solution.py").write_text("import numpy\n\n\ndef half(a):\n    ...\n")
        body = "    time.sleep(0.2)\n    assert solution.half(4) == 2\n"
        test = f"import time\nimport solution\n\n\ndef test_half():\n{body}"
        (root / "test_solution.py").write_text(test)
        document = Document.read(root / "solution.py")
        with open_lab(document, root / "solution.py", read_command(PYTEST, 60), root) as lab:
            lab.start(find_stubs(document))
            files = lab._files(Patch(()))
            warm = [lab.runner.run(files) for _ in range(10)]
            cold = [lab.runner.run(files, cold=True) for _ in range(10)]
        warm_s = sorted(run.seconds for run in warm)
        cold_s = sorted(run.seconds for run in cold)
        return f"warm {warm_s[5]:.2f} s (slowest {warm_s[-1]:.2f}), cold {cold_s[5]:.2f} s"


def report(results: Sequence[Result]) -> str:
    """A row of the table in docs/until.md."""
    asked = [result for result in results if not result.refused]
    total = max(1, len(asked))
    solved = [result for result in asked if result.solved_at and result.has_hidden]
    num_right_greedy = sum(result.greedy_hidden for result in asked)
    num_right = sum(result.hidden for result in solved)
    num_tries = max(1, sum(result.num_tries for result in asked))
    run_s = sum(result.run_seconds for result in asked)
    engine_s = sum(result.seconds - result.run_seconds for result in asked)
    first_s = sum(result.first_s for result in asked)
    counts = [sum(result.greedy for result in asked)]
    for at in AT:
        counts.append(sum(0 < result.solved_at <= at for result in asked))
    cells = [
        str(len(asked)),
        *(f"{100 * count / total:.1f}" for count in counts),
        f"{num_right_greedy} / {num_right}",
        f"{len(solved) - num_right} of {len(solved)}",
        f"{run_s / num_tries:.2f} s",
        f"{first_s / total:.1f} s",
        f"{engine_s / total:.1f} s",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("mbpp", "packages", "warm"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.what == "warm":
        return print(measure_warm())
    if not options.names:
        parser.error("name a suite, or packages as NAME==VERSION")
    results: list[Result] = []
    with ExitStack() as stack:
        records = stack.enter_context(options.out.open("w", encoding="utf-8")) if options.out else None
        client = stack.enter_context(EngineClient(stack.enter_context(running_engine(options.model))))
        if options.what == "mbpp":
            runs = run_mbpp(Path(options.names[0]), options.limit, client, options.tries)
        else:
            runs = run_packages(options.names, options.each, client, options.tries)
        for result in runs:
            results.append(result)
            outcome = result.refused or "not solved"
            if result.solved_at:
                outcome = f"solved at {result.solved_at}"
            print(f"{result.name}: {outcome}, {result.num_tries} tries, {result.seconds:.1f} s", file=sys.stderr)
            if records:
                print(json.dumps(asdict(result)), file=records, flush=True)
    print("| functions | greedy | at 1 | at 5 | at 20 | right (greedy / until) | passes shown, fails hidden | s a try |"
          " CPU s a try | engine s a function |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    print(report(results))


if __name__ == "__main__":
    main()
