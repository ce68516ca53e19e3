"""The commands of README and docs: every one parses, and those that fill a file do so with a scripted engine."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from midfill_infill.cli import build_app
from midfill_infill.cli.app import SUBCOMMANDS

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNER = CliRunner()
STOCK = '''class Inventory:
    def remaining(self, name):
        """What is left."""
        ...
'''


def commands() -> Iterator[tuple[str, list[str]]]:
    """Page and words of each `midfill` command in a block of shell, or in a line of text, that can be told apart."""
    for page in PAGES:
        text = page.read_text("utf-8")
        lines = [
            line for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL) for line in block.splitlines()
        ]
        for line in lines + [f"{found}\n" for found in re.findall(r"`([^`\n]*\bmidfill (?:fill|serve)[^`\n]*)`", text)]:
            for part in re.split(r"&&|\|", line.partition("  #")[0].partition(" #")[0]):
                match = re.search(r"(?:^|[\s/])midfill (.*)", part.strip())
                if match and "..." not in match.group(1) and "[" not in match.group(1):
                    yield page.name, shlex.split(match.group(1).partition("<")[0].partition(">")[0])


COMMANDS = [pytest.param(words, id=f"{page}: {' '.join(words)}") for page, words in commands()]


def test_the_docs_show_more_than_twenty_commands() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_help_page_says_of_a_command_what_the_command_says_of_itself(name: str) -> None:
    command = SUBCOMMANDS[name].build(name)
    own = str(command.help or command.callback.__doc__).replace(": flag, environment, project, user, default;", ",")
    assert own.startswith(SUBCOMMANDS[name].summary)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_exists(words: list[str]) -> None:
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    path = [word for word in words[:2] if re.fullmatch(r"[a-z]+", word)][
        : 2 if words[:1] in (["refactor"], ["models"]) else 1
    ]
    shown = RUNNER.invoke(build_app(), [*path, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}) if path else None
    missing = [word for word in options if shown and word not in shown.stdout]
    assert not missing, f"midfill {' '.join(path)} has no {missing}"


FILLS = [param for param in COMMANDS if param.values[0][:1] == ["fill"] and "--until" not in param.values[0]]


@pytest.mark.parametrize("words", FILLS)
def test_fills_of_the_docs_fill(
    words: list[str], tmp_path: Path, answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer(rows=[["return 1"], ["return 2"]] if words.count("--hole") < 2 else [["1", "pass"]])
    shutil.copytree(ROOT / "examples", "examples")
    for name in ("t.py", "FILE", "x.py"):
        Path(name).write_text(STOCK)
    if words.count("--hole") == 2:
        Path("t.py").write_text(
            "class A:\n    x = 2\n    y = [1, 2, 3]\n\n\n\n\n\ndef f():\n    return [\n        1, 2, 3, 4, 5, 6, 7]\n"
        )
    result = RUNNER.invoke(build_app(), [word.replace("LINE", "4") for word in words], input=STOCK)
    assert result.exit_code == 0, result.stderr


def test_python_that_the_readme_asks_for_is_this_one() -> None:
    said = re.search(r"Python (\d)\.(\d+) or newer", (ROOT / "README.md").read_text("utf-8"))
    assert said and sys.version_info >= (int(said.group(1)), int(said.group(2)))


def test_figures_are_those_of_the_records() -> None:
    readme, said = (" ".join((ROOT / name).read_text("utf-8").split()) for name in ("README.md", "docs/lab/quality.md"))
    (shipped, small), (programs, programs_small) = read_rows("lines-physical"), read_rows("lines-mbpp")
    (humaneval,) = read_rows("lines-humaneval-single", "as shipped")
    lines = json.loads(find_newest("certainty").read_text("utf-8"))
    told = lines["now"]
    for sentence in (
        f"{tell(shipped['exact'])} came back exactly: {round_share(shipped['recurring'])} of lines that occur",
        f"{round_share(shipped['others'])} of the others",
        f"Of {lines['fills']} lines of Python, JavaScript and TypeScript packages it calls "
        f"{told['sure']:.0f} % likely or sure, and {told['right']:.0f} % of those are right",
        f"it gets {tell(small['exact'])} of the same lines",
        f"{tell(programs['passed'])} pass their tests, {tell(programs_small['passed'])} with the demonstration model",
        f"of 200 lines of HumanEval's programs {tell(humaneval['passed'])} pass",
    ):
        assert sentence in said, sentence
    assert f"of 209 lines of recent Python packages, {round_share(shipped['exact'])} came back exactly" in readme
    assert f"of the lines that it calls likely or sure, {told['right']:.0f} % are right" in readme


def read_rows(name: str, *ways: str) -> list[dict[str, Any]]:
    """Rows of the newest record of a suite, by default the product's and the demonstration model's."""
    rows = {row["name"]: row for row in json.loads(find_newest(name).read_text("utf-8"))["rows"]}
    return [rows[way] for way in ways or ("as shipped", "embedded")]


def find_newest(name: str) -> Path:
    """The newest record of a suite."""
    return sorted((ROOT / "bench" / "results").glob(f"*-{name}.json"))[-1]


def round_share(share: dict[str, float]) -> str:
    return f"{share['percent']:.0f} %"


def tell(share: dict[str, float]) -> str:
    return f"{round_share(share)} ({share['low']:.0f} to {share['high']:.0f})"
