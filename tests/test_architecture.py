"""Enforces the rooms: which package may import which, inside functions too; the laptop side never loads torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("midfill_kernels", "midfill_engine", "midfill_infill", "midfill_lsp")

# room -> (our modules it may import, foreign packages it must never import)
ROOMS = {
    "midfill_kernels": (ROOT / "kernels/midfill_kernels", (), ("transformers", "tokenizers", "fastapi", "tree_sitter")),
    "midfill_engine": (ROOT / "engine/midfill_engine", ("midfill_kernels",), ("tree_sitter", "pygls", "lsprotocol")),
    "midfill_infill": (
        ROOT / "infill/midfill_infill",
        ("midfill_engine.wire",),
        ("torch", "triton", "pygls", "fastapi"),
    ),
    "midfill_lsp": (
        ROOT / "lsp/midfill_lsp",
        ("midfill_infill",),
        ("torch", "triton", "httpx", "httpx_sse", "fastapi", "socket", "urllib.request", "http", "tokenizers"),
    ),
}
SOCKET_MODULES = ("socket", "httpx", "httpx_sse", "http", "urllib.request", "requests", "aiohttp")


def imports_of(path: Path, package: str) -> Iterator[str]:
    """Yields the absolute name of everything `path` imports, wherever in the file, `import_module("x")` too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def room_imports(room: str) -> list[tuple[Path, str]]:
    folder, _, _ = ROOMS[room]
    files = sorted(folder.rglob("*.py"))
    assert files, f"{folder} holds no Python file"
    return [(path, name) for path in files for name in imports_of(path, room)]


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_what_it_may(room: str) -> None:
    _, allowed, forbidden = ROOMS[room]
    wrong = []
    for path, name in room_imports(room):
        ours = any(is_within(name, package) for package in OURS)
        if ours and not any(is_within(name, package) for package in (room, *allowed)):
            wrong.append(f"{path.relative_to(ROOT)}: {name}")
        if any(is_within(name, package) for package in forbidden):
            wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong


def test_only_the_client_of_infill_knows_sockets() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in room_imports("midfill_infill")
        if path.name != "client.py" and any(is_within(name, module) for module in SOCKET_MODULES)
    ]
    assert not wrong


def test_wire_needs_nothing_of_the_engine() -> None:
    wire = ROOT / "engine/midfill_engine/wire.py"
    names = list(imports_of(wire, "midfill_engine"))
    assert not [name for name in names if is_within(name, "midfill_engine") or is_within(name, "torch")]


@pytest.mark.parametrize(
    "module", ["midfill_infill", "midfill_infill.fill", "midfill_infill.cli", "midfill_lsp.server"]
)
def test_import_loads_no_torch(module: str) -> None:
    heavy = ("torch", "triton", "tokenizers")
    check = f"import sys, {module}; sys.exit(','.join(m for m in {heavy} if m in sys.modules) or 0)"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_no_room_runs_a_checkpoints_code() -> None:
    """Nothing that executes data: the deserialisers and flags through which model files have run code elsewhere."""
    words = ("pickle.load", "cloudpickle", "torch.load(", "trust_remote_code", "shell=True", "yaml.load(")
    wrong = [
        f"{path.relative_to(ROOT)}: {word}"
        for folder, _, _ in ROOMS.values()
        for path in folder.rglob("*.py")
        for word in words
        if word in path.read_text(encoding="utf-8")
    ]
    assert not wrong


def test_imports_are_found_inside_functions(tmp_path: Path) -> None:
    source = "def f():\n    from torch import nn\n    import_module('socket')\n    from .. import x\n"
    path = tmp_path / "probe.py"
    path.write_text(source)
    assert sorted(imports_of(path, "room")) == ["room.x", "socket", "torch.nn"]
