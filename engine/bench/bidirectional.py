"""Makes the one trained bidirectional model that can be had without a download: the embedded one, trained on a little
with its context seeing its gaps. Knows the trainer's rows; no caches, no requests.

    PYTHONPATH=engine:kernels python -m bench.bidirectional CORPUS FILE [--steps 120]

Published bidirectional models are a thousand times larger; what caches change is measured on this one for want of them.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor

from midfill_engine.families.embedded import Embedded
from midfill_engine.loading.runtime import Runtime, load_runtime
from midfill_engine.tokens.special import PAD
from training.data.pack import read_pack, write_pack
from training.data.rows import AS_REQUESTED, Noise, RowShape, collate, draw_example
from training.objective import TensorBatch, to_device
from training.optimizer import make_optimizers, momentum_at, rate_factor, set_rates

CPU: Final = torch.device("cpu")
ROWS: Final = 8
MUON_LR: Final = 0.002
ADAM_LR: Final = 3e-4


def nats(model: Embedded, batch: TensorBatch) -> Tensor:
    """Mean cross-entropy of what is masked, where every position sees every other."""
    ids = torch.cat((batch.context_ids, batch.gap_ids[:, 0]), dim=1)
    context = batch.context_positions[:, None].expand(-1, 2, -1)
    positions = torch.cat((context, batch.gap_positions[:, 0]), dim=2)
    hidden, _ = model.transformer(ids, model.by_head(positions), mask=(ids != PAD)[:, None, None])
    asked = hidden[:, batch.context_ids.shape[1] :].flatten(0, 1)[batch.places]
    weights, targets = batch.weights.flatten()[batch.places], batch.targets.flatten()[batch.places]
    return F.cross_entropy(model.transformer.logits(asked), targets, reduction="none") @ weights / batch.weight_sum


def train(runtime: Runtime, corpus: Path, num_steps: int) -> None:
    """Trains the runtime's weights in place."""
    model, config = runtime.loaded.model, runtime.loaded.config
    shape = RowShape(config.max_context, config.max_hole, config.hole_span, ("masked",))
    with tempfile.TemporaryDirectory() as folder:
        write_pack(corpus, runtime.loaded.tokenizer, Path(folder), 4_000_000)
        pack = read_pack(Path(folder), "train")
    optimizers = make_optimizers(model.train().requires_grad_(True), MUON_LR, ADAM_LR)
    started, shown = time.process_time(), 0.0
    for step in range(num_steps):
        rng = np.random.default_rng((7, step))
        examples = [draw_example(pack, runtime.loaded.tokenizer, shape, rng, AS_REQUESTED) for _ in range(ROWS)]
        loss = nats(model, to_device(collate(examples, shape, Noise(), rng), CPU))
        set_rates(optimizers, rate_factor(step, step / num_steps, warmup_steps=20, cooldown=0.5))
        optimizers[0].param_groups[0]["momentum"] = momentum_at(step)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        shown += float(loss.detach())
        if step % 20 == 19:
            print(f"step {step + 1}: {shown / 20:.3f} nats, {time.process_time() - started:.0f} CPU s", flush=True)
            shown = 0.0
    model.eval().requires_grad_(False)


def open_bidirectional(weights: Path) -> Runtime:
    """The embedded model's shape and tokenizer with such weights, every position seeing every other."""
    runtime = load_runtime("embedded", "cpu", dtype="fp32")
    runtime.loaded.model.load_state_dict(torch.load(weights, weights_only=True))
    family = replace(
        runtime.family, attention="bidirectional", cache="none", lengths="fixed", experts=(), certainty=None
    )
    return replace(runtime, family=family)


def main(
    corpus: Annotated[Path, typer.Argument(help="a folder of LANGUAGE-NN.jsonl.xz")],
    file: Annotated[Path, typer.Argument(help="where the weights go")],
    steps: Annotated[int, typer.Option(help="of 8 rows")] = 120,
) -> None:
    """The embedded model, trained on as a bidirectional one, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    runtime = load_runtime("embedded", "cpu", dtype="fp32")
    train(runtime, corpus, steps)
    torch.save(runtime.loaded.model.state_dict(), file)


if __name__ == "__main__":
    typer.run(main)
