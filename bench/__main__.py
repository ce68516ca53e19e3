"""`python -m bench NAME ...`: runs one bench; alone it lists them. Knows where benches are, not what they measure."""

import ast
import runpy
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOMS: Final = ("lsp", "infill", "engine", "kernels")
TESTS: Final = {  # by bench, those of what it measures, in a folder of `tests`; the benches of gpu know theirs
    "editor_latency": ("lsp", "test_server.py::test_a_body_is_filled_by_one_versioned_edit"),
    "host": ("bench", "test_host.py"),
    "laptop": ("bench", "test_laptop.py"),
    "latency": ("bench", "test_load.py::test_the_first_preview_of_the_command_is_seen"),
    "load": ("bench", "test_load.py::test_every_scene_ends_and_is_told"),
    "quality": ("bench", "test_quality.py"),
    "quality.bodies": ("bench", "test_bodies.py"),
    "quality.fitting": ("bench", "test_fitting.py"),
    "quality.proposals": ("bench", "test_lines.py"),
    "quality.rescaling": ("bench", "test_rescaling.py"),
}


def find_benches() -> dict[str, str]:
    """Every module that can be run, by name, with the first line of its docstring."""
    benches = {}
    for path in sorted(HERE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(HERE).with_suffix("").parts).removesuffix(".__main__")
        if "__main__" in source and path != HERE / "__main__.py":
            docstring = ast.get_docstring(ast.parse(source)) or ""
            benches[name] = docstring.partition("\n")[0]
    return benches


def main() -> None:
    benches = find_benches()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in benches:
        for known, words in benches.items():
            print(f"{known:<18} {words}")
        if name:
            print(f"There is no bench {name!r}.", file=sys.stderr)
        sys.exit(2 if name else 0)
    sys.path[:0] = [str(HERE.parent / room) for room in ROOMS]
    run(name, sys.argv[2:])


def run(name: str, words: list[str]) -> None:
    """Runs a bench whose tests pass, and ends with one sentence where its user asked for what cannot be done."""
    from training.telling import one_sentence

    if name in TESTS and "--help" not in words:
        from bench.green import stop_unless_green

        folder, tests = TESTS[name]
        stop_unless_green(tests, folder=folder)
    sys.argv[:] = [f"bench.{name}", *words]
    with one_sentence():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
