"""A copy is what it was whatever a command did to it; what a tree has is in it; what killed commands left goes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.refactor.trees import init_git

from midfill_infill.errors import MidfillError
from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox import copy, mirror
from midfill_infill.sandbox.inventory import take_inventory
from midfill_infill.sandbox.mirror import Mirror


def contents(folder: Path) -> dict[str, object]:
    """Kind, mode and content of everything below."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        inside = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (status.st_mode, inside)
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Mirror:
    root = tmp_path / "root"
    for name in ("a.py", "b/c.py", "b/d/e.txt", "data.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "run.sh").touch(0o755)
    (root / "empty").mkdir()
    (root / "link").symlink_to("b/c.py")
    (root / "dangling").symlink_to("/nowhere/at/all")
    copy = Mirror(root, tmp_path)
    copy.copy_from_root(
        ["b", "b/d", "empty"], ["a.py", "b/c.py", "b/d/e.txt", "data.txt", "run.sh", "link", "dangling", "gone"]
    )
    return copy


def test_a_file_that_its_owner_may_not_write_is_written_in_a_copy(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch(0o444)
    folder = tmp_path / "copy"
    folder.mkdir()
    mirror = Mirror(tmp_path, folder)
    mirror.copy_from_root([], ["a.py"])
    mirror.write("a.py", b"x")
    assert (mirror.work / "a.py").read_bytes() == b"x" and (mirror.work / "a.py").stat().st_mode & 0o777 == 0o644


DEEDS = {
    "nothing": "",
    "delete": "os.unlink('data.txt')",
    "delete a folder": "shutil.rmtree('b')",
    "write": "open('a.py', 'a').write('x')",
    "write as long": "open('a.py', 'r+').write('x')",
    "write as long and set the time back": (
        "s = os.stat('a.py'); open('a.py', 'r+').write('x'); os.utime('a.py', ns=(s.st_atime_ns, s.st_mtime_ns))"
    ),
    "write by a map": "import mmap; f = open('a.py', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:1] = b'x'; m.close()",
    "replace": "open('new', 'w').write('a.py'); os.replace('new', 'a.py')",
    "rename": "os.rename('a.py', 'z.py')",
    "exchange": "os.rename('a.py', 't'); os.rename('b/c.py', 'a.py'); os.rename('t', 'b/c.py')",
    "add": "open('b/conftest.py', 'w')",
    "add deep": "os.makedirs('x/y/z'); open('x/y/z/w', 'w')",
    "change modes": "os.chmod('a.py', 0); os.chmod('b', 0o500); os.chmod('run.sh', 0o644)",
    "lock a new folder": "os.makedirs('x/y'); open('x/y/z', 'w'); os.chmod('x/y', 0); os.chmod('x', 0)",
    "a folder becomes a file": "shutil.rmtree('b'); open('b', 'w')",
    "a file becomes a folder": "os.unlink('a.py'); os.makedirs('a.py/a.py')",
    "a folder becomes a link": "shutil.rmtree('b'); os.symlink('{outside}', 'b')",
    "a file becomes a link": "os.unlink('a.py'); os.symlink('{outside}/x', 'a.py')",
    "a link leads elsewhere": "os.unlink('link'); os.symlink('a.py', 'link')",
    "special files": "os.mkfifo('f'); import socket; socket.socket(socket.AF_UNIX).bind('s')",
    "hard links": "os.link('a.py', 'l'); open('l', 'w')",
    "everything": "[shutil.rmtree(n) if n in ('b', 'empty') else os.unlink(n) for n in os.listdir()]",
}  # fmt: skip


@pytest.mark.parametrize("name", DEEDS)
def test_a_reset_undoes_whatever_a_command_did_to_the_copy(copied: Mirror, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("mine")
    before, clean = contents(copied.work), contents(copied.root)
    assert before == clean
    for _ in range(2):
        copied.wait_for_tick()
        code = "import os, shutil\n" + DEEDS[name].format(outside=outside)
        subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=copied.work, check=True)
        changed = copied.reset()
        assert contents(copied.work) == before and contents(copied.root) == clean and bool(changed) == bool(DEEDS[name])
        assert (outside / "x").read_text() == "mine"
    assert copied.reset() == []


def test_files_written_into_the_copy_survive_every_reset(copied: Mirror) -> None:
    copied.write("a.py", b"filled")
    copied.write("new/deep/f.py", b"x")
    (copied.work / "a.py").unlink()
    (copied.work / "new/deep/f.py").write_text("y")
    copied.reset()
    assert (copied.work / "a.py").read_bytes() == b"filled" and (copied.work / "new/deep/f.py").read_bytes() == b"x"
    assert (copied.root / "a.py").read_text() == "a.py" and not (copied.root / "new").exists()


def test_a_reset_undoes_random_changes_of_files(copied: Mirror) -> None:
    before, draw = contents(copied.work), random.Random(5)
    for _ in range(60):
        names = [str(path.relative_to(copied.work)) for path in copied.work.rglob("*")]
        for _ in range(draw.randrange(6)):
            path = copied.work / draw.choice(names)
            deed = draw.randrange(4)
            if deed == 0 and (path.is_file() or path.is_symlink()):
                path.unlink()
            elif deed == 1 and path.is_file() and not path.is_symlink():
                path.write_bytes(draw.randbytes(4))
            elif deed == 2 and path.exists() and not path.is_symlink():
                path.chmod(draw.choice([0o600, 0o700, 0o444]) if path.is_file() else 0o700)
            elif deed == 3 and path.is_dir() and not path.is_symlink():
                mirror.remove(path)
        copied.reset()
        assert contents(copied.work) == before


def test_a_disk_without_room_is_said(copied: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mirror, "clone", full)
    with pytest.raises(MidfillError) as raised:
        copied.write("a.py", b"x")
    assert raised.value.code == "disk_full" and "TMPDIR" in raised.value.sentence


def test_a_copy_has_all_that_a_tree_has(tmp_path: Path) -> None:
    """Ignored files of an ordinary repository, a submodule, environments at any depth, empty folders."""
    root, other = tmp_path / "repo", tmp_path / "other"
    files = {
        ".gitignore": "_version.py\n*.so\nnode_modules/\n.env\n/data/\n__pycache__/\n",
        "pkg/a.py": "", "pkg/_version.py": "v = 1", "pkg/fast.so": "binary", "pkg/__pycache__/a.pyc": "",
        "packages/x/node_modules/m/index.js": "", "env38/pyvenv.cfg": "", "env38/bin/python": "",
        ".env": "TOKEN=1", "data/big": "x" * 4000, "data/small": "x", "certs/test.pem": "",
    }  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "empty/inside").mkdir(parents=True)
    other.mkdir()
    (other / "sub.py").write_text("")
    init_git(other)
    (root / ".gitignore").write_text(files[".gitignore"])
    init_git(root)
    words = ["git", "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub"]
    subprocess.run(words, cwd=root, check=True, capture_output=True)
    (root / "linked").mkdir()
    (root / "linked/node_modules").symlink_to(root / "packages/x/node_modules")
    found = take_inventory(find_repository(root), max_ignored_bytes=3000)
    assert {"pkg/_version.py", "pkg/fast.so", "sub/sub.py", "sub/.git", "data/small", "certs/test.pem"} <= {
        *found.files
    }
    assert {"empty", "empty/inside"} <= {*found.folders} and "linked/node_modules" in found.files
    assert sorted(found.shown) == ["env38", "packages/x/node_modules"]
    assert found.targets == [root / "packages/x/node_modules"]
    assert not {".env", "data/big", "pkg/__pycache__/a.pyc", ".git/HEAD"} & {*found.files}
    assert found.left_out == [".env (named like a secret, and not git's)", "data/big (ignored by git, 0 MiB)"]


def test_files_that_vanish_while_a_tree_is_listed_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {".gitignore": "*.log\n", "a.py": "", "a.py.swp": "", "a.log": ""}.items():
        (tmp_path / name).write_text(text)
    init_git(tmp_path)
    scan = os.scandir

    def scan_and_remove(folder: Path) -> list[os.DirEntry[str]]:
        entries = list(scan(folder))
        (tmp_path / "a.py.swp").unlink()
        (tmp_path / "a.log").unlink()
        return entries

    monkeypatch.setattr(os, "scandir", scan_and_remove)
    assert {".gitignore", "a.py"} <= {*take_inventory(find_repository(tmp_path)).files}


HOLDS = """
import sys, time
from midfill_infill.sandbox.copy import scratch_folder
with scratch_folder() as folder:
    (folder / "tree").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=["TERM", "HUP", "KILL"])
def test_what_a_killed_command_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        folder = Path(holder.stdout.readline().strip())
        long_ago = time.time() - 60
        os.utime(folder, (long_ago, long_ago))
        copy.remove_leftovers()
        assert folder.exists(), "its owner is at work"
        holder.send_signal(number)
    with copy.scratch_folder() as own:
        assert own.exists() and not folder.exists()
    assert list(tmp_path.glob("midfill-*")) == []


def test_a_copy_takes_links_that_lead_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "venv").symlink_to("venv")
    inventory = take_inventory(find_repository(tmp_path))
    assert sorted(inventory.files) == ["a.py", "loop.py", "venv"] and inventory.targets == []
