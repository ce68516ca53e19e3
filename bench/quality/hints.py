"""`python -m bench quality.hints SUITE KEEP`: types of signatures by the recipe `add-type-hints`.

One annotated function of every Python file of the suite loses its types. Knows suites, the engine and the fill; runs no
program.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Final

import numpy as np
import torch
import typer

from bench.quality.product import Fill, KeepFolder, ModelName, describe_fills, fill_holes, keep_fills, open_client
from bench.quality.report import show
from bench.quality.score import share
from bench.quality.suite import SuiteFile, Task, read_suite
from midfill_engine.wire import BASE
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.refactor.planning.recipes.type_hints import find
from midfill_infill.text.document import Document

OWN: Final = ("self", "cls")
FLOOR: Final = ("str", "None")  # of every parameter and of the result

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(
    suite: SuiteFile,
    keep: KeepFolder,
    limit: Annotated[int, typer.Option(min=1)] = 60,
    seed: int = 5,
    model: ModelName = BASE,
) -> None:
    """Prints how many signatures have a type everywhere and else are what they were, and how many types are right, with
    intervals over files, and a floor.
    """
    torch.set_num_threads(1)
    read = read_suite(suite)
    tasks = list(islice(draw(read.tasks, seed), limit))
    facts = describe_fills(model, read)
    fills = keep_fills(keep, "add-type-hints", facts, tasks, partial(write, open_client(model)))
    truths = [list_types(read_true(task)) for task in tasks]
    columns = {
        "whole %": [is_whole(task, made.text) for task, made in zip(tasks, fills, strict=True)],
        "types right %": [share_right(task, made.text) for task, made in zip(tasks, fills, strict=True)],
        f"types right %, floor {FLOOR}": list(map(share_of_floor, truths)),
    }
    print(f"{len(tasks)} signatures, {sum(map(len, truths))} types")
    groups = [task.group for task in tasks]
    for name, values in columns.items():
        print(f"{name}: {show(share(values, groups))}")


def draw(tasks: tuple[Task, ...], seed: int) -> Iterator[Task]:
    """Files without the types of one signature, at most one per file; the middle is the file as it was."""
    files = {task.group: task for task in tasks if task.language == "python"}
    rng = np.random.default_rng(seed)
    for group in rng.permutation(sorted(files)).tolist():
        source = files[group].program(files[group].middle)
        typed = [function for function in list_functions(source) if is_typed(function)]
        if typed:
            function = typed[int(rng.integers(len(typed)))]
            bare = strip(source.encode(), function).decode()
            yield replace(files[group], id=f"{group}:{function.lineno}", prefix=bare, middle=source, suffix="")


def list_functions(source: str) -> list[Function]:
    """All functions of a file, none if it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def list_arguments(function: Function) -> list[ast.arg]:
    """The parameters that a type is written for."""
    parameters = function.args
    in_order = [
        *parameters.posonlyargs,
        *parameters.args,
        parameters.vararg,
        *parameters.kwonlyargs,
        parameters.kwarg,
    ]
    return [argument for argument in in_order if argument is not None and argument.arg not in OWN]


def is_typed(function: Function) -> bool:
    arguments = list_arguments(function)
    if not arguments or function.returns is None:
        return False
    return all(argument.annotation for argument in arguments)


def strip(source: bytes, function: Function) -> bytes:
    """The source without the types of a signature."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def find_end(node: ast.expr) -> int:
        assert node.end_lineno and node.end_col_offset is not None
        return starts[node.end_lineno - 1] + node.end_col_offset

    result = function.returns
    assert result is not None
    arrow = source.rindex(b"->", 0, starts[result.lineno - 1] + result.col_offset)
    spans = [(len(source[:arrow].rstrip()), find_end(result))]
    for argument in list_arguments(function):
        assert argument.annotation is not None
        name_start = starts[argument.lineno - 1] + argument.col_offset
        spans.append((name_start + len(argument.arg.encode()), find_end(argument.annotation)))
    for start, end in sorted(spans, reverse=True):
        source = source[:start] + source[end:]
    return source


def line_of(task: Task) -> int:
    """Where the task's function starts, counted from 1."""
    return int(task.id.rpartition(":")[2])


def write(client: EngineClient, task: Task) -> Fill:
    """The whole file with types."""
    document = Document(task.prefix.encode(), task.language)
    for hole in find(document, ""):
        before = document.data[: hole.start_byte].decode()
        if before.rpartition("def ")[0].count("\n") + 1 != line_of(task):
            continue
        try:
            filled = fill_holes(client, task, document, [hole])
        except MidfillError:
            break
        return Fill(filled.patch.apply(document.data).decode(), filled.best.certainty, 0.0)
    return Fill(task.prefix, None, 0.0)


def read_function(task: Task, text: str) -> Function | None:
    """The task's function in a file, None if there is none."""
    at_line = (function for function in list_functions(text) if function.lineno == line_of(task))
    return next(at_line, None)


def read_true(task: Task) -> Function:
    function = read_function(task, task.middle)
    assert function is not None
    return function


def list_types(function: Function) -> list[str]:
    """The types of the parameters and of the result, "" where there is none."""
    annotations = [argument.annotation for argument in list_arguments(function)]
    types = []
    for node in (*annotations, function.returns):
        text = "" if node is None else ast.unparse(node)
        types.append(text.strip("'\"").replace("'", '"'))
    return types


def list_names(function: Function) -> list[str]:
    return [argument.arg for argument in list_arguments(function)]


def list_defaults(function: Function) -> list[str]:
    values = (*function.args.defaults, *function.args.kw_defaults)
    return [ast.dump(value) for value in values if value is not None]


def is_whole(task: Task, text: str) -> float:
    """1 if all parameters and the result have types and nothing else changed, else 0."""
    true, written = read_true(task), read_function(task, text)
    if written is None or list_names(written) != list_names(true):
        return 0.0
    return float(all(list_types(written)) and list_defaults(true) == list_defaults(written))


def share_right(task: Task, text: str) -> float:
    """The share of right types; 0 where the parameters are others."""
    true, written = read_true(task), read_function(task, text)
    if written is None or list_names(written) != list_names(true):
        return 0.0
    pairs = zip(list_types(written), list_types(true), strict=True)
    return float(np.mean([type_written == type_true for type_written, type_true in pairs]))


def share_of_floor(types: list[str]) -> float:
    """The share of right types where all parameters have one type and the result another."""
    *parameters, result = types
    right = [name == FLOOR[0] for name in parameters]
    return float(np.mean([*right, result == FLOOR[1]]))


if __name__ == "__main__":
    typer.run(main)
