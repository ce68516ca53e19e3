"""`python -m bench NAME ...`: runs one bench; alone it lists them. Knows where benches are, not what they measure."""

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOMS = ("lsp", "infill", "engine", "kernels")


def find_benches() -> dict[str, str]:
    """Every module that can be run, by name, with the first line of its docstring."""
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(HERE).with_suffix("").parts).removesuffix(".__main__")
        if "__main__" in source and path.parent / path.name != HERE / "__main__.py":
            found[name] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return found


def main() -> None:
    benches = find_benches()
    if len(sys.argv) < 2 or sys.argv[1] not in benches:
        print("\n".join(f"{name:<18} {words}" for name, words in benches.items()))
        sys.exit(f"there is no bench {sys.argv[1]!r}" if len(sys.argv) > 1 else 0)
    sys.path[:0] = [str(HERE.parent / room) for room in ROOMS]
    sys.argv[:] = [f"bench.{sys.argv[1]}", *sys.argv[2:]]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
