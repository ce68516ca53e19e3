"""The page about `midfill refactor` says what the code says."""

import re
from pathlib import Path

from typer.testing import CliRunner

from midfill_infill.cli import build_app
from midfill_infill.cli.refactor.common import exit_code
from midfill_infill.errors import OF_REPOSITORIES
from midfill_infill.refactor.planning.recipes import REGISTRY

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/refactor.md").read_text("utf-8")


def test_every_error_stands_in_the_table() -> None:
    _, _, table = PAGE.partition("| what is wrong | code | what to do |\n|---|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    known = [f"| {entry.title} | {exit_code(code)} | {entry.next_step} |" for code, entry in OF_REPOSITORIES.items()]
    assert rows == known


def test_every_recipe_and_the_hook_are_named() -> None:
    assert all(f"`{name}" in PAGE for name in REGISTRY)
    hook = re.findall(r"id: (\S+)", (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook and all(f"id: {name}" in PAGE for name in hook)


def test_every_option_on_the_page_exists() -> None:
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", PAGE))
    others = {"--fix", "--check", "--kills", "--files"}
    names = ("plan", "generate", "merge", "review", "apply", "verify", "undo", "status", "runs", "export", "check")
    helps = "".join(
        CliRunner().invoke(build_app(), ["refactor", name, "--help"], env={"COLUMNS": "200"}).stdout for name in names
    )
    assert said - others <= set(re.findall(r"--[a-z][a-z0-9-]+", helps))
