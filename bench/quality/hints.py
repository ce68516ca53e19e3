"""`python -m bench quality.hints SUITE KEEP`: types of signatures by the recipe `add-type-hints`.

One annotated function of every Python file of the suite loses its types. Knows suites, the engine and the fill; runs no
program.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import torch
import typer

from bench.quality.proposals import Fill, kept, open_client
from bench.quality.report import show
from bench.quality.score import share
from bench.quality.suite import Task, read_suite
from midfill_engine.wire import BASE
from midfill_infill.context.references import Reference
from midfill_infill.engines.client import EngineClient
from midfill_infill.errors import MidfillError
from midfill_infill.filling.fill import Filled, Options, fill
from midfill_infill.refactor.planning.recipes.type_hints import find
from midfill_infill.text.document import Document

OWN: Final = ("self", "cls")
FLOOR: Final = ("str", "None")  # of every parameter and of the result

Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(
    suite: Annotated[Path, typer.Argument(help="As bench.quality.lines writes it.")],
    keep: Annotated[Path, typer.Argument(help="A folder: fills are kept there, and not made again.")],
    limit: Annotated[int, typer.Option(min=1)] = 60,
    seed: int = 5,
    model: Annotated[str, typer.Option(help="A known model, or a checkpoint's folder.")] = BASE,
) -> None:
    """Prints how many signatures have a type everywhere and else are what they were, and how many types are right, with
    intervals over files, and a floor.
    """
    torch.set_num_threads(1)
    tasks = list(islice(draw(read_suite(suite).tasks, seed), limit))
    groups = [task.group for task in tasks]
    fills = list(kept(keep, "add-type-hints", tasks, partial(write, open_client(model))))
    whole, right = zip(*(judge(task, each.text) for task, each in zip(tasks, fills, strict=True)), strict=True)
    floor = [judge(task, task.middle, FLOOR)[1] for task in tasks]
    print(f"{len(tasks)} signatures, {sum(map(len, map(list_types, map(read_true, tasks))))} types")
    for name, values in {"whole %": whole, "types right %": right, f"types right %, floor {FLOOR}": floor}.items():
        print(f"{name}: {show(share(list(values), groups))}")


def draw(tasks: tuple[Task, ...], seed: int) -> Iterator[Task]:
    """Files without the types of one signature, at most one per file; the middle is the file as it was."""
    files = {task.group: task for task in tasks if task.language == "python"}
    rng = np.random.default_rng(seed)
    for group in rng.permutation(sorted(files)).tolist():
        source = files[group].program(files[group].middle)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        fitting = [node for node in ast.walk(tree) if isinstance(node, Function) and is_typed(node)]
        if fitting:
            function = fitting[int(rng.integers(len(fitting)))]
            bare = strip(source.encode(), function).decode()
            yield replace(files[group], id=f"{group}:{function.lineno}", prefix=bare, middle=source, suffix="")


def list_arguments(function: Function) -> list[ast.arg]:
    found = function.args
    every = [*found.posonlyargs, *found.args, found.vararg, *found.kwonlyargs, found.kwarg]
    return [each for each in every if each is not None and each.arg not in OWN]


def is_typed(function: Function) -> bool:
    arguments = list_arguments(function)
    return bool(arguments) and function.returns is not None and all(each.annotation for each in arguments)


def strip(source: bytes, function: Function) -> bytes:
    """The source without the types of a signature."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = []
    for each in list_arguments(function):
        assert each.annotation is not None and each.annotation.end_lineno and each.annotation.end_col_offset is not None
        begin = starts[each.lineno - 1] + each.col_offset + len(each.arg.encode())
        spans.append((begin, starts[each.annotation.end_lineno - 1] + each.annotation.end_col_offset))
    result = function.returns
    assert result is not None and result.end_lineno and result.end_col_offset is not None
    end = starts[result.end_lineno - 1] + result.end_col_offset
    spans.append((source.rindex(b"->", 0, starts[result.lineno - 1] + result.col_offset), end))
    for begin, end in reversed(spans):
        is_result = source[begin : begin + 2] == b"->"
        source = (source[:begin].rstrip() if is_result else source[:begin]) + source[end:]
    return source


def write(client: EngineClient, task: Task) -> Fill:
    """The whole file with types."""
    document = Document(task.prefix.encode(), task.language)
    line = int(task.id.rpartition(":")[2])
    references = tuple(Reference(**each) for each in task.references)
    for hole in find(document, ""):
        text = document.data[: hole.start_byte].decode()
        if text.rpartition("def ")[0].count("\n") + 1 == line:
            try:
                *_, filled = fill(document, [hole], Options(references=references), client)
            except MidfillError:
                break
            assert isinstance(filled, Filled)
            return Fill(filled.patch.apply(document.data).decode(), filled.best.certainty, 0.0)
    return Fill(task.prefix, None, 0.0)


def read_function(task: Task, text: str) -> Function | None:
    line = int(task.id.rpartition(":")[2])
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    return next((node for node in ast.walk(tree) if isinstance(node, Function) and node.lineno == line), None)


def read_true(task: Task) -> Function:
    found = read_function(task, task.middle)
    assert found is not None
    return found


def list_types(function: Function) -> list[str]:
    """The types of the parameters and of the result, "" where there is none."""
    nodes = [*(each.annotation for each in list_arguments(function)), function.returns]
    return ["" if node is None else ast.unparse(node).strip("'\"").replace("'", '"') for node in nodes]


def list_defaults(function: Function) -> list[str]:
    return [ast.dump(each) for each in (*function.args.defaults, *function.args.kw_defaults) if each is not None]


def judge(task: Task, text: str, floor: tuple[str, str] | None = None) -> tuple[float, float]:
    """Whether all parameters and the result have types and nothing else changed, and the share of right types."""
    true, found = read_true(task), read_function(task, text)
    wanted = list_types(true)
    if floor is not None:
        return 0.0, float(np.mean([each == floor[place + 1 == len(wanted)] for place, each in enumerate(wanted)]))
    if found is None or [each.arg for each in list_arguments(found)] != [each.arg for each in list_arguments(true)]:
        return 0.0, 0.0
    types = list_types(found)
    right = float(np.mean([one == other for one, other in zip(types, wanted, strict=True)]))
    return float(all(types) and list_defaults(true) == list_defaults(found)), right


if __name__ == "__main__":
    typer.run(main)
