"""The VS Code extension: its pure parts under node, and all of it in a real VS Code driven by keyboard and mouse.

`make editors` installs what the real one needs; MIDFILL_SHOTS=docs/images makes the screenshots of the docs.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.editors.installer import Home, make_wheel, pack, start_of
from tests.lsp.editor import ROOT, SCRIPTED, server_environment
from tests.lsp.scripted_server import GROWS
from tests.ports import find_free_port

EXTENSION = ROOT / "editors" / "vscode"
CODE_SERVER = ROOT / ".venv" / "code-server"
DRIVERS = Path(__file__).parent / "vscode"
MAX_CODE_LINES = 1000
FILES = {
    "body.py": "# 😀\nimport os\n\n\n"
    "def second(b):\n    '''Doc.'''\n\n    return b + 1\n\n\ndef third(c):\n    return c\n",
    "two.py": "def first(a):\n    return a\n\n\ndef second(b):\n    return b\n",
    "three.py": "def third(c):\n    return c\n",
    "holes.py": "first = 1\nsecond = 2\nthird = 3\n",
    "stubs.py": "def f(): ...\n\n\ndef g(): ...\n",
    "dies.py": "def first(b):\n    return b  # the engine dies here\n",
    "again.py": "# 😀\n" + "".join(f"self.assertEquals({name}, 1)\n" for name in "abcd"),
    "large.py": "def large():\n" + "".join(f"    row_{number} = {number}\n" for number in range(80)),
    "ghost.py": "def f():\n",
    "shop.py": 'def discount(price, rate):\n    """The price after a discount of so many percent."""\n    ...\n',
    "test_shop.py": "import shop\n\n\ndef test_discount():\n    assert shop.discount(200, 10) == 180\n",
    "buffer.py": f"# 😀 {GROWS}\r\ndef second(b):\r\n    return b + 1\r\n",
}


USER_SETTINGS = {
    "telemetry.telemetryLevel": "off", "workbench.startupEditor": "none", "editor.minimap.enabled": False,
    "security.workspace.trust.startupPrompt": "never", "security.workspace.trust.banner": "never",
    "files.autoSave": "off", "workbench.tips.enabled": False,
    "workbench.colorTheme": "Default Dark Modern", "editor.fontSize": 14, "window.commandCenter": False,
    "extensions.ignoreRecommendations": True, "terminal.integrated.gpuAcceleration": "off",
    "git.enabled": False, "editor.accessibilitySupport": "off",
}  # fmt: skip


def package() -> dict[str, object]:
    loaded: dict[str, object] = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
    return loaded


def test_the_settings_are_the_servers() -> None:
    command = [sys.executable, str(EXTENSION / "write_settings.py"), "--check"]
    subprocess.run(command, check=True, timeout=60, env=server_environment())


def test_settings_of_the_machine_are_not_read_from_a_workspace() -> None:
    manifest = package()
    properties = manifest["contributes"]["configuration"]["properties"]  # type: ignore[index]
    trust = manifest["capabilities"]["untrustedWorkspaces"]  # type: ignore[index]
    machine = {name for name, schema in properties.items() if schema["scope"] == "machine"}
    assert (
        machine
        == {"midfill.serverCommand", "midfill.model", "midfill.device", "midfill.torchIndex"}
        == set(trust["restrictedConfigurations"])
    )
    assert trust["supported"] == "limited"


def test_every_command_of_the_package_is_registered_and_every_key_is_a_command() -> None:
    contributes = package()["contributes"]
    commands = {row["command"] for row in contributes["commands"]}  # type: ignore[index]
    source = (EXTENSION / "src" / "extension.ts").read_text(encoding="utf-8")
    listed = re.search(r"const commands: .*?= \{(.*?)\n  \};", source, re.DOTALL)
    assert listed
    assert {f"midfill.{name}" for name in re.findall(r"^    (\w+)", listed[1], re.MULTILINE)} == commands
    assert {row["command"] for row in contributes["keybindings"]} <= commands  # type: ignore[index]


def test_the_extension_stays_small() -> None:
    lines = [line for file in EXTENSION.glob("src/*.ts") for line in file.read_text(encoding="utf-8").splitlines()]
    code = [line for line in lines if line.strip() and not re.match(r"\s*(//|/\*\*.*\*/$)", line)]
    assert len(code) <= MAX_CODE_LINES


def test_the_layout_of_previews_and_weak_tokens() -> None:
    node = shutil.which("node")
    help = subprocess.run([node, "--help"], capture_output=True, text=True, timeout=60).stdout if node else ""
    strips = "--experimental-strip-types" in help
    esbuild = EXTENSION / "node_modules" / ".bin" / "esbuild"
    if not node or not (strips or esbuild.exists()):
        pytest.skip("no node that reads TypeScript and no esbuild here: `make editors` installs them")
    test = EXTENSION / "test" / "layout.test.ts"
    if strips:
        command = f'"{node}" --test --experimental-strip-types "{test}"'
    else:
        built = EXTENSION / "dist" / "layout.test.mjs"
        bundle = f'"{esbuild}" "{test}" --bundle --platform=node --format=esm --outfile="{built}" --log-level=error'
        command = f'{bundle} && "{node}" --test "{built}"'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def bundle(test: str, folder: Path) -> Path:
    """A test of ours with fakes for the modules it imports, as node runs it."""
    esbuild, tests = EXTENSION / "node_modules" / ".bin" / "esbuild", EXTENSION / "test"
    if not esbuild.exists():
        pytest.skip("no esbuild here: `make editors` installs it")
    built = folder / test.replace(".ts", ".mjs")
    command = [str(esbuild), str(tests / test), "--bundle", "--platform=node", "--format=esm", f"--outfile={built}"]
    command += [f"--alias:vscode={tests / 'fake-vscode.ts'}", "--log-level=error"]
    command += [f"--alias:vscode-languageclient/node={tests / 'fake-client.ts'}"]
    subprocess.run(command, check=True, timeout=60)
    return built


def test_unit_tests_of_what_the_extension_keeps_pass(tmp_path: Path) -> None:
    built = bundle("extension.test.ts", tmp_path)
    done = subprocess.run(["node", "--test", str(built)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_how_the_installer_is_started(tmp_path: Path) -> None:
    built = bundle("install.test.ts", tmp_path)
    environment = {**os.environ, "SENTENCES": str(ROOT / "editors" / "install.json"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(["node", "--test", str(built)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("num_fills", [100, pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_no_fill_in_the_buffer_loses_a_text(num_fills: int, tmp_path: Path) -> None:
    command = ["node", "--test", str(bundle("buffer.test.ts", tmp_path))]
    done = subprocess.run(command, env={**os.environ, "RUNS": str(num_fills)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def missing() -> str:
    if not (CODE_SERVER / "installed").exists():
        return "no code-server in .venv: `make editors` installs it"
    if not (EXTENSION / "dist" / "midfill.vsix").exists():
        return "no VSIX: `make editors` builds it"
    return "" if find_chromium() else "no chromium on the path"


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def vscode(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A code-server with the extension in Restricted Mode; its address and the driver's environment.

    The folder's own settings name a program as the server: it must never run.
    """
    data, extensions, folder = tmp_path / "data", tmp_path / "extensions", tmp_path / "work"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / ".vscode").mkdir()
    chosen = {"midfill.serverCommand": ["touch", str(tmp_path / "owned")], "midfill.model": "theirs"}
    (folder / ".vscode" / "settings.json").write_text(json.dumps(chosen))
    settings = {
        **USER_SETTINGS, "midfill.steps": 40, "midfill.trigger": "auto", "midfill.ghostTextCertainty": 0.1,
    }  # fmt: skip
    for kind, own in {"User": settings, "Machine": {"midfill.serverCommand": [*SCRIPTED]}}.items():
        (data / kind).mkdir(parents=True)
        (data / kind / "settings.json").write_text(json.dumps(own))
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    programs = tmp_path / ".local" / "bin"
    programs.mkdir(parents=True)
    (programs / "midfill").symlink_to(Path(sys.executable).with_name("midfill"))
    pytest_of_folder = folder / ".venv" / "bin" / "pytest"
    pytest_of_folder.parent.mkdir(parents=True)
    pytest_of_folder.write_text(f'#!/bin/sh\nexec {sys.executable} -m pytest -p no:cacheprovider "$@"\n')
    pytest_of_folder.chmod(0o755)
    environment = server_environment(HOME=str(tmp_path), MIDFILL_RUNTIME_DIR=str(runtime))
    more = {"WORK": str(folder), "SETTINGS": str(data / "User" / "settings.json")}
    try:
        with serve(data, extensions, environment) as address:
            yield f"{address}/?folder={folder}", {**environment, **more}
    finally:
        for lock in runtime.glob("*.lock"):  # the doctor starts an engine
            os.kill(int(lock.read_text()), signal.SIGKILL)


@contextmanager
def serve(data: Path, extensions: Path, environment: dict[str, str]) -> Iterator[str]:
    """A code-server with the extension; its address."""
    command = [str(CODE_SERVER / "node_modules" / ".bin" / "code-server"), "--user-data-dir", str(data)]
    command += ["--extensions-dir", str(extensions)]
    vsix = str(EXTENSION / "dist" / "midfill.vsix")
    subprocess.run(
        [*command, "--install-extension", vsix], env=environment, check=True, timeout=100, capture_output=True
    )
    port = find_free_port()
    flags = ["--auth", "none", "--disable-telemetry", "--disable-update-check"]
    log = data.parent / "served.log"
    with log.open("wb") as written:
        served = subprocess.Popen(
            [*command, *flags, "--bind-addr", f"127.0.0.1:{port}"], env=environment, start_new_session=True,
            stdout=written, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/healthz", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(served.pid, signal.SIGKILL)
        served.wait()


def wait_for(address: str, log: Path) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(address, timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"code-server does not answer: {log.read_text()}")


def drive(driver: str, vscode: tuple[str, dict[str, str]], folder: Path, timeout_s: float, **more: str) -> str:
    """What a driver prints that finds nothing wrong."""
    address, environment = vscode
    more |= {"CODE_SERVER": str(CODE_SERVER), "CHROMIUM": str(find_chromium())}
    shots = os.environ.get("MIDFILL_SHOTS", str(folder / "shots"))
    command = ["node", str(DRIVERS / driver), address, shots]
    done = subprocess.run(command, env={**environment, **more}, capture_output=True, text=True, timeout=timeout_s)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


needs_vscode = pytest.mark.skipif(bool(missing()), reason=missing() or "everything is here")


@needs_vscode
@pytest.mark.timeout(1300)
def test_the_extension_works_in_a_real_vscode(vscode: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    drive("drive.mjs", vscode, tmp_path, timeout_s=1200)
    assert not (tmp_path / "owned").exists(), "the workspace chose a program"


@needs_vscode
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("num_sequences", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_random_sequences_leave_pending_what_must_be(
    vscode: tuple[str, dict[str, str]], tmp_path: Path, num_sequences: int
) -> None:
    more = {"SEQUENCES": str(num_sequences), "SEED": os.environ.get("SEED", str(num_sequences))}
    told = drive("model.mjs", vscode, tmp_path, timeout_s=400 + 170 * num_sequences, **more)
    assert f"{30 * num_sequences} operations, 0 wrong" in told


def drive_install(tmp_path: Path, scenes: str, wanted: str, server: Path | None, timeout_s: float, **more: str) -> None:
    """Drives a VS Code with an empty home, whose extension brings what is in `server`."""
    home, data, extensions = Home(tmp_path / "home"), tmp_path / "data", tmp_path / "extensions"
    home.folder.mkdir()
    (home.folder / "runtime").mkdir(mode=0o700)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "fill.py").write_text(
        "def a(width, height):\n    return width * height\n\n\ndef b(width, height):\n    ...\n"
    )
    (data / "User").mkdir(parents=True)
    (data / "User" / "settings.json").write_text(json.dumps({**USER_SETTINGS, "midfill.trigger": "manual"}))
    environment = home.environment(**more)
    with serve(data, extensions, environment) as address, closing(home):
        brought = next(extensions.glob("midfill.midfill-*")) / "server"
        if server is not None:
            shutil.rmtree(brought)
            shutil.copytree(server, brought)
        store = data / "User" / "globalStorage" / "midfill.midfill" / "server"
        known = {"STORE": str(store), "SERVER": str(brought), "SCENES": scenes, "WANTED": wanted}
        known["SETTINGS"] = str(data / "User" / "settings.json")
        told = drive("install.mjs", (f"{address}/?folder={folder}", {**environment, **known}), tmp_path, timeout_s)
    assert [f"ok {name}" for name in scenes.split()] == told.splitlines()
    assert not store.exists() and not home.model.exists()


@needs_vscode
@pytest.mark.timeout(700)
def test_one_click_installs_repairs_updates_and_removes_the_server(tmp_path: Path) -> None:
    server = pack(tmp_path / "server", SCRIPTED)
    (tmp_path / "later").mkdir()
    other = make_wheel(tmp_path / "later", "0.2", main=start_of(SCRIPTED))
    needs = make_wheel(tmp_path / "later", "0.3", needs="nosuchpackage")
    more = {"OTHER": str(other), "NEEDS": str(needs), "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    more |= {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    scenes = "offer cancel install fill repair fill update fill remove offline"
    drive_install(tmp_path, scenes, "return 'ß😀'", server, timeout_s=600, **more)


@needs_vscode
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_one_click_with_the_real_server(tmp_path: Path) -> None:
    scenes = "offer button fill remove"
    drive_install(tmp_path, scenes, "return width", None, timeout_s=1700, TEST_WAIT_MS="900000")
