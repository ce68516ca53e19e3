"""Reads a suite: JSON lines, maybe gzipped, of gaps whose middle is known. Knows no model and runs nothing.

A row is `{id, prefix, middle, suffix}` and maybe `program_tail` (or `tests`), `group`, `split`, `kind`, `language`,
`references`. HumanEval-Infilling's rows (`task_id, prompt, canonical_solution, suffix, test, entry_point`) work too.
"""

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from midfill_infill.context.references import Reference
from training.data.corpus import fraction_of

SuiteFile = Annotated[Path, typer.Argument(help="As bench.quality.lines writes it.")]


class SuiteError(ValueError):
    """A suite that cannot be read; the message is one sentence."""


@dataclass(frozen=True)
class Task:
    """One gap. `tests` run after the filled program; None if there are none. `group` names the problem."""

    id: str
    prefix: str
    middle: str
    suffix: str
    tests: str | None = None
    group: str = ""
    kind: str = ""
    language: str = "python"
    references: tuple[dict[str, Any], ...] = field(default=(), compare=False)

    def program(self, text: str) -> str:
        """The file with the gap filled by `text`, without its tests."""
        return self.prefix + text + self.suffix

    @property
    def shown_references(self) -> tuple[Reference, ...]:
        return tuple(Reference(**fields) for fields in self.references)


@dataclass(frozen=True)
class Suite:
    """The chosen tasks of a file; `num_found` counts those of the wanted split and kind before `limit`."""

    name: str
    sha256: str
    tasks: tuple[Task, ...]
    num_found: int
    split: str | None
    kind: str | None

    @property
    def num_groups(self) -> int:
        return len({task.group for task in self.tasks})

    @property
    def title(self) -> str:
        """The title of a table: the chosen gaps, and their number."""
        chosen = " ".join(part for part in (self.name, self.split, self.kind) if part)
        subset = "" if len(self.tasks) == self.num_found else f" of {self.num_found}, by hash of their ids"
        return f"{chosen}: {len(self.tasks)} gaps{subset}, {self.num_groups} problems"

    @property
    def summary(self) -> dict[str, str | int | None]:
        """The facts about the gaps for a record, without their text."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "split": self.split,
            "kind": self.kind,
            "tasks": len(self.tasks),
            "tasks_found": self.num_found,
            "problems": self.num_groups,
        }


def read_suite(path: Path, *, split: str | None = None, kind: str | None = None, limit: int | None = None) -> Suite:
    """The tasks of a split and a kind, if rows name theirs. `limit` keeps those whose ids have the lowest hashes.

    Raises SuiteError.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise SuiteError(f"The suite {path} cannot be read: {error}") from error
    tasks: list[Task] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if _is_wanted(row, "split", split) and _is_wanted(row, "kind", kind):
                tasks.append(_task(row))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise SuiteError(f"Line {number} of {path} is no task: {type(error).__name__}: {error}") from error
    num_found = len(tasks)
    if not tasks:
        raise SuiteError(f"The suite {path} has no task of split {split!r} and kind {kind!r}.")
    if len({task.id for task in tasks}) < num_found:
        raise SuiteError(f"The suite {path} has two tasks of the same id.")
    if limit is not None:
        by_hash = sorted((fraction_of(task.id), task.id) for task in tasks)
        chosen = {identity for _, identity in by_hash[:limit]}
        tasks = [task for task in tasks if task.id in chosen]
    return Suite(path.name, hashlib.sha256(data).hexdigest(), tuple(tasks), num_found, split, kind)


def _is_wanted(row: dict[str, Any], key: str, value: str | None) -> bool:
    return value is None or row.get(key, value) == value


def _task(row: dict[str, Any]) -> Task:
    if "task_id" in row:  # HumanEval-Infilling's own names
        check = f"\n{row['test']}\ncheck({row['entry_point']})\n"
        identity = str(row["task_id"])  # RandomSpanInfilling/HumanEval/0/1: a problem has many gaps
        problem = "/".join(identity.split("/")[1:3])
        return Task(identity, row["prompt"], row["canonical_solution"], row["suffix"], check, problem)
    tests = row.get("program_tail", row.get("tests"))
    if not all(isinstance(row[key], str) for key in ("prefix", "middle", "suffix")):
        raise TypeError("prefix, middle and suffix must be texts")
    return Task(
        id=str(row["id"]),
        prefix=row["prefix"],
        middle=row["middle"],
        suffix=row["suffix"],
        tests=None if tests is None else str(tests),
        group=str(row.get("group", row["id"])),
        kind=str(row.get("kind", "")),
        language=str(row.get("language", "python")),
        references=tuple(row.get("references", ())),
    )
