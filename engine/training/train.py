"""The training run: stages, schedule, snapshots, log, until a deadline by the clock. Knows folders and seconds."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midfill_engine.families.embedded import Embedded, EmbeddedConfig
from midfill_engine.loading import checkpoint
from midfill_engine.models.transformer import TransformerConfig
from midfill_engine.tokens.tokenizer import Tokenizer
from training.data.fim import draw_fim
from training.data.loader import Loader
from training.data.pack import hash_pack, read_pack
from training.data.rows import Batch, Copy, Noise, RowShape, collate, draw_example
from training.feed import Part, Stream, cut, feed, num_rows
from training.objective import Losses, causal_loss, fused_nats, span_loss, sum_nats
from training.optimizer import Average, make_optimizers, momentum_at, rate_factor, set_rates
from training.rounding import Rounding
from training.snapshots import LOG, Progress, clear_scratch, progress_of, write_snapshot

LOG_EVERY: Final = 10
PLATEAU_NOISE: Final = Noise(full_share=0.25)
COOLDOWN_NOISE: Final = Noise(full_share=0.40)
COPIES: Final[dict[str, tuple[Copy, ...]]] = {
    "spans": ("masked", "masked"),
    "hybrid": ("causal", "masked"),
}


@dataclass(frozen=True)
class RunConfig:
    """One run. The defaults are the recipe for one GPU; the README says what a CPU run changes.

    `end_at_s`, in seconds since 1970, ends it at that moment instead of `deadline_s` after its start, for who lends a
    machine counts from the asking. `num_steps` ends a run by its steps rather than by the clock, which makes it
    repeatable. `objective` is `hybrid` (one copy of the gaps read from the left, one masked), `spans` (two with
    complementary masks), or `fim` for the autoregressive baseline on the same data.
    A resumed run that asks for `causal_first` has a causal stage although its snapshot is past it. Parts of a run are
    shares of all of it: `ar_fraction` at the start, `cooldown` at the end.
    """

    pack: Path
    tokenizer: Path
    out: Path
    deadline_s: float
    end_at_s: float = 0.0
    num_steps: int = 0
    resume: Path | None = None
    objective: str = "hybrid"
    dim: int = 640
    num_layers: int = 10
    num_heads: int = 10
    head_dim: int = 64
    mlp_dim: int = 2560
    context: int = 512
    gap: int = 256
    hole_span: int = 256
    rows: int = 256
    causal_rows: int = 256
    micro_rows: int = 128
    muon_lr: float = 0.02
    adam_lr: float = 3e-3
    warmup_steps: int = 100
    cooldown: float = 0.3
    ar_fraction: float = 0.35
    causal_first: bool = False
    ema: float = 0.999
    seed: int = 0
    snapshot_s: float = 300.0
    num_workers: int = 12
    num_threads: int = 0
    device: str = "cuda"
    compile: bool = False
    bf16: bool = False

    @property
    def shape(self) -> RowShape:
        return RowShape(self.context, self.gap, self.hole_span, COPIES.get(self.objective, ("masked", "masked")))


def train(config: RunConfig) -> Progress:
    """Trains until `deadline_s` from now and leaves `snapshot` and `snapshot-average` (int8) in `config.out`.

    A run given `resume`, a snapshot or an exported checkpoint, starts with that folder's weights, its step count and a
    new warm-up. It has a causal stage only where that snapshot was taken in one, or the run asks for it. Raises
    ValueError for options that do not fit each other or the snapshot, and where the loss stops being a number: the last
    snapshots stay.
    """
    started = time.monotonic()
    check_rows(config)
    config.out.mkdir(parents=True, exist_ok=True)
    clear_scratch(config.out)
    torch.manual_seed(config.seed)
    torch.set_float32_matmul_precision("high")
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    tokenizer = Tokenizer.read(config.tokenizer)
    model, progress = _start(config, tokenizer)
    loader = Loader(config.pack, config.tokenizer, config.shape, config.rows, config.seed, config.num_workers)
    try:
        _Run(config, tokenizer, model, progress, loader, started).run()
    finally:
        loader.close()
    return progress


class _Run:
    def __init__(
        self,
        config: RunConfig,
        tokenizer: Tokenizer,
        model: Embedded,
        progress: Progress,
        loader: Loader,
        started: float,
    ) -> None:
        self.config, self.tokenizer, self.model, self.progress, self.loader = config, tokenizer, model, progress, loader
        self.device = torch.device(config.device)
        self.rounding = Rounding(model, config.bf16)
        self.optimizers = make_optimizers(model, config.muon_lr, config.adam_lr, self.rounding.dtype)
        self.average = Average(model, config.ema)
        held_out = validation_fims(config, tokenizer) if is_fim(config) else validation_batch(config, tokenizer)
        self.validation = cut(held_out, min(num_rows(held_out), config.micro_rows), self.device)
        compiles_loss = config.compile and self.device.type == "cuda"
        self.nats = torch.compile(sum_nats, dynamic=True) if compiles_loss else fused_nats
        self.started, self.first_step = started, progress.step
        self.base_seconds = progress.seconds
        self.length_s = max(config.end_at_s - time.time(), 1e-3) if config.end_at_s else config.deadline_s
        self.saved_at = time.monotonic()
        if config.compile:
            for block in self.rounding.computed.transformer.blocks:
                block.compile(dynamic=False)

    @property
    def elapsed(self) -> float:
        """How much of the run has gone, in [0, 1] and past 1 when it is over."""
        if self.config.num_steps:
            return (self.progress.step - self.first_step) / self.config.num_steps
        return (time.monotonic() - self.started) / self.length_s

    def run(self) -> None:
        if is_fim(self.config):
            self._run_fim()
        else:
            self._run_spans()

    def _run_fim(self) -> None:
        batches = self.loader.fims(self.progress.step, self.config.causal_rows)
        self._stage("fim", batches, 1 - self.config.cooldown)
        self.save("plateau")
        self._stage("cooldown", batches, 1.0)
        self.save("snapshot")

    def _run_spans(self) -> None:
        is_causal = self.config.resume is None or self.config.causal_first or self.progress.stage == "causal"
        causal_share = self.config.ar_fraction if is_causal else 0.0
        if causal_share > 0:
            self._stage("causal", self.loader.streams(self.progress.step, self.config.causal_rows), causal_share)
        self._stage("spans", self.loader.spans(self.progress.step, PLATEAU_NOISE), 1 - self.config.cooldown)
        self.save("plateau")
        self._stage("cooldown", self.loader.spans(self.progress.step, COOLDOWN_NOISE), 1.0)
        self.save("snapshot")

    def _stage(self, name: str, batches: Iterator[Batch | NDArray[np.int64]], until: float) -> None:
        parts = feed(batches, self.config.micro_rows, self.device)
        while self.elapsed < until:
            self.progress.stage = name
            is_logged = (self.progress.step + 1) % LOG_EVERY == 0 or self.progress.step == self.first_step
            losses, gradient_norm = self._step(*next(parts), is_logged)
            if gradient_norm is not None:
                self._log(name, losses, gradient_norm)
            if time.monotonic() - self.saved_at > self.config.snapshot_s:
                self.save("snapshot")

    def _step(self, rows: int, parts: list[Part], is_logged: bool) -> tuple[Losses, Tensor | None]:
        """One update. Returns the losses and, for the log, the norm of all gradients."""
        new_steps = self.progress.step - self.first_step
        factor = rate_factor(new_steps, self.elapsed, self.config.warmup_steps, self.config.cooldown)
        set_rates(self.optimizers, factor)
        self.optimizers[0].param_groups[0]["momentum"] = momentum_at(new_steps)
        losses = self._backward(parts)
        gradients = [value.grad for value in self.model.parameters() if value.grad is not None]
        gradient_norm = torch.nn.utils.get_total_norm(gradients) if is_logged else None
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.average.update(self.model)
        self.progress.step += 1
        self.progress.tokens += rows * self.config.shape.computed
        return losses, gradient_norm

    def _backward(self, parts: list[Part]) -> Losses:
        """Gradients and losses of a whole batch."""
        self.rounding.round()
        found = []
        for part in parts:
            losses = self._losses(part)
            losses.total.backward()  # type: ignore[no-untyped-call]
            self.rounding.collect()
            found.append(Losses(losses.total.detach(), losses.token, losses.length))
        return Losses.sum(found)

    def _losses(self, part: Part) -> Losses:
        if isinstance(part, Stream):
            return causal_loss(self.rounding.computed, part.ids, part.num_targets, self.nats)
        return span_loss(self.rounding.computed, part, self.nats)

    def _log(self, stage: str, losses: Losses, gradient_norm: Tensor) -> None:
        self.progress.seconds = self.base_seconds + time.monotonic() - self.started
        if not math.isfinite(losses.total.item() + gradient_norm.item()):
            raise self._no_number()
        row = {
            "stage": stage,
            "step": self.progress.step,
            "tokens": self.progress.tokens,
            "seconds": round(self.progress.seconds, 1),
            "token_nats": round(losses.token.item(), 4),
            "length_nats": round(losses.length.item(), 4),
            "gradient_norm": round(gradient_norm.item(), 4),
            "rate": round(self.optimizers[0].param_groups[0]["lr"], 5),
        }
        self._write_log(row)

    def _write_log(self, row: dict[str, object]) -> None:
        with (self.config.out / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")

    def save(self, name: str) -> None:
        """Writes the weights, the averaged weights and the state, and logs the validation loss of both.

        Raises ValueError where a loss is no number.
        """
        self.progress.seconds = self.base_seconds + time.monotonic() - self.started
        self.progress.record = _record(self.config, self.tokenizer)
        raw = {key: value.detach().clone() for key, value in self.model.named_parameters()}
        own = self._validate()
        _assign(self.model, self.average.values)
        averaged = self._validate()
        if not math.isfinite(own + averaged):
            raise self._no_number()
        self._write(f"{name}-average", averaged)
        _assign(self.model, raw)
        self._write(name, own)
        scores = {"validation_nats": own, "validation_nats_average": averaged}
        self._write_log({"saved": name, "step": self.progress.step, "tokens": self.progress.tokens, **scores})
        self.saved_at = time.monotonic()

    def _no_number(self) -> ValueError:
        where = f"The loss or its gradient is no number at step {self.progress.step}"
        return ValueError(f"{where}: resume from the last snapshot, more slowly.")

    def _write(self, name: str, validation_nats: float) -> None:
        self.progress.validation_nats = validation_nats
        write_snapshot(self.config.out / name, self.model, self.tokenizer, self.progress)

    @torch.no_grad()
    def _validate(self) -> float:
        self.rounding.round()
        return round(Losses.sum([self._losses(part) for part in self.validation]).token.item(), 4)


def check_rows(config: RunConfig) -> None:
    """Raises ValueError where a step's rows cannot be cut into equal parts."""
    for name, rows in (("rows", config.rows), ("causal_rows", config.causal_rows)):
        if rows > config.micro_rows and rows % config.micro_rows:
            raise ValueError(f"{name} is {rows}, which is no multiple of micro_rows, {config.micro_rows}.")
    if config.device.startswith("cuda") and (config.context % 128 or (config.context + config.gap) % 128):
        lengths = f"{config.context} and {config.context + config.gap}"
        message = "masked attention gives NaN gradients otherwise (pytorch issue 196678)"
        raise ValueError(f"On CUDA a row's lengths, {lengths}, must be multiples of 128: {message}.")


def validation_batch(config: RunConfig, tokenizer: Tokenizer, num_rows: int = 64) -> Batch:
    """The same rows of held-out packages whatever the run: they compare runs and stages."""
    pack = read_pack(config.pack, "validation")
    rng = np.random.default_rng(12345)
    examples = [draw_example(pack, tokenizer, config.shape, rng) for _ in range(num_rows)]
    return collate(examples, config.shape, PLATEAU_NOISE, rng)


def validation_fims(config: RunConfig, tokenizer: Tokenizer, num_rows: int = 64) -> NDArray[np.int64]:
    """The baseline's rows of held-out packages. Their loss counts the context too: compare it with its own kind."""
    pack, rng = read_pack(config.pack, "validation"), np.random.default_rng(12345)
    return np.stack([draw_fim(pack, tokenizer, config.shape.computed + 1, rng) for _ in range(num_rows)])


def is_fim(config: RunConfig) -> bool:
    """Raises ValueError where there is no such objective."""
    if config.objective not in (*COPIES, "fim"):
        raise ValueError(f"There is no objective named {config.objective!r}; known: {', '.join(COPIES)}, fim.")
    return config.objective == "fim"


def embedded_config(config: RunConfig, vocab_size: int) -> EmbeddedConfig:
    transformer = TransformerConfig(
        vocab_size=vocab_size,
        dim=config.dim,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_heads,
        head_dim=config.head_dim,
        mlp_dim=config.mlp_dim,
    )
    longest = config.context + config.gap // 2
    return EmbeddedConfig(
        transformer,
        config.hole_span,
        max_context=longest,
        max_hole=min(config.gap, config.hole_span),
        causal="causal" in config.shape.copies,
    )


def _start(config: RunConfig, tokenizer: Tokenizer) -> tuple[Embedded, Progress]:
    if config.resume is None:
        model = Embedded(embedded_config(config, tokenizer.vocab_size))
        model.initialize(torch.Generator().manual_seed(config.seed))
        return model.to(config.device), Progress()
    loaded = checkpoint.load(config.resume, config.device)
    progress = progress_of(config.resume, loaded.config)
    if loaded.tokenizer.sha256 != tokenizer.sha256:
        raise ValueError(f"The weights in {config.resume} were trained with another tokenizer.")
    asked = embedded_config(config, tokenizer.vocab_size)
    for ours, theirs in ((asked.transformer, loaded.config.transformer), (asked.hole_span, loaded.config.hole_span)):
        if ours != theirs:
            raise ValueError(f"The weights in {config.resume} are of other sizes: {theirs}, where {ours} is asked for.")
    loaded.model.config = replace(loaded.config, causal=asked.causal)
    return loaded.model.train().requires_grad_(True), progress


def _record(config: RunConfig, tokenizer: Tokenizer) -> dict[str, str]:
    """What identifies the run: kept in every snapshot."""
    settings = {name: str(value) for name, value in asdict(config).items() if not isinstance(value, Path)}
    return {
        "pack_sha256": hash_pack(config.pack, "train"),
        "tokenizer_sha256": tokenizer.sha256,
        "settings": json.dumps(settings, sort_keys=True),
    }


@torch.no_grad()
def _assign(model: Embedded, values: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])
