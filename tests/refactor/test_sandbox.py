"""What a command in the sandbox can reach, what it is given, and how it ends."""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.refactor import escapes
from tests.refactor.trees import make_tree

from midfill_infill.repository.roots import find_repository
from midfill_infill.sandbox import run as sandbox
from midfill_infill.sandbox import seccomp, view
from midfill_infill.sandbox.command import Command
from midfill_infill.sandbox.copy import open_copy
from midfill_infill.sandbox.run import Outcome
from midfill_infill.sandbox.view import CopiedTree

ROOT = Path(__file__).parent.parent.parent
needs_bubblewrap = pytest.mark.skipif(sandbox.find_bubblewrap() is None, reason="bubblewrap does not work here")
NOBODY = 65534


def run_in(folder: Path, *words: str, timeout_s: float = 60.0, sandboxed: bool = True, **options: Any) -> Outcome:
    return sandbox.run(Command(words, timeout_s, sandboxed, **options), CopiedTree(folder, folder))


# Of the tries, those that only the filter of system calls stops.
BY_FILTER = ("leave a key in the keyring", "talk to the host of the machine", "make a ring", "type into the terminal")


def test_the_page_counts_the_escapes_that_are_tried() -> None:
    assert len(escapes.TRIES) >= 60 and len(escapes.CREDENTIALS) >= 41


@pytest.fixture(scope="module", params=["root", "plain"])
def tried(request: pytest.FixtureRequest) -> dict[str, object]:
    """What all tries came to, for a user with and without the name of root."""
    if sandbox.find_bubblewrap() is None:
        pytest.skip("bubblewrap does not work here")
    is_root = os.getuid() == 0
    if request.param == "root" and not is_root:
        pytest.skip("needs root")
    words = [sys.executable, str(ROOT / "tests/refactor/escapes.py")]
    # Not in /tmp, which a sandbox has one of its own of.
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        if is_root and request.param == "plain":
            if shutil.which("setpriv") is None:
                pytest.skip("needs setpriv")
            os.chown(folder, NOBODY, NOBODY)
            words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]
            if subprocess.run([*words[:4], sys.executable, "-c", "import midfill_infill"]).returncode:
                pytest.skip("another user cannot run this Python")
        result = subprocess.run([*words, folder], capture_output=True, text=True, cwd="/")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", [name for name, _ in escapes.tries()])
def test_each_attempt_to_leave_the_sandbox_fails(tried: dict[str, dict[str, tuple[int, str]]], name: str) -> None:
    if name in BY_FILTER and seccomp.make_filter() is None:
        pytest.skip("needs libseccomp")
    code, output = tried["tries"][name]
    assert code not in (0, None) and "error" in output.lower(), output


def test_attempts_to_leave_the_sandbox_change_nothing_outside(tried: dict[str, object]) -> None:
    assert tried["is_unchanged"]


@needs_bubblewrap
def test_what_a_command_may_do(tmp_path: Path) -> None:
    code = "print(open('/proc/self/status').read())"
    said = run_in(tmp_path, sys.executable, "-c", code).output
    facts = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    assert facts["NoNewPrivs"] == "1" and {facts[f"Cap{name}"] for name in ("Prm", "Eff", "Bnd")} == {"0" * 16}
    assert facts["Seccomp"] == ("0" if seccomp.make_filter() is None else "2")


SECRETS = ("MY_API_TOKEN", "GPG_PASSPHRASE", "DB_PASS", "SSH_PRIVATE_KEY", "AWS_ACCESS_KEY_ID", "MYSQL_PWD",
           "GITHUB_PAT", "DATABASE_URL", "HTTP_AUTHORIZATION", "npm_config__auth", "JWT", "SLACK_WEBHOOK",
           "CONNECTION_STRING", "SSH_AUTH_SOCK", "DOCKER_HOST", "XDG_RUNTIME_DIR", "SESSION", "MY_SETTING")  # fmt: skip
HARMLESS = ("PATH", "PYTHONPATH", "PWD", "HOME", "LANG", "LC_ALL", "GIT_AUTHOR_NAME", "XDG_DATA_HOME", "GOPATH",
            "PYTEST_ADDOPTS", "JAVA_HOME")  # fmt: skip


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_bubblewrap), False], ids=["bubblewrap", "bare"])
def test_only_what_is_harmless_or_named_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandboxed: bool
) -> None:
    for name in (*SECRETS, *HARMLESS):
        monkeypatch.setenv(name, os.environ.get(name, "hush"))
    monkeypatch.setenv("PYTEST_ADDOPTS", "--url https://me:hush@example.org")
    named = ("JWT", "MODE=fast", "ABSENT")
    words = (sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))")
    seen = json.loads(run_in(tmp_path, *words, sandboxed=sandboxed, variables=named).output)
    assert seen.keys() & set(SECRETS) == {"JWT"} and seen["MODE"] == "fast" and "ABSENT" not in seen
    assert seen.keys() >= set(HARMLESS) - {"PYTEST_ADDOPTS"} and "PYTEST_ADDOPTS" not in seen
    assert {*SECRETS, "PYTEST_ADDOPTS"} - {"JWT"} <= set(view.withheld(os.environ, named))


@needs_bubblewrap
def test_a_home_is_empty_but_for_tools_and_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the home's own files are absolute links into a folder of them."""
    home, tree, dots = tmp_path / "home", tmp_path / "home/code/repo", tmp_path / "dots"
    for name in (".cargo/bin/tool", ".cargo/credentials.toml", "data/set.csv", "code/other/x", ".aws/credentials"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{name}\n")
    for folder in (tree, dots / "config"):
        folder.mkdir(parents=True)
    (dots / "npmrc").write_text("secret")
    (home / ".npmrc").symlink_to(dots / "npmrc")
    (home / ".config").symlink_to(dots / "config")
    monkeypatch.setenv("HOME", str(home))
    code = "find $HOME -type f -o -type l | sort; touch $HOME/mine; cat $HOME/data/set.csv; echo x >$HOME/data/set.csv"
    outcome = run_in(tree, "/bin/sh", "-c", code, allowed=(home / "data",))
    *seen, refusal = outcome.output.splitlines()
    assert seen == [f"{home}/.cargo/bin/tool", f"{home}/data/set.csv", "data/set.csv"]
    assert "Read-only" in refusal and not (home / "mine").exists()


@needs_bubblewrap
def test_logins_of_git_are_not_seen(tmp_path: Path) -> None:
    root, copy = tmp_path / "repo", tmp_path / "copy"
    make_tree(root, {"a.py": b"x = 1\n"}, git=True)
    words = ["git", "-C", str(root), "config"]
    subprocess.run([*words, "remote.origin.url", "https://me:hush@example.org/a.git"], check=True)
    subprocess.run([*words, "http.https://example.org/.extraheader", "AUTHORIZATION: basic hush"], check=True)
    (copy / ".git").mkdir(parents=True)
    asked = sandbox.run(Command(("git", "config", "--list")), CopiedTree(copy, root, git=(root / ".git",)))
    assert asked.passed and "remote.origin.url=https://example.org/a.git" in asked.output
    assert "hush" not in asked.output
    assert (
        view.without_logins(b"[remote]\n\turl = git@example.org:a.git\n")
        == b"[remote]\n\turl = git@example.org:a.git\n"
    )


@needs_bubblewrap
def test_processes_left_in_the_sandbox_end_with_the_command(tmp_path: Path) -> None:
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        open('alive', 'a').write('x')\n"
        "while not os.path.exists('alive'): time.sleep(0.01)"
    )
    outcome = run_in(tmp_path, sys.executable, "-c", code)
    size = (tmp_path / "alive").stat().st_size
    assert outcome.passed and size
    assert (tmp_path / "alive").stat().st_size == size


@needs_bubblewrap
def test_the_sandbox_lets_a_test_suite_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"
    )  # loading all that is installed takes longer than the test
    (tmp_path / "test_x.py").write_text("def test_x(tmp_path):\n    (tmp_path / 'a').write_text('b')\n")
    outcome = run_in(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert outcome.passed, outcome.output


@needs_bubblewrap
def test_only_the_cache_of_vitest_is_written_among_installed_modules(tmp_path: Path) -> None:
    modules = tmp_path / "root/node_modules"
    for folder in (modules / ".vite", tmp_path / "copy/node_modules"):
        folder.mkdir(parents=True)
    command = Command(("/bin/sh", "-c", "touch node_modules/.vite/results && ! touch node_modules/other"))
    tree = CopiedTree(tmp_path / "copy", tmp_path / "root", (modules,))
    assert sandbox.run(command, tree).passed and os.listdir(modules) == [".vite"] and not os.listdir(modules / ".vite")


@needs_bubblewrap
def test_go_finds_its_cache_and_writes_a_copy_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GOFLAGS", "-race")
    folder = tmp_path / "home/.cache/go-build/7f"
    for path, text in ((folder / "7f01-a", "built"), (tmp_path / "repo/a.go", "package a\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    script = 'cat $GOCACHE/7f/7f01-a && echo " $GOFLAGS" && touch $GOCACHE/7f/7f02-a && ! touch ~/.cache/go-build/7f/x'
    with open_copy(find_repository(tmp_path / "repo"), sandboxed=True) as copy:
        ran = copy.run(Command(("/bin/sh", "-c", script)))
    assert ran.passed and ran.output.startswith("built -race -count=1\n") and os.listdir(folder) == ["7f01-a"]


@needs_bubblewrap
def test_uv_writes_a_cache_of_its_own_and_no_environment(tmp_path: Path) -> None:
    ran = run_in(tmp_path, "/bin/sh", "-c", 'mkdir "$UV_CACHE_DIR" && echo $UV_NO_SYNC')
    assert ran.passed and ran.output == "1\n"


@needs_bubblewrap
def test_git_can_be_asked_and_not_written(tmp_path: Path) -> None:
    root, copy = tmp_path / "repo", tmp_path / "copy"
    make_tree(root, {"a.py": b"x = 1\n"}, git=True)
    (copy / ".git").mkdir(parents=True)
    tree = CopiedTree(copy, root, git=(root / ".git",))
    asked = sandbox.run(Command(("git", "log", "--oneline")), tree)
    assert asked.passed and "start" in asked.output
    for words in (("git", "tag", "mine"), ("sh", "-c", "echo > .git/hooks/post-commit"), ("rm", "-rf", ".git")):
        assert not sandbox.run(Command(words), tree).passed
    assert not (root / ".git/hooks/post-commit").exists() and not (root / ".git/refs/tags/mine").exists()
    assert sandbox.run(Command(("touch", "mine")), tree).passed
    assert (copy / "mine").exists() and not (root / "mine").exists()


def test_the_limit_of_processes_counts_from_what_the_user_has_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    others = [threading.Thread(target=gate.wait) for _ in range(9)]
    for other in others:
        other.start()
    counted = sandbox._count_own_tasks()
    gate.set()
    for other in others:
        other.join()
    assert counted is not None and counted > len(others), "those of this process at least"
    monkeypatch.setattr(sandbox, "_count_own_tasks", lambda: counted)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    outcome = run_in(tmp_path, sys.executable, "-c", code, sandboxed=False)
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = counted + sandbox._MAX_NEW_PROCESSES
    assert int(outcome.output) == (most if hard == resource.RLIM_INFINITY else min(most, hard))


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    code = f"import os, signal; os.open({str(alive)!r}, os.O_WRONLY); os.fork(); signal.pause()"
    outcome = run_in(tmp_path, sys.executable, "-c", code, timeout_s=1, sandboxed=False)
    assert outcome.code is None and not outcome.passed
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "both have gone"
    os.close(reader)


def test_a_command_ends_although_a_daemon_keeps_its_output_open(tmp_path: Path) -> None:
    """The daemon lives until it is let go, which is after the command was told to have ended."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    code = (
        "import os; reader, writer = os.pipe(); print('ok', flush=True)\n"
        f"if not os.fork(): os.setsid(); os.write(writer, b'x'); open({str(gate)!r}).read(); os._exit(0)\n"
        "os.read(reader, 1)"
    )
    outcome = run_in(tmp_path, sys.executable, "-c", code, sandboxed=False)
    assert outcome == sandbox.Outcome(0, "ok\n")
    gate.write_bytes(b"")


def test_only_the_end_of_a_long_output_is_kept_in_memory(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('x' * (16 << 20)); print('end')"
    tracemalloc.start()
    try:
        outcome = run_in(tmp_path, sys.executable, "-c", code, sandboxed=False)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.passed and outcome.output == "x" * 199_996 + "end\n"
    assert most_bytes < 1 << 20
