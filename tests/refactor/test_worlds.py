"""Random worlds: fills that are wrong, delete, write, hang or connect, in trees whose tests do so themselves.

In each of them exactly the guilty fills are found, and where the command itself cannot be trusted nothing is done.
"""

import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.refactor.trees import HOLE, Tree, make_tree

from midfill_infill.errors import MidfillError
from midfill_infill.refactor.journal.records import FillRow, State
from midfill_infill.refactor.verifying.verify import verify
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.sandbox import run as sandbox
from midfill_infill.sandbox.command import Command

pytestmark = pytest.mark.skipif(sandbox.find_bubblewrap() is None, reason="bubblewrap does not work here")

# What a fill does beside adding two numbers; it knows nothing of the others.
DEEDS = b"""
import os, shutil, socket, sys, time
def nothing(name): pass
def count(name):
    with open(name + ".ran", "x"): pass
def scribble(name):
    os.makedirs("out/deep", exist_ok=True)
    with open("out/deep/" + name, "a") as file: file.write(name)
def poison(name):
    with open("local.py", "w") as file: file.write("raise SystemExit(9)")
def delete_spare(name):
    if os.path.exists("spare"): shutil.rmtree("spare")
def lock(name):
    os.makedirs(name + "/in"); os.chmod(name + "/in", 0); os.chmod(name, 0o500)
def linger(name):
    sys.stdout.flush()
    if os.fork() == 0:
        os.setsid()
        while os.getppid() != 1: time.sleep(0.001)
        while True:
            with open("data.txt", "w") as file: file.write("x")
def delete_data(name):
    if os.path.exists("data.txt"): os.unlink("data.txt")
def change_data(name):
    with open("data.txt", "r+") as file: file.write("DATA")
def link_data(name):
    delete_data(name); os.symlink("/etc/passwd", "data.txt")
def change_module(name):
    with open("m0.py", "a") as file: file.write("x = 1\\n")
def change_check(name):
    with open("check.py", "w") as file: file.write("")
    raise SystemExit(7)
def delete_all(name):
    for entry in os.listdir("."): shutil.rmtree(entry) if os.path.isdir(entry) else os.unlink(entry)
def crash(name): os.kill(os.getpid(), 11)
def hang(name): time.sleep(1000)
def connect(name): socket.create_connection(("127.0.0.1", PORT), 5)
"""
HARMLESS = ("nothing", "nothing", "count", "scribble", "poison", "delete_spare", "lock", "linger")
GUILTY = ("delete_data", "change_data", "link_data", "change_module", "change_check", "delete_all", "crash", "connect")
# How the tree's own tests treat it: nothing, or something that a second run over the same tree would trip over.
TREES = {
    "calm": b"",
    "counts": b"open('ran', 'x').close()\n",
    "deletes": b"os.unlink('fixture.txt')\n",
    "poisons": b"open('local.py', 'w').write('raise SystemExit(8)')\n",
}
CHECK = b"""
import glob, os, sys
sys.path.insert(0, os.getcwd())
sys.dont_write_bytecode = True
if os.path.exists("local.py"): exec(open("local.py").read())
OWN
before = {name: open(name).read() for name in sorted(glob.glob("*.py")) if name != "local.py"}
for path in sorted(glob.glob("m*.py")):
    for name, function in vars(__import__(path[:-3])).items():
        if name.startswith("f_") and function(2, 3) not in (5, None): sys.exit(f"{name} adds wrongly")
assert open("data.txt").read() == "data"
assert {name: open(name).read() for name in before} == before
"""
FLAKY = b"import random\nif random.random() < 0.5: sys.exit(3)\n"


@dataclass
class World:
    tree: Tree
    guilty: set[int]
    command: Command
    is_flaky: bool = False


def make_world(folder: Path, seed: int, port: int) -> World:
    draw = random.Random(seed)
    kind = draw.choice((*TREES, "hangs", "flaky"))
    num_files, per_file = draw.randint(1, 3), draw.randint(1, 2 if kind == "hangs" else 5)
    own = FLAKY if kind == "flaky" else TREES.get(kind, b"")
    files = {
        f"m{number}.py": b"".join(b"def f_%d(a, b):\n    ...\n\n" % index for index in range(per_file))
        for number in range(num_files)
    }
    root = folder / "repo"
    plain = {
        "check.py": CHECK.replace(b"OWN", own), "deeds.py": DEEDS.replace(b"PORT", b"%d" % port),
        "data.txt": b"data", "fixture.txt": b"x", "spare/a/b": b"",
    }  # fmt: skip
    for name, data in plain.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    tree = make_tree(root, files)
    count = num_files * per_file
    bad = set(draw.sample(range(1, count + 1), draw.randint(0, min(count, 1 if kind == "hangs" else 3))))
    with tree.open() as journal:
        fills = []
        for number in range(1, count + 1):
            deed = draw.choice((*GUILTY, "wrong")) if number in bad else draw.choice(HARMLESS)
            deed = "hang" if number in bad and kind == "hangs" else deed
            text = f"import deeds; deeds.{deed}('h{number}'); return a + b"
            text = "return a * b" if deed == "wrong" else text
            path = journal.file(journal.hole(number).file).path
            fills.append((FillRow(number, 0, 0, HOLE, text.encode(), 0, 0.5), files[path]))
        journal.add_fills(fills)
        journal.accept(journal.acceptable())
        if draw.random() < 0.5:
            Writer(journal, root).apply(journal.holes_in(State.ACCEPTED), is_git=False)
    timeout_s = 6.0 if kind == "hangs" else 120.0
    flake_runs = 12 if kind == "flaky" else draw.choice((1, 1, 2))
    command = (sys.executable, "-I", "-S", "check.py")
    return World(tree, bad, Command(command, timeout_s, True, flake_runs), kind == "flaky")


def live(world: World) -> int:
    """Verifies a world and looks at what became of it; returns the number of runs."""
    tree, before = world.tree, world.tree.contents()
    with tree.open() as journal:
        suspects = [hole.id for hole in journal.holes_in(State.ACCEPTED, State.APPLIED)]
        states = {hole: journal.hole(hole).state for hole in suspects}
        writer = Writer(journal, tree.root)
        if world.is_flaky:
            with pytest.raises(MidfillError) as raised:
                verify(tree.place, journal, writer, suspects, world.command)
            assert raised.value.code == "verify_flaky" and tree.contents() == before
            assert {hole: journal.hole(hole).state for hole in suspects} == states
            return 0
        verdict, report = verify(tree.place, journal, writer, suspects, world.command)
        assert set(verdict.guilty) == world.guilty
        assert set(verdict.good) == set(suspects) - world.guilty and report.troubles == []
        assert {hole.id for hole in journal.holes_in(State.ROLLED_BACK)} == world.guilty
    assert tree.contents().keys() == before.keys()
    return verdict.num_runs


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("seed", range(6))
def test_verify_rolls_back_exactly_the_bad_fills_of_a_random_tree(tmp_path: Path, port: int, seed: int) -> None:
    live(make_world(tmp_path, seed, port))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_verify_rolls_back_exactly_the_bad_fills_of_two_hundred_random_trees(port: int) -> None:
    began, num_runs, num_guilty, num_holes, num_flaky = time.perf_counter(), 0, 0, 0, 0
    first = int(os.environ.get("MIDFILL_SEED", "1000"))
    for seed in range(first, first + 200):
        with tempfile.TemporaryDirectory() as folder:
            world = make_world(Path(folder), seed, port)
            num_runs += live(world)
            num_guilty += len(world.guilty) * (not world.is_flaky)
            num_flaky += world.is_flaky
            print(f"{seed - first + 1}", end=" ", flush=True)
            with world.tree.open() as journal:
                num_holes += sum(journal.counts().values())
    print(f"200 worlds, {num_holes} fills: {num_guilty} of {num_guilty} guilty ones rolled back and no other;", end=" ")
    print(f"{num_flaky} flaky commands refused; {num_runs} runs, {time.perf_counter() - began:.0f} s")
