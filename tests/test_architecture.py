"""Enforces the rooms and their floors: who may import whom, inside functions too; the laptop side never loads torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("midfill_kernels", "midfill_engine", "midfill_infill", "midfill_lsp", "training", "bench")

# room -> (our modules it may import, foreign packages it must never import)
ROOMS = {
    "midfill_kernels": (ROOT / "kernels/midfill_kernels", (), ("transformers", "tokenizers", "fastapi", "tree_sitter")),
    "midfill_engine": (ROOT / "engine/midfill_engine", ("midfill_kernels",), ("tree_sitter", "pygls", "lsprotocol")),
    "midfill_infill": (
        ROOT / "infill/midfill_infill",
        ("midfill_engine.wire", "midfill_engine.starting", "midfill_engine.loops", "midfill_engine.judging"),
        ("torch", "triton", "pygls", "fastapi"),
    ),
    "midfill_lsp": (
        ROOT / "lsp/midfill_lsp",
        ("midfill_infill",),
        ("torch", "triton", "httpx", "fastapi", "socket", "urllib.request", "http", "tokenizers")
        + ("midfill_infill.cli", "midfill_infill.refactor"),
    ),
    # A program on top of the packages that ships with none: its rows show what a request shows, which infill chooses.
    "training": (ROOT / "engine/training", ("midfill_engine", "midfill_infill.context.excerpts"), ()),
}
Floors = Sequence[Sequence[str]]
# The rooms inside a package, lowest floor first: a room imports itself and rooms of lower floors, nothing beside it.
FLOORS: dict[str, Floors] = {
    "midfill_engine": (
        ("wire", "registry", "groups", "checkpoint_files", "loops"),
        ("starting", "judging"),
        ("errors", "tokens", "models", "lengths"),
        ("families", "samplers", "caches"),
        ("loading",),
        ("requests", "scheduling"),
        ("causal", "diffusion"),
        ("backends",),
        ("serving",),
        ("__main__",),
    ),
    "midfill_infill": (
        ("errors",),
        ("config",),
        ("languages", "engines.records"),
        ("text",),
        ("syntax", "repository"),
        ("context", "answers", "repeats"),
        ("engines", "splicing"),
        ("proposals",),
        ("filling",),
        ("sandbox", "scripting"),
        ("until",),
        ("measuring",),
        ("refactor.journal",),
        ("refactor.planning", "refactor.writing"),
        ("refactor.generating", "refactor.verifying", "refactor.reporting"),
        ("cli.*",),
        ("cli.refactor",),
        ("cli.app",),
        ("cli",),
        ("__main__",),
    ),
}
SOCKET_MODULES = ("socket", "httpx", "http", "urllib.request", "requests", "aiohttp")


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


def room_of(name: str, floors: Floors) -> tuple[int, str] | None:
    """The floor and room of a module by its path inside its package. `a.*` holds the modules of `a`, not `a` itself."""
    found = [
        (height, room)
        for height, floor in enumerate(floors)
        for room in floor
        if (name.startswith(room[:-1]) if room.endswith(".*") else is_within(name, room))
    ]
    return max(found, key=lambda entry: (len(entry[1]), -entry[0]), default=None)


def modules_of(folder: Path) -> dict[str, Path]:
    """The modules below a package's folder by their path inside it; the package itself has the empty one."""
    paths = (path.relative_to(folder).with_suffix("").parts for path in sorted(folder.rglob("*.py")))
    return {
        ".".join(parts[:-1] if parts[-1] == "__init__" else parts): folder.joinpath(*parts).with_suffix(".py")
        for parts in paths
    }


def module_arrows(folder: Path) -> dict[str, set[str]]:
    """What each module of a package imports of the same package."""
    modules = modules_of(folder)
    prefix = folder.name + "."
    arrows: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for imported in imports_of(path, folder.name):
            target = imported.removeprefix(prefix) if imported.startswith(prefix) else ""
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target and target != name:
                arrows[name].add(target)
    return arrows


def wrong_arrows(folder: Path, floors: Floors) -> list[str]:
    wrong = []
    for name, targets in module_arrows(folder).items():
        here = room_of(name, floors)
        if here is None:
            wrong += [f"{name} is in no room"] if targets else []
            continue
        for target in targets:
            there = room_of(target, floors)
            if there is None or (there[0] >= here[0] and there != here):
                wrong.append(f"{name} -> {target}")
    return wrong


def find_circle(folder: Path) -> list[str]:
    try:
        TopologicalSorter(module_arrows(folder)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", FLOORS)
def test_no_module_imports_a_room_above_or_beside_its_own(package: str) -> None:
    assert wrong_arrows(ROOMS[package][0], FLOORS[package]) == []


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_exists_and_every_module_has_one(package: str) -> None:
    folder, floors = ROOMS[package][0], FLOORS[package]
    modules = [name for name in modules_of(folder) if name]
    homeless = [name for name in modules if room_of(name, floors) is None]
    assert [name for name in homeless if name != "refactor"] == []  # a folder of rooms, without code
    rooms = {room_of(name, floors) for name in modules}
    assert {room for floor in floors for room in floor} == {found[1] for found in rooms if found}


def test_the_page_names_every_room() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {
        room.removesuffix(".*").replace(".", "/") for floors in FLOORS.values() for floor in floors for room in floor
    }
    rooms -= {"__main__", "cli/refactor"}  # one that only starts something, a folder inside `cli/`
    assert [room for room in sorted(rooms) if f"`{room}/`" not in page and f"`{room}.py`" not in page] == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_modules_import_each_other_in_a_circle(room: str) -> None:
    assert find_circle(ROOMS[room][0]) == []


def test_an_import_of_a_room_above_is_found(tmp_path: Path) -> None:
    package = tmp_path / "house"
    for name, source in {
        "cellar/coal": "",
        "ground/hall": "from house.cellar.coal import heat",
        "ground/kitchen": "def cook():\n    from house.ground import hall",
        "roof": "import house.ground.hall",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).with_suffix(".py").write_text(source)
    floors = (("cellar",), ("ground",), ("roof",))
    assert wrong_arrows(package, floors) == [] == find_circle(package)
    assert wrong_arrows(package, (("cellar", "ground"), ("roof",))) == ["ground.hall -> cellar.coal"]
    (package / "cellar/coal.py").write_text("if TYPE_CHECKING:\n    from house.ground.kitchen import Cook")
    assert wrong_arrows(package, floors) == ["cellar.coal -> ground.kitchen"]
    assert set(find_circle(package)) == {"cellar.coal", "ground.kitchen", "ground.hall"}


def test_only_the_client_of_infill_knows_sockets() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in room_imports("midfill_infill")
        if path.name != "connections.py" and any(is_within(name, module) for module in SOCKET_MODULES)
    ]
    assert not wrong


def test_wire_needs_nothing_of_the_engine() -> None:
    wire = ROOT / "engine/midfill_engine/wire.py"
    names = list(imports_of(wire, "midfill_engine"))
    assert not [name for name in names if is_within(name, "midfill_engine") or is_within(name, "torch")]


@pytest.mark.parametrize(
    "module", ["midfill_infill", "midfill_infill.filling.fill", "midfill_infill.cli", "midfill_lsp.server"]
)
def test_import_loads_neither_torch_nor_numpy(module: str) -> None:
    heavy = ("torch", "triton", "tokenizers", "numpy")
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


def test_nothing_but_the_interface_asks_for_a_familys_backend() -> None:
    """Above the models no room branches on the kind of a model; what one heeds is declared by its family."""
    engine = ROOMS["midfill_engine"][0]
    rooms = ("requests", "scheduling", "causal", "diffusion", "backends", "serving")
    asking, branching = set(), []
    for name, path in modules_of(engine).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "backend":
                asking.add(name)
            words = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if name.partition(".")[0] in rooms and any(ast.unparse(word) == "'causal'" for word in words):
                branching.append(f"{name}:{node.lineno}")
    assert (asking, branching) == ({"backends"}, [])


def test_imports_are_found_inside_functions(tmp_path: Path) -> None:
    source = "def f():\n    from torch import nn\n    import_module('socket')\n    from .. import x\n"
    path = tmp_path / "probe.py"
    path.write_text(source)
    assert sorted(imports_of(path, "room")) == ["room.x", "socket", "torch.nn"]


def test_paths_are_resolved_by_realpath() -> None:
    """`Path.resolve` raises RuntimeError for a link to itself, which nobody catches."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for room in ("midfill_infill", "midfill_lsp")
        for path in ROOMS[room][0].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "resolve"
        if not node.args
    ]
    assert not wrong


def wrong_test_imports(folder: Path) -> list[str]:
    """What tests share is a fixture or stands in a module with a plain name; only the benches' tests know benches."""
    return [
        f"{path.relative_to(folder)}: {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imports_of(path, ".".join(path.relative_to(folder.parent).parent.parts))
        if (is_within(name, "bench") and path.parent != folder / "bench")
        or (
            is_within(name, folder.name)
            and any(part == "conftest" or part.startswith("test_") for part in name.split("."))
        )
    ]


def test_no_test_imports_another_one_a_conftest_or_a_bench() -> None:
    assert wrong_test_imports(ROOT / "tests") == []


def test_a_test_that_imports_another_one_is_found(tmp_path: Path) -> None:
    for name, source in {
        "bench/test_one.py": "import bench.one\nfrom tests.engine.fakes import Fake\n",
        "engine/test_one.py": "def test():\n    from tests.engine.test_two import run\n",
        "engine/test_two.py": "from tests.engine import conftest\n",
        "engine/fakes.py": "from bench.one import run\n",
        "engine/near.py": "from .test_one import run\n",
    }.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(source)
    assert wrong_test_imports(tmp_path / "tests") == [
        "engine/fakes.py: bench.one.run",
        "engine/near.py: tests.engine.test_one.run",
        "engine/test_one.py: tests.engine.test_two.run",
        "engine/test_two.py: tests.engine.conftest",
    ]
