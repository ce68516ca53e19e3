"""Trains a base: steps, schedule, snapshots, log, until a deadline by the clock. Knows folders and seconds."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from midfill_engine.loading.device import choose_dtype
from training.data.loader import Batching, Loader, Source, pack_all
from training.data.pack import hash_pack, read_pack
from training.data.packing import Packed
from training.data.rows import RowShape, draw_row
from training.export import begin_with
from training.model import Base
from training.snapshots import LOG, Progress, clear_scratch, read_snapshot, write_snapshot

VALIDATION_SEED: Final = 12345
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True)
class RunConfig:
    """One run. `rank` 0 trains all weights; any other trains LoRA of that rank for every matrix, which can `begin` with
    an exported adapter of that rank.

    It ends `deadline_s` after its first step, which compiles; or at `end_at_s`, in seconds since 1970; or after
    `num_steps`, which makes it repeatable. With `resume` it goes on from the snapshot in `out`.
    """

    pack: Path
    out: Path
    model: str = "smollm2"
    begin: Path | None = None
    rank: int = 16
    rate: float = 3e-4
    deadline_s: float = 1200.0
    end_at_s: float = 0.0
    num_steps: int = 0
    resume: bool = False
    layout: Literal["prompt", "tree"] = "prompt"
    row_tokens: int = 768
    sentinels: bool = False
    masked: bool = False
    context_weight: float = 0.3
    step_tokens: int = 4096
    pack_length: int = 0
    warmup_steps: int = 10
    cooldown: float = 0.5
    num_validation_rows: int = 24
    snapshot_s: float = 600.0
    log_every: int = 5
    seed: int = 0
    num_workers: int = 0
    num_threads: int = 1
    device: str = "cpu"
    dtype: Literal["auto", "bf16", "fp32"] = "auto"  # bf16 only where it is fast
    compile: bool = False

    @property
    def shape(self) -> RowShape:
        return RowShape(
            self.layout,
            self.row_tokens,
            sentinels=self.sentinels,
            masked=self.masked,
            context_weight=self.context_weight,
        )


def train(config: RunConfig) -> Progress:
    """Trains until the deadline and leaves `snapshot` in `config.out`.

    Raises ValueError for an incomplete snapshot, and if the loss is not a number; then the last snapshot stays.
    """
    started_s = time.monotonic()
    if config.pack_length and config.pack_length < config.shape.room:
        raise ValueError(f"pack_length is {config.pack_length}, and a row may take {config.shape.room}: raise it.")
    config.out.mkdir(parents=True, exist_ok=True)
    clear_scratch(config.out / SNAPSHOT)
    torch.manual_seed(config.seed)
    torch.set_num_threads(config.num_threads)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans for every shape anew, and ours differ from step to step
    device = torch.device(config.device)
    base = Base.open(config.model, config.rank, device, choose_dtype(device, config.dtype), config.compile)
    if config.begin is not None:
        begin_with(base.parameters, config.begin)
    batching = Batching(config.step_tokens, config.pack_length)
    loader = Loader(Source(config.pack, base.cutter, config.shape, batching, config.seed), config.num_workers)
    try:
        return _Run(config, base, loader, started_s).run()
    finally:
        loader.close()


class _Run:
    def __init__(self, config: RunConfig, base: Base, loader: Loader, started_s: float) -> None:
        self.config, self.base, self.loader, self.started_s = config, base, loader, started_s
        self.counted_from_s = time.monotonic()
        self.device = torch.device(config.device)
        self.parameters = base.parameters
        is_fused = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=config.rate, betas=(0.9, 0.95), fused=is_fused)
        self.progress = Progress(record={**_plain(config), "dtype": str(base.dtype)})
        self.progress.record["pack_sha256"] = hash_pack(config.pack, "train")
        if config.resume:
            self.progress = read_snapshot(config.out / SNAPSHOT, self.parameters, self.optimizer)
        self.first_step, self.base_seconds = self.progress.step, self.progress.seconds
        self.length_s = max(config.end_at_s - time.time(), 1e-3) if config.end_at_s else config.deadline_s
        self.saved_at_s = time.monotonic()

    @property
    def elapsed(self) -> float:
        """The elapsed share of the run, in [0, 1], and above 1 when it is over."""
        if self.config.num_steps:
            return (self.progress.step - self.first_step) / self.config.num_steps
        if self.progress.step == self.first_step and not self.config.end_at_s:
            return 0.0
        return (time.monotonic() - self.counted_from_s) / self.length_s

    def run(self) -> Progress:
        self.validation = self._draw_validation()
        self._validate()
        for packs in self.loader.steps(self.progress.step):
            if self.elapsed >= 1:
                break
            loss, norm = self._step([packed.to(self.device) for packed in packs])
            if self.progress.step == self.first_step + 1 and not self.config.end_at_s:
                self.counted_from_s = time.monotonic()
            if self.progress.step % self.config.log_every == 0 or self.progress.step == self.first_step + 1:
                self._log(loss, norm)
            if time.monotonic() - self.saved_at_s > self.config.snapshot_s:
                self._save()
        self._save()
        return self.progress

    def _step(self, packs: Sequence[Packed]) -> tuple[Tensor, Tensor]:
        """One update: the mean loss, and the norm of its gradient."""
        factor = rate_factor(
            self.progress.step - self.first_step, self.elapsed, self.config.warmup_steps, self.config.cooldown
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate * factor
        total = torch.stack([packed.weights.sum() for packed in packs]).sum()
        loss = torch.zeros((), device=self.device)
        for packed in packs:
            part = (self.base.nats(packed) * packed.weights).sum() / total
            part.backward()  # type: ignore[no-untyped-call]
            loss += part.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.tokens += sum(packed.ids.numel() for packed in packs)
        return loss, norm

    def _log(self, loss: Tensor, norm: Tensor) -> None:
        self._check(loss.item() + norm.item())
        rate = self.optimizer.param_groups[0]["lr"]
        self._write(nats=round(loss.item(), 4), gradient_norm=round(norm.item(), 4), rate=round(rate, 7))

    def _check(self, value: float) -> None:
        if not math.isfinite(value):
            where = f"The loss or its gradient is no number at step {self.progress.step}"
            raise ValueError(f"{where}: resume from the last snapshot at a lower rate.")

    def _write(self, **values: float | str) -> None:
        self.progress.seconds = self.base_seconds + time.monotonic() - self.started_s
        row = {"step": self.progress.step, "tokens": self.progress.tokens, "seconds": round(self.progress.seconds, 1)}
        with (self.config.out / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps({**row, **values}) + "\n")

    def _save(self) -> None:
        self._validate()
        write_snapshot(self.config.out / SNAPSHOT, self.parameters, self.optimizer, self.progress)
        self.saved_at_s = time.monotonic()

    def _draw_validation(self) -> list[Packed]:
        """Prompt rows of held-out packages, the same for every run, so that runs can be compared."""
        rng = np.random.default_rng(VALIDATION_SEED)
        pack = read_pack(self.config.pack, "validation", self.base.cutter)
        shape = RowShape(num_tokens=self.config.row_tokens, context_weight=0.0)
        rows = [draw_row(pack, self.base.cutter, shape, rng) for _ in range(self.config.num_validation_rows)]
        return [packed.to(self.device) for packed in pack_all(rows, None, self.config.pack_length, rng)]

    @torch.no_grad()
    def _validate(self) -> None:
        """Logs the mean loss of tokens of holes and of the lines that judge them, and of all other tokens."""
        sums = torch.zeros(4)
        for packed in self.validation:
            with torch.compiler.set_stance("force_eager"):  # compiling for it takes longer
                nats, is_hole = self.base.nats(packed), packed.weights == 1
            is_other = ~is_hole & (packed.targets > 0)
            parts = (nats[is_hole].sum(), is_hole.sum(), nats[is_other].sum(), is_other.sum())
            sums += torch.stack([part.float().cpu() for part in parts])
        self.progress.validation_nats = round(float(sums[0] / sums[1]), 4)
        other = round(float(sums[2] / sums[3]), 4)
        self._check(self.progress.validation_nats)
        self._write(validation_nats=self.progress.validation_nats, validation_context_nats=other)


def rate_factor(step: int, elapsed: float, warmup_steps: int, cooldown: float, final: float = 0.05) -> float:
    """Warm-up, constant, linear cooldown to `final`. `elapsed` in [0, 1] is the elapsed share of the run."""
    warm = min(1.0, (step + 1) / max(warmup_steps, 1))
    left = min(1.0, max(0.0, 1 - elapsed) / cooldown) if cooldown > 0 else 1.0
    return warm * (final + (1 - final) * left)


def _plain(config: RunConfig) -> dict[str, str]:
    return {
        name: str(value) for name, value in asdict(config).items() if name not in ("pack", "out", "begin", "end_at_s")
    }
