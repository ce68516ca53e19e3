"""Fetching: names become archives and rows, what is not permissive is refused, what is there is not fetched again."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.packages import write_npm, write_wheel

from training.data import sources
from training.data.archives import ArchiveError, open_archive
from training.data.corpus import HELD_FOR_EVALUATION
from training.data.sources import Source, fetch_all, is_permissive, plain_name, read_table


@pytest.mark.parametrize(
    "licence",
    [
        "MIT",
        "Apache-2.0 AND MIT",
        "MIT OR GPL-3.0-only",
        "(MIT AND BSD-3-Clause)",
        "BSD License; MIT License",
        "Apache Software License (Apache 2.0)",
        "The MIT License (MIT)",
        "Apache License, Version 2.0",
        "Python Software Foundation License",
    ],
)
def test_permissive_licences(licence: str) -> None:
    assert is_permissive(licence)


@pytest.mark.parametrize(
    "licence",
    [
        "?",
        "",
        "GPL-3.0-only",
        "MPL-2.0",
        "MIT AND GPL-2.0-or-later",
        "(MIT OR GPL-2.0)",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "BSD License; GNU General Public License (GPL)",
        "GNU Library or Lesser General Public License (LGPL)",
        "LicenseRef-Proprietary",
        "SEE LICENSE IN terms.txt",
        "UNLICENSED",
        "not MIT",
    ],
)
def test_other_licences(licence: str) -> None:
    assert not is_permissive(licence)


@pytest.mark.parametrize(
    ("headers", "stated"),
    [
        ("License-Expression: MIT\nLicense: proprietary", "MIT"),
        ("Classifier: License :: OSI Approved :: BSD License\nLicense: see file", "BSD License"),
        (
            "Classifier: License :: OSI Approved :: MIT License\n"
            "Classifier: License :: OSI Approved :: GNU General Public License (GPL)",
            "MIT License; GNU General Public License (GPL)",
        ),
        ("Classifier: License :: OSI Approved\nLicense: ISC", "ISC"),
        ("License: Copyright\n and its whole text", "?"),
        ("Summary: nothing said", "?"),
    ],
)
def test_wheel_says_its_licence(tmp_path: Path, headers: str, stated: str) -> None:
    assert open_archive(write_wheel(tmp_path, "some", {}, headers)).licence == stated


def test_npm_says_its_licence(tmp_path: Path) -> None:
    assert open_archive(write_npm(tmp_path, "wordy", {}, "see\n\tLICENSE")).licence == "see LICENSE"
    archive = open_archive(write_npm(tmp_path, "@scope/name", {}, {"type": "ISC"}))
    assert (archive.name, archive.version, archive.licence) == ("@scope/name", "1.0.0", "ISC")


@pytest.mark.parametrize("name", ["a.whl", "a.tgz"])
def test_damaged_archive_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK nothing")
    with pytest.raises(ArchiveError, match=name):
        open_archive(tmp_path / name)


def test_wheels_are_fetched_by_name(tmp_path: Path) -> None:
    write_wheel(tmp_path / "registry", "one-name", {"a.py": ""})
    (tmp_path / "names.txt").write_text("One_Name==1.0  # spelt otherwise\n\n")
    folder = tmp_path / "archives"
    assert fetch_all(folder, tmp_path / "names.txt", None, tmp_path / "registry") == {"used": 1}
    (row,) = read_table(folder / "sources.tsv")
    assert (row.name, row.version, row.licence, row.used) == ("one-name", "1.0", "MIT", "yes") and len(row.sha256) == 64
    assert [path.name for path in folder.glob("*.whl")] == ["one_name-1.0-py3-none-any.whl"]


def test_what_is_there_or_refused_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    licences = {"one": "MIT", "two": "GPL-3.0-only"}

    def download(command: list[str], **options: object) -> None:
        name = command[-1]
        asked.append(name)
        if name in licences:
            write_wheel(Path(command[command.index("--dest") + 1]), name, {}, f"License-Expression: {licences[name]}")

    monkeypatch.setattr(subprocess, "run", download)
    (tmp_path / "names.txt").write_text("one\ntwo\nthree\n")
    folder = tmp_path / "archives"
    for _ in range(2):
        counts = fetch_all(folder, tmp_path / "names.txt", None)
        assert counts == {"used": 1, "refused": 1, "missing": 1}
        assert "no archive of three" in capsys.readouterr().err
        assert [(row.name, row.used) for row in read_table(folder / "sources.tsv")] == [("one", "yes"), ("two", "no")]
        assert [path.name for path in folder.glob("*.whl")] == ["one-1.0-py3-none-any.whl"]
    assert asked == ["one", "two", "three", "three"]


def test_npm_runs_no_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pack(command: list[str], **options: object) -> None:
        assert command[:2] == ["npm", "pack"] and "--ignore-scripts" in command
        write_npm(Path(command[command.index("--pack-destination") + 1]), command[-1].rpartition("@")[0], {})

    monkeypatch.setattr(sources.subprocess, "run", pack)
    (tmp_path / "names.txt").write_text("@scope/name@1.0.0\n")
    assert fetch_all(tmp_path / "archives", None, tmp_path / "names.txt") == {"used": 1}
    assert read_table(tmp_path / "archives/sources.tsv")[0].name == "@scope/name"


def test_wheel_command_builds_nothing(tmp_path: Path) -> None:
    command = sources._wheel_command("name", tmp_path, None)
    assert "--only-binary=:all:" in command and "--no-deps" in command


def test_what_a_program_says_of_its_failure_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert sources._fetch([sys.executable, "-c", "exit('no network')"], tmp_path) is None
    assert capfd.readouterr().err == "no network\n"


@pytest.mark.parametrize(("name", "pin"), [("python.txt", "=="), ("npm.txt", "@")])
def test_shipped_lists_pin_each_name_once(name: str, pin: str) -> None:
    wishes = (Path(sources.__file__).parent.parent / "packages" / name).read_text(encoding="utf-8").split()
    names = [plain_name(wish.rpartition(pin)[0]) for wish in wishes]
    assert all(names) and len(set(names)) == len(names) > 30
    assert not HELD_FOR_EVALUATION.intersection(names)


def test_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sources.tsv").write_text("name\tlicence\n")
    with pytest.raises(ValueError, match="is no table of sources"):
        read_table(tmp_path / "sources.tsv")


def test_table_round_trip(tmp_path: Path) -> None:
    rows = [Source("b", "1", "MIT", "0" * 64, "yes", 3), Source("a", "2", "?", "1" * 64, "no")]
    sources.write_table(tmp_path / "sources.tsv", rows)
    assert read_table(tmp_path / "sources.tsv") == rows[::-1]
