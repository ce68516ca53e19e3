"""The eight tasks of the page, each in the one command that stands there, from plan to undo in one repository."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.refactor.trees import GIT_USER, init_git
from tests.refactor.workers import ScriptedWorkers
from typer.testing import CliRunner

from midfill_engine.requests.outline import split_draft
from midfill_engine.wire import HoleSegment, InfillRequest
from midfill_infill.cli import build_app
from midfill_infill.refactor.generating.generate import generate
from midfill_infill.refactor.journal.journal import Journal
from midfill_infill.refactor.journal.records import State
from midfill_infill.refactor.journal.runs import find_run
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.repository.roots import find_repository

PAGE = (Path(__file__).parent.parent.parent / "docs/refactor.md").read_text("utf-8")
_LINES = re.findall(r"^(midfill refactor plan .*?) +# ", PAGE, re.MULTILINE)
TASKS = list(dict.fromkeys(_LINES))
FILES = {
    "pkg/mod.py": (
        "from old.api import load\n\n\nclass Box:\n    def get(self, key):\n        ...\n\n"
        "    def put(self, key, /, *, size: int = 1) -> None:\n        self.data = load(key)\n\n\n"
        "def plain(x):\n    # TODO: refuse None\n    return x\n"
    ),
    "web/a.ts": "export function check(n: number) {\n  // TODO: check it\n  return n;\n}\n",
    "tool/a.go": "package tool\n\nfunc Run(n int) int {\n\t// TODO: count\n\treturn n\n}\n",
    "packages/api/b.py": "def stub():\n    ...\n",
    "packages/db/c.py": "def other():\n    ...\n",
    "old.txt": "load(1)\n",
}
CHANGED = "\n\ndef added(x):\n    return x\n"
# By its task: what is to be filled, by file and name, with what, and what then stands in one of the files.
EXPECTED: dict[str, tuple[set[tuple[str, str | None]], str, tuple[str, str]]] = {
    "--recipe add-docstrings": ({("pkg/mod.py", "Box.put"), ("pkg/mod.py", "plain"), ("pkg/mod.py", "added")}, "Does.",
                       ("pkg/mod.py", '"""Does."""\n        self.data')),
    "--where 'calls old.api.load'": ({("pkg/mod.py", "Box.put")}, "return json.loads(key)",
                                     ("pkg/mod.py", "import json\n\nfrom old.api import load")),
    "--recipe fill-todos --glob '*.py' --glob '*.ts' --glob '*.go'": (
        {("pkg/mod.py", "plain"), ("web/a.ts", "check"), ("tool/a.go", "Run")}, "check(1)",
                   ("tool/a.go", "\t// count\n\tcheck(1)\n")),
    "--recipe add-type-hints": ({("pkg/mod.py", name) for name in ("get", "put", "plain", "added")}
                       | {("packages/api/b.py", "stub"), ("packages/db/c.py", "other")}, "HINTS",
                       ("pkg/mod.py", "def put(self, key: Any, /, *, size: int = 1) -> None:")),
    "--recipe migrate-call=old.api.load:new.api.read": (
        {("pkg/mod.py", None)}, "key", ("pkg/mod.py", "self.data = read(key)")),
    "--stubs --name 'pkg.mod:Box.*'": (
        {("pkg/mod.py", "Box.get")}, "return key", ("pkg/mod.py", "        return key\n")),
    "--recipe add-docstrings --changed=main": (
        {("pkg/mod.py", "added")}, "Does.", ("pkg/mod.py", 'def added(x):\n    """Does."""\n')),
    "--stubs packages/api": ({("packages/api/b.py", "stub")}, "return 1", ("packages/api/b.py", "return 1")),
}  # fmt: skip


def answer(request: InfillRequest, text: str) -> str:
    hole = next(segment.hole for segment in request.segments if isinstance(segment, HoleSegment))
    if not hole.draft:
        return text
    return "".join(known if is_kept else "Any" for known, is_kept in split_draft(hole))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    init_git(tmp_path)
    for words in (["branch", "-M", "main"], ["switch", "-q", "-c", "work"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    with open(tmp_path / "pkg/mod.py", "a") as file:
        file.write(CHANGED)
    subprocess.run(["git", *GIT_USER, "commit", "-qam", "more"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_has_the_eight() -> None:
    assert len(TASKS) == len(EXPECTED) == 8


@pytest.mark.parametrize("command", TASKS)
def test_each_task_of_the_page_is_planned_filled_and_applied(repository: Path, command: str) -> None:
    holes, text, (name, after) = EXPECTED[command.removeprefix("midfill refactor plan ")]
    runner, words = CliRunner(), shlex.split(command)[1:]
    said = runner.invoke(build_app(), [*words, "--dry-run"]).stdout
    assert {(line["file"], line["name"]) for line in map(json.loads, said.splitlines())} == holes
    assert runner.invoke(build_app(), words).exit_code == 0
    before = {path: (repository / path).read_bytes() for path in FILES}
    with Journal(find_run(find_repository(repository))) as journal:
        generate(journal, repository, ScriptedWorkers(lambda request: answer(request, text)), jobs=1)
        chosen = journal.acceptable()
        assert chosen and set(journal.counts()) <= {State.GENERATED, State.FAILED}
        writer = Writer(journal, repository)
        assert writer.apply(chosen, is_git=True).troubles == []
        assert after in (repository / name).read_text()
        writer.undo(list(journal.holes_in(State.APPLIED)))
    assert {path: (repository / path).read_bytes() for path in FILES} == before
