"""A kill at every system call that the whole command makes on files, SQLite's own among them. Needs strace."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.refactor.trees import Tree, is_sound, make_tree, source

HERE = Path(__file__).parent
CALLS = ("openat", "write", "pwrite64", "fsync", "fdatasync", "rename", "renameat2", "unlink", "ftruncate", "fchmod")
CODE = (
    "import sys, json; sys.path.insert(0, sys.argv[2]); import crash_driver as d\n"
    "open('/dev/null').close()\n"
    "print(json.dumps(d.work(json.loads(sys.argv[1]))))"
)


def start(tree: Tree, action: str, inject: str | None = None) -> subprocess.CompletedProcess[str]:
    job = {"journal": str(tree.journal_path), "root": str(tree.root), "action": action}
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={','.join(CALLS)}", "-e", inject] if inject else []
    words = [*trace, sys.executable, "-c", CODE, json.dumps(job), str(HERE)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def find_calls(tree: Tree) -> list[tuple[str, int]]:
    """Every call of the command's own work: its name, and the how-manieth of that name it is since the start.

    strace counts each name by itself.
    """
    job = {"journal": str(tree.journal_path), "root": str(tree.root), "action": "apply"}
    trace = ["strace", "-f", "-qq", "-e", f"trace={','.join(CALLS)}"]
    words = [*trace, sys.executable, "-c", CODE, json.dumps(job), str(HERE)]
    lines = subprocess.run(words, capture_output=True, text=True).stderr.splitlines()
    seen: Counter[str] = Counter()
    found, has_begun = [], False
    for line in lines:
        name = line.split("(")[0].split()[-1]
        if "(" in line and name in CALLS:
            seen[name] += 1
            has_begun = has_begun or '"/dev/null"' in line
            if has_begun:
                found.append((name, seen[name]))
    return found


def test_strace_sees_the_system_calls_of_an_apply(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    calls = find_calls(make_tree(tmp_path / "repo", {"a.py": source(0)}))
    assert {"openat", "fsync", "renameat2", "unlink"} <= {name for name, _ in calls} and len(calls) > 30


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_kill_at_every_system_call(tmp_path: Path) -> None:
    files = {"a.py": source(0), "b.py": source(1)}
    calls = find_calls(make_tree(tmp_path / "count", files))
    num_kills = 0
    for number, (call, when) in enumerate(calls):
        tree = make_tree(tmp_path / str(number), files)
        killed = start(tree, "apply", f"inject={call}:signal=SIGKILL:when={when}")
        num_kills += killed.returncode != 0
        for name, data in tree.contents().items():
            assert name.startswith(".midfill-") or data in (tree.before[name], tree.after[name]), (number, name)
        if number % 2:
            assert json.loads(start(tree, "apply").stdout)["troubles"] == []
            assert tree.contents() == tree.after, number
        assert json.loads(start(tree, "undo").stdout)["troubles"] == []
        assert tree.contents() == tree.before, number
        with tree.open() as journal:
            assert journal.unsettled_writes() == [] and is_sound(journal)
    print(f"{num_kills} kills at {len(calls)} system calls: 0 torn, 0 lost, 0 stray")
    assert num_kills >= len(calls) - 2
