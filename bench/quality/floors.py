"""Baselines without a neural network: `pass` and the line before. A model must clearly exceed them."""

from collections.abc import Callable

from bench.quality.suite import Task

Fill = Callable[[Task], str]


def fill_with_pass(task: Task) -> str:
    return shape(task, "pass")


def fill_with_previous_line(task: Task) -> str:
    filled = [line.strip() for line in task.prefix.split("\n") if line.strip()]
    return shape(task, filled[-1] if filled else "")


def shape(task: Task, content: str) -> str:
    """`content` as a whole line for a gap at the start of a line: indented like its neighbors, with a line end."""
    if task.prefix and not task.prefix.endswith("\n"):
        return content
    end = "" if task.suffix.startswith("\n") or not task.suffix else "\n"
    return _indent(task.prefix) + content + end


def _indent(prefix: str) -> str:
    lines = [line for line in prefix.split("\n") if line.strip()]
    if not lines:
        return ""
    last = lines[-1]
    indent = last[: len(last) - len(last.lstrip())]
    return indent + "    " if last.rstrip().endswith(":") else indent
