"""Which texts a fill may count: the rest of its document, files that matter, never one that is left out."""

import json
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from midfill_infill.context.references import (
    MAX_CHARS,
    MAX_FILE_CHARS,
    MAX_REFERENCES,
    Reference,
    bound,
    find_references,
    find_root,
    read_text,
)  # fmt: skip
from midfill_infill.repository.exclusions import find_exclusion, find_exclusions
from midfill_infill.text.document import Document

SECRET = "hunter2 = True\n"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def names_of(references: Sequence[Reference]) -> list[tuple[str, str]]:
    """Kind and first word of each: files of these tests say their own names first."""
    return [(reference.kind, reference.text.split()[1]) for reference in references]


def references_of(path: Path, **options: object) -> tuple[Reference, ...]:
    return find_references(Document.read(path), path, **options)  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    return tmp_path / "repository"


def test_files_by_kind(root: Path) -> None:
    put(root, {
        "app/store.py": "import json\nfrom app import money\nfrom .base import (\n    Base,\n    Other,\n)\n",
        "app/money.py": "# money\n", "app/base.py": "# base\n", "app/__init__.py": "# init\n",
        "app/store_memory.py": "# store_memory\n", "app/aaa.py": "# aaa\n", "app/notes.md": "# notes\n",
        "tests/test_store.py": "# test_store\n", "other/far.py": "# far\n",
    })  # fmt: skip
    held = [Reference("open", "# aaa as typed\n", root / "app" / "aaa.py"), Reference("recent", "# untitled\n")]
    found = references_of(root / "app/store.py", held=held)
    assert names_of(found) == [
        ("open", "aaa"), ("recent", "untitled"), ("imported", "money"), ("imported", "init"), ("imported", "base"),
        ("neighbor", "test_store"), ("neighbor", "store_memory"),
    ]  # fmt: skip
    tested = names_of(references_of(root / "tests" / "test_store.py"))
    assert tested == []  # app/store.py is neither beside it nor imported
    put(root, {"tests/test_store.py": "# test_store\nimport app.store\n"})
    assert names_of(references_of(root / "tests" / "test_store.py")) == [("imported", "json")]


@pytest.mark.parametrize("name, source", [
    ("a.ts", "import { x } from './lib/b'\nimport './side.js'\nexport * from \"./c\"\nimport z from 'react'\n"),
    ("a.js", "const x = require('./lib/b')\nconst { s } = require('./side')\nimport c from './c/index'\n"),
    ("a.vue", "<script setup>\nimport { x } from './lib/b'\nimport './side'\nimport c from './c'\n</script>\n"),
    ("a.svelte", "<script>\nimport { x } from './lib/b'\nimport './side'\nimport c from './c'\n</script>\n"),
    ("a.tsx", "import type { x } from './lib/b'\nimport s from './side'\nimport {\n  c,\n} from './c'\n"),
])  # fmt: skip
def test_scripts_import_files(root: Path, name: str, source: str) -> None:
    put(root, {
        f"web/{name}": source, "web/lib/b.ts": "// b\n", "web/side.ts": "// side\n", "web/c/index.js": "// c\n",
    })  # fmt: skip
    found = names_of(references_of(root / "web" / name))
    assert found == [("imported", "b"), ("imported", "side"), ("imported", "c")]


def test_a_header_and_a_test_beside(root: Path) -> None:
    put(root, {"a.c": '#include "lib/b.h"\n', "lib/b.h": "// b\n", "a_test.c": "// a_test\n", "z.c": "// z\n"})
    assert names_of(references_of(root / "a.c")) == [("imported", "b"), ("neighbor", "a_test"), ("neighbor", "z")]


def test_nothing_that_is_left_out_is_read(root: Path, tmp_path: Path) -> None:
    put(root, {
        ".gitignore": "local/\nlocal_settings.py\n",
        "app.py": "import local.a, local_settings, secret_link, outside, user_listed, folder.b, pkg\n"
        "from .. import up\n",
        "local/a.py": SECRET, "local_settings.py": SECRET, ".env": SECRET, "user_listed.py": SECRET,
        "id_rsa.py": SECRET, "app_test.py": "# fine\n",
    })  # fmt: skip
    put(tmp_path, {"up.py": SECRET, "beyond/outside.py": SECRET, "beyond/b.py": SECRET})
    (root / "secret_link.py").symlink_to(root / ".env")
    (root / "linked_ignored.py").symlink_to(root / "local" / "a.py")
    (root / "outside.py").symlink_to(tmp_path / "beyond" / "outside.py")
    (root / "folder").symlink_to(tmp_path / "beyond")
    (root / "dangling.py").symlink_to(root / "nowhere.py")
    (root / "pkg.py").mkdir()

    def leaves_out(paths: Sequence[Path]) -> Collection[Path]:
        return find_exclusions(paths, ["user_listed.py"])

    found = references_of(root / "app.py", leaves_out=leaves_out)
    assert names_of(found) == [("neighbor", "fine")]
    assert "hunter2" in str(references_of(root / "app.py")), "only the user's list keeps user_listed.py away"


def test_outside_of_a_repository_only_the_own_folder(tmp_path: Path) -> None:
    put(tmp_path, {"a/own.py": "import b.far\nfrom ..b import far\n", "a/near.py": "# near\n", "b/far.py": "# far\n"})
    assert find_root(tmp_path / "a" / "own.py") == tmp_path / "a"
    assert names_of(references_of(tmp_path / "a" / "own.py")) == [("neighbor", "near")]
    wider = references_of(tmp_path / "a" / "own.py", root=tmp_path)
    assert names_of(wider) == [("imported", "far"), ("neighbor", "near")]


def test_what_is_no_text_is_passed_over(root: Path) -> None:
    put(root, {"own.py": "import blob, huge, empty\n", "empty.py": " \n", "huge.py": "# huge\n" + "x = 1\n" * 200_000})
    (root / "blob.py").write_bytes(b"\x00\x01\x02")
    (root / "latin.py").write_bytes("# latin\r\n# coding: latin-1\r\nx = 'é'\r\n".encode("latin-1"))
    found = references_of(root / "own.py")
    assert [reference.text for reference in found] == ["# latin\n# coding: latin-1\nx = 'é'\n"]


def test_the_code_of_notebooks_beside(root: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "# b"},
        {"cell_type": "code", "source": ["x = 1\n", "y"], "outputs": []},
    ]
    put(root, {"b.ipynb": json.dumps({"cells": cells, "metadata": {}}), "c.ipynb": "{}", "a.ipynb": "# not read"})
    (found,) = find_references(Document(b"z = 1\n", "python"), root / "a.ipynb")
    assert found.text == "x = 1\ny"


def test_a_changed_file_is_read_anew(root: Path) -> None:
    put(root, {"own.py": "import other\n", "other.py": "# first\n"})
    assert names_of(references_of(root / "own.py")) == [("imported", "first")]
    put(root, {"other.py": "# second one\n"})
    assert names_of(references_of(root / "own.py")) == [("imported", "second")]


def test_two_documents_of_one_folder_name_have_imports_of_their_own(root: Path) -> None:
    put(
        root, {"a/own.py": "from . import x\n", "a/x.py": "# ax\n", "b/own.py": "from . import x\n", "b/x.py": "# bx\n"}
    )
    assert names_of(references_of(root / "a/own.py")) == [("imported", "ax")]
    assert names_of(references_of(root / "b/own.py")) == [("imported", "bx")]


def test_related_files_are_bounded_in_number_and_size(root: Path) -> None:
    put(root, {"own.py": "\n", **{f"n{number:03}.py": f"# n{number:03}\n" + "y\n" * 50_000 for number in range(60)}})
    found = references_of(root / "own.py")
    assert 1 < len(found) <= MAX_REFERENCES and sum(len(reference.text) for reference in found) <= MAX_CHARS
    assert max(len(reference.text) for reference in found) <= MAX_FILE_CHARS
    many = bound(Reference(kind="open", text=f"t{number}") for number in range(100))
    assert [reference.text for reference in many] == [f"t{number}" for number in range(MAX_REFERENCES)]
    cut = bound([Reference(kind="open", text="x" * (MAX_CHARS - 5)), Reference(kind="open", text="y" * 50)])
    assert [len(reference.text) for reference in cut] == [MAX_CHARS - 5, 5]


def test_near_copies_count_once(tmp_path: Path) -> None:
    lines = [f"def f{number}(a):\n    return a + {number}\n" for number in range(12)]
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text("".join(lines))
    (tmp_path / "a_old.py").write_text("".join(lines).replace("return a + 3", "return guessed(a)"))
    for name in ("other.py", "other_copy.py"):
        (tmp_path / name).write_text("".join(f"def g{number}(b):\n    return {number} * b\n" for number in range(12)))
    (tmp_path / "short.py").write_text("import os\n")
    document = Document.read(tmp_path / "a.py")
    texts = [reference.text for reference in find_references(document, tmp_path / "a.py")]
    assert sorted(text.splitlines()[0] for text in texts) == ["def g0(b):", "import os"]
    held = Reference("open", "".join(lines), tmp_path / "b.py")
    assert held.text not in [reference.text for reference in find_references(document, tmp_path / "a.py", [held])]


def test_links_that_lead_to_themselves_are_passed_over(root: Path) -> None:
    put(root, {"store.py": "from store_loop import x\nimport store_one\n", "store_near.py": "# near\n"})
    for name, target in {"store_loop": "store_loop", "store_one": "store_two", "store_two": "store_one"}.items():
        (root / f"{name}.py").symlink_to(f"{target}.py")
    (root / "tests").symlink_to("tests")
    assert names_of(references_of(root / "store.py")) == [("neighbor", "near")]


@pytest.mark.parametrize("names", ["(  # (a)\n    x,  # one\n    y,\n)", "x, \\\n    y", "\\\r\n x,\\\r\ny"])
def test_modules_are_found_on_all_lines_of_a_list(names: str, root: Path) -> None:
    put(root, {"own.py": f"from . import {names}\n", "x.py": "# x\n", "y.py": "# y\n"})
    assert names_of(references_of(root / "own.py")) == [("imported", "x"), ("imported", "y")]


def test_a_file_of_the_same_size_and_time_is_read_anew(root: Path) -> None:
    put(root, {"own.py": "import other\n", "other.py": "# first\n"})
    assert names_of(references_of(root / "own.py")) == [("imported", "first")]
    time_ns = (root / "other.py").stat().st_mtime_ns
    time.sleep(0.02)  # longer than a tick of the file system's clock
    put(root, {"other.py": "# third\n"})
    os.utime(root / "other.py", ns=(time_ns, time_ns))
    assert names_of(references_of(root / "own.py")) == [("imported", "third")]


def test_what_no_file_can_be_named_is_not_read(root: Path) -> None:
    put(root, {"own.ts": f"import './{'x' * 300}'\n"})
    assert references_of(root / "own.ts") == ()
    for name in ("store\0.py", "x" * 300 + ".py"):
        assert find_exclusion(root / name) is None and read_text(root / name) is None
