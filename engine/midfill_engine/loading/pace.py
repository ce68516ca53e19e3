"""Measures what a forward pass of a loaded model costs on this machine. Knows tensors; no requests."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch

from midfill_engine.models.operators import TorchOperators
from midfill_engine.models.packed import Pass, Result, Stacks, score_rows
from midfill_engine.models.transformer import Transformer

PAST: Final = 256  # tokens that the measured passes attend to
ROWS: Final = (5, 25)  # of the two passes that are measured
ROUNDS: Final = 3


@dataclass(frozen=True)
class Pace:
    """The cost of a forward pass in seconds: `pass_s` whatever its rows, and `row_s` for each row."""

    pass_s: float = 0.0
    row_s: float = 0.0

    @classmethod
    def of(cls, few: tuple[int, float], many: tuple[int, float]) -> "Pace":
        """The pace on which two passes lie, given by their numbers of rows and seconds."""
        row_s = max(0.0, (many[1] - few[1]) / (many[0] - few[0]))
        return cls(max(0.0, few[1] - row_s * few[0]), row_s)

    def cost_s(self, num_passes: float, num_rows: float) -> float:
        return num_passes * self.pass_s + num_rows * self.row_s


def measure_pace(
    transformer: Transformer,
    operators: TorchOperators,
    run: Callable[[list[Pass]], list[Result]],
    reads_stacks: bool = False,
    num_rounds: int = ROUNDS,
) -> Pace:
    """The pace of a model, from the least times of a few rounds, because other work only adds to a time. On a CPU a
    time is that of the process divided by its threads, so that other processes hardly count. Times include the scores
    of the next tokens. `reads_stacks`: passes take their past as `Stacks`, as the kernels do.
    """
    config, dtype, device = transformer.config, transformer.dtype, transformer.embedding.weight.device
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    num_threads = torch.get_num_threads() if device.type == "cpu" else 1
    past = torch.zeros(1, config.num_kv_heads, PAST, config.head_dim, dtype=dtype, device=device)
    least_s = dict.fromkeys(ROWS, float("inf"))
    for _ in range(num_rounds):
        for size in ROWS:
            rows, attention_mask = torch.arange(size), torch.ones(size, PAST + size, dtype=torch.bool)
            measured = Pass(
                ids=rows,
                positions=rows + PAST,
                wanted=rows,
                past=[(past, past)] * config.num_layers,
                attention_mask=attention_mask,
            )
            if reads_stacks:  # their mask leaves out the past
                stacks = Stacks(past[None].expand(config.num_layers, 2, -1, -1, -1))
                measured = replace(measured, past=None, attention_mask=attention_mask[:, PAST:], stacks=stacks)
            started_s = clock()
            (result,) = run([measured])
            score_rows(transformer, [result.hidden], operators)[0].float().log_softmax(dim=-1).cpu()
            least_s[size] = min(least_s[size], (clock() - started_s) / num_threads)
    few, many = ((size, least_s[size]) for size in ROWS)
    return Pace.of(few, many)
