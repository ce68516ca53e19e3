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
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.refactor.real_repositories import fetch

from bench.stubs import replace_body
from midfill_infill.context.neighbors import is_test
from midfill_infill.context.references import find_references
from midfill_infill.engines.client import EngineClient
from midfill_infill.engines.supervise import EngineSettings, ensure_engine
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox.command import read_command
from midfill_infill.syntax.bodies import body_hole
from midfill_infill.syntax.holes import find_stubs
from midfill_infill.syntax.outline import outline
from midfill_infill.text.document import Document
from midfill_infill.text.spans import Patch
from midfill_infill.until.choosing import ReachingTests
from midfill_infill.until.lab import Lab, open_lab
from midfill_infill.until.trying import Tried, Try

AT: Final = (1, 5, 20)
STUB: Final = "..."
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
    result, began_s = Result(name), time.perf_counter()
    document = Document.read(path)
    holes = find_stubs(document)
    options = Options(references=find_references(document, path))
    root = path.parent
    while not (root / ".git").exists():
        root = root.parent
    command = read_command(shown, 120)
    with open_lab(document, path, command, root) as lab:
        tried: Tried | None = None
        make = partial(fill, client=client)
        try:
            with closing(lab.fill(lab.find_examples(holes), options, make, num_tries)) as events:
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
        greedy = _last(fill(document, holes, options, client))
        result.greedy = lab.runner.run(lab._files(greedy.patch)).is_good
        result.num_tries = len(tried.tries)
        result.solved_at = tried.best.number if tried.passed and tried.best else 0
        result.has_hidden = bool(hidden)
        result.hidden = bool(result.solved_at) and bool(hidden) and _passes(lab, hidden, tried.filled.patch)
        result.greedy_hidden = result.greedy and bool(hidden) and _passes(lab, hidden, greedy.patch)
    return result


def _last(events: Iterator[object]) -> Filled:
    *_, last = events
    assert isinstance(last, Filled)
    return last


def _passes(lab: Lab, line: str, patch: Patch) -> bool:
    lab.runner.copy.put(lab._files(patch))
    return lab.runner.copy.run(read_command(line, 120)).passed


def read_mbpp(suite: Path, limit: int) -> Iterator[tuple[str, str, list[str]]]:
    """Programs with a stub for the body of their only function, and their assertions."""
    seen = set[str]()
    with gzip.open(suite, "rt") as lines:
        for task in map(json.loads, lines):
            if task["split"] != "validation" or task["group"] in seen or len(seen) >= limit:
                continue
            program = task["prefix"] + task["middle"] + task["suffix"]
            tests = [line for line in task["program_tail"].splitlines() if line.startswith("assert ")]
            document = Document.from_bytes(program.encode(), Path("solution.py"))
            functions = outline(document).functions
            if len(functions) != 1 or len(tests) < 2:
                continue
            seen.add(task["group"])
            hole = body_hole(document, functions[0])
            edit = replace_body(hole, STUB)
            yield f"mbpp/{task['group']}", Patch.of([edit]).apply(document.data).decode(), tests


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
            for function, path, original, source, tests in _plant(root):
                path.write_bytes(source)
                shown, hidden = _split(root, tests)
                if shown:
                    num_asked += 1
                    rest = f"{PYTEST} {hidden}" if hidden else ""
                    yield solve(f"{name} {function}", path, rest, f"{PYTEST} {shown}", client, num_tries)
                path.write_bytes(original)
                if num_asked == each:
                    break


def _plant(root: Path) -> Iterator[tuple[str, Path, bytes, bytes, list[Path]]]:
    """Random functions of the package, with their files and the tests that name them."""
    tests, found = ReachingTests(find_repository(root)), []
    for path in sorted(root.rglob("*.py")):
        if is_test(path) or "test" in path.relative_to(root).parts[0] or path.name in ("setup.py", "conftest.py"):
            continue
        document = Document.read(path)
        names = [function.name for function in outline(document).functions]
        for function in outline(document).functions:
            hole = body_hole(document, function)
            lines = document.data[hole.start_byte : hole.end_byte].count(b"\n") + 1
            naming = tests.find(path, function.name) if function.name else []
            if function.name and names.count(function.name) == 1 and 1 <= lines <= 8 and 0 < len(naming) <= 4:
                edit = replace_body(hole, STUB)
                found.append((function.name, path, document.data, Patch.of([edit]).apply(document.data), naming))
    random.Random(0).shuffle(found)
    for name, path, original, source, naming in found:
        if len(find_stubs(Document(source, "python", path))) == 1:
            yield name, path, original, source, naming


def _split(root: Path, tests: Sequence[Path]) -> tuple[str, str]:
    """Command arguments of the shown and the hidden tests: every second one that fails with the stub is shown."""
    files = [str(path.relative_to(root)) for path in tests]
    words = [*PYTEST.split(), "-rfE", "--tb=no", "-W", "ignore", *files]
    source = root / "src" if (root / "src").is_dir() else root
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=300).stdout
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    failing = [line.split(" ", 1)[1].split(" - ")[0] for line in lines]
    plain = [test for test in dict.fromkeys(failing) if " " not in test and "::" in test]
    return " ".join(f"'{test}'" for test in plain[::2][:20]), " ".join(f"'{test}'" for test in plain[1::2][:20])


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
        middle, slowest = sorted(run.seconds for run in warm)[5], max(run.seconds for run in warm)
        again = sorted(run.seconds for run in cold)[5]
        return f"warm {middle:.2f} s (slowest {slowest:.2f}), cold {again:.2f} s"


def report(results: Sequence[Result]) -> str:
    """A row of the table in docs/until.md."""
    asked = [each for each in results if not each.refused]
    total = max(1, len(asked))
    shares = [sum(each.greedy for each in asked), *(sum(0 < each.solved_at <= at for each in asked) for at in AT)]
    solved = [each for each in asked if each.solved_at and each.has_hidden]
    wrong = sum(not each.hidden for each in solved)
    tries = max(1, sum(each.num_tries for each in asked))
    seconds = sum(each.run_seconds for each in asked) / tries
    first = sum(each.first_s for each in asked) / total
    rest = sum(each.seconds - each.run_seconds for each in asked) / total
    cells = [f"{100 * share / total:.1f}" for share in shares]
    right = f"{sum(each.greedy_hidden for each in asked)} / {sum(each.hidden for each in solved)}"
    last = [right, f"{wrong} of {len(solved)}", f"{seconds:.2f} s", f"{first:.1f} s", f"{rest:.1f} s"]
    return f"| {len(asked)} | {' | '.join([*cells, *last])} |"


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
    endpoint = ensure_engine(EngineSettings(model=options.model), lambda said: print(said, file=sys.stderr))
    results: list[Result] = []
    with EngineClient(endpoint) as client:
        runs = (
            run_mbpp(Path(options.names[0]), options.limit, client, options.tries)
            if options.what == "mbpp"
            else run_packages(options.names, options.each, client, options.tries)
        )
        for result in runs:
            results.append(result)
            told = f"solved at {result.solved_at}" if result.solved_at else result.refused or "not solved"
            print(f"{result.name}: {told}, {result.num_tries} tries, {result.seconds:.1f} s", file=sys.stderr)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
    print("| functions | greedy | at 1 | at 5 | at 20 | right (greedy / until) | passes shown, fails hidden | s a try |"
          " CPU s a try | engine s a function |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    print(report(results))


if __name__ == "__main__":
    main()
