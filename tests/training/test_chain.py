"""The whole recipe at toy size: causal, spans, cooldown, resume, export, and the engine fills with the result."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.engine.fakes import drain_work
from torch.nn.functional import cross_entropy

from midfill_engine.denoising.causal import Reader, score_fills
from midfill_engine.denoising.outline import encode_before_space
from midfill_engine.families.embedded import Embedded, lay_out
from midfill_engine.loading import checkpoint
from midfill_engine.loading.runtime import Runtime
from midfill_engine.tokens.special import EOS
from midfill_engine.tokens.tokenizer import Tokenizer
from training.baseline import MAX_NEW_TOKENS, Baseline, evaluate_baseline
from training.data.pack import hash_pack, read_pack, sets_of
from training.data.rows import AS_REQUESTED, DEFAULT_MIX, Batch, Copy, Noise, collate, draw_example
from training.evaluate import Gap, evaluate
from training.export import export, write_sources
from training.lengths import refit
from training.objective import span_hidden, span_loss, to_device
from training.optimizer import orthogonalize, rate_factor
from training.train import RunConfig, _Run, check_rows, embedded_config, train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def finished(config: RunConfig) -> RunConfig:
    train(config)
    return config


@pytest.fixture
def model(config: RunConfig, tokenizer: Tokenizer) -> Embedded:
    made = Embedded(embedded_config(config, tokenizer.vocab_size))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
    return made


@pytest.fixture
def batch(config: RunConfig, tokenizer: Tokenizer) -> Batch:
    rng = np.random.default_rng(1)
    pack = read_pack(config.pack, "validation")
    return collate([draw_example(pack, tokenizer, config.shape, rng) for _ in range(4)], config.shape, Noise(), rng)


def read_log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_run_learns_through_every_stage(finished: RunConfig) -> None:
    rows = read_log(finished.out)
    assert {row.get("stage") for row in rows} >= {"causal", "spans", "cooldown"}
    saved = [row for row in rows if "saved" in row]
    assert saved[-1]["validation_nats"] < 0.8 * rows[0]["token_nats"]


def test_resumed_run_goes_on(finished: RunConfig, tmp_path: Path) -> None:
    before = [row for row in read_log(finished.out) if "saved" in row][-1]
    progress = train(replace(finished, out=tmp_path, resume=finished.out / "snapshot", num_steps=20))
    rows = read_log(tmp_path)
    assert rows[0]["step"] == before["step"] + 1 and progress.tokens > before["tokens"]
    assert {row.get("stage") for row in rows} <= {"spans", "cooldown", None}
    assert [row for row in rows if "saved" in row][-1]["validation_nats"] < before["validation_nats"] + 0.3


def test_a_snapshot_alone_can_be_exported(finished: RunConfig, tmp_path: Path) -> None:
    """What is brought back from another machine: no log beside it, maybe no average."""
    with pytest.raises(ValueError, match="no snapshot yet"):
        export(tmp_path, tmp_path / "none", "toy")
    for name in ("snapshot", "snapshot-average"):
        shutil.copytree(finished.out / name, tmp_path / name)
        assert export(tmp_path, tmp_path / f"from-{name}", "toy") in ("snapshot", name)
    saved = [row for row in read_log(finished.out) if "saved" in row][-1]
    best = min(saved["validation_nats"], saved["validation_nats_average"])
    assert checkpoint.load(tmp_path / "from-snapshot-average").config.training["validation_nats"] == best


def test_a_loss_that_is_no_number_leaves_the_last_snapshots(
    finished: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(finished.out, tmp_path / "run")
    before = (out / "snapshot/state.json").read_text()
    monkeypatch.setattr(_Run, "_validate", lambda self: float("nan"))
    with pytest.raises(ValueError, match="no number at step"):
        train(replace(finished, out=out, resume=out / "snapshot", num_steps=2))
    assert (out / "snapshot/state.json").read_text() == before


def test_a_step_whose_loss_is_no_number_ends_the_run_at_once(
    finished: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the steps from one line of the log to the next, not at the next snapshot."""
    out, step = shutil.copytree(finished.out, tmp_path / "run"), _Run._step

    def break_step(run: _Run, *arguments: Any) -> Any:
        losses, norm = step(run, *arguments)
        return replace(losses, total=losses.total * float("nan")), norm

    monkeypatch.setattr(_Run, "_step", break_step)
    before = (out / "snapshot/state.json").read_text()
    with pytest.raises(ValueError, match="no number at step"):
        train(replace(finished, out=out, resume=out / "snapshot", num_steps=10**6))
    assert (out / "snapshot/state.json").read_text() == before


def test_a_run_ends_at_the_moment_it_is_given(finished: RunConfig, tmp_path: Path) -> None:
    train(replace(finished, out=tmp_path / "run", num_steps=0, deadline_s=600.0, end_at_s=time.time() - 1))
    assert read_log(tmp_path / "run")[-1]["saved"] == "snapshot"


def test_lengths_that_a_gpu_computes_wrong_are_refused(finished: RunConfig) -> None:
    with pytest.raises(ValueError, match="96 and 352, must be multiples of 128"):
        check_rows(replace(finished, device="cuda", context=96, gap=256))
    check_rows(replace(finished, device="cuda", context=512, gap=256))


def test_a_set_that_arrives_is_in_the_record(
    finished: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = shutil.copytree(finished.pack, tmp_path / "pack")
    waiting = shutil.copytree(sets_of(pack, "train")[-1], tmp_path / "waiting")
    alone, validate = hash_pack(pack, "train"), _Run._validate

    def arrive(run: _Run) -> float:
        if waiting.exists():
            waiting.rename(pack / "set-99")
        return validate(run)

    monkeypatch.setattr(_Run, "_validate", arrive)
    options = replace(finished, pack=pack, out=tmp_path / "run", resume=finished.out / "snapshot", num_steps=2)
    recorded = train(options).record["pack_sha256"]
    assert recorded == hash_pack(pack, "train") == read_pack(pack, "train").sha256 != alone


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"hole_span": 96}, "other sizes: 64, where 96"), ({"dim": 64}, "other sizes"), ({"rows": 6}, "no multiple")],
)
def test_options_that_do_not_fit_are_refused(
    finished: RunConfig, tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(replace(finished, out=tmp_path, resume=finished.out / "snapshot", num_steps=1, **changes))  # type: ignore[arg-type]


def test_baseline_learns_and_fills(finished: RunConfig, tokenizer: Tokenizer, tmp_path: Path) -> None:
    train(replace(finished, out=tmp_path, objective="fim", num_steps=40))
    rows = read_log(tmp_path)
    assert {str(row["stage"]) for row in rows if "stage" in row} == {"fim", "cooldown"}
    assert [row for row in rows if "saved" in row][-1]["validation_nats"] < 0.8 * rows[0]["token_nats"]
    report = evaluate_baseline(tmp_path / "snapshot", finished.pack, num_gaps=8, context=96)
    assert 0 < report.bits_per_byte < 8 and report.interval_own[0] <= report.exact_own <= report.interval_own[1]


def test_baseline_decodes_as_it_scores(finished: RunConfig, tmp_path: Path) -> None:
    """The cached greedy fill is what repeated full passes choose, of what may stand there; a count is kept."""
    export(finished.out, tmp_path, "toy")
    baseline = Baseline(tmp_path, context=64)
    gap = Gap("python", "def add(a, b):\n    total =    ", "", "\n    return total\n")
    ids, _, lead, tail = baseline.parts(gap)
    given = encode_before_space(baseline.tokenizer.encode, 3)
    assert lead == " " * 4 and baseline.tokenizer.decode(given) == " " * 3
    for num_tokens in (None, len(given) + 1, len(given) + 7):
        found = list(given)
        while len(found) < (num_tokens or MAX_NEW_TOKENS):
            full = torch.tensor([[*ids, *found]])
            hidden, _ = baseline.transformer(full, torch.arange(full.shape[1])[None], causal=True)
            scores = baseline.transformer.logits(hidden[0, -1])
            first = found == given
            allowed = baseline.vocabulary.allowed(leading=" " if first else "", may_delete=num_tokens is None)
            found.append(int(scores.masked_fill(~allowed, -torch.inf).argmax()))
            if found[-1] == EOS:
                found.pop()
                break
        text = baseline.tokenizer.decode_bytes(found).decode("utf-8", errors="ignore")
        assert baseline.fill(gap, num_tokens) == text.removeprefix(lead) + tail


def test_baseline_knows_what_a_length_saves(finished: RunConfig, tmp_path: Path) -> None:
    """Given their number, tokens cost less: no end is paid for, and none is expected."""
    export(finished.out, tmp_path, "toy")
    baseline = Baseline(tmp_path)
    gap = Gap("python", "x = ", "y + 1", "\nz = x\n")
    prompt, middle, _, _ = baseline.parts(gap)
    ids = torch.tensor([[*prompt, *middle]])
    hidden, _ = baseline.transformer(ids, torch.arange(ids.shape[1])[None], causal=True)
    shares = baseline.transformer.logits(hidden[0, len(prompt) - 1 :]).double().log_softmax(-1)
    ends = [float(row[EOS].exp()) for row in shares]
    spent = -sum(float(row[token]) for row, token in zip(shares, [*middle, EOS], strict=True))
    assert baseline.nats(gap) == pytest.approx(spent, rel=1e-4)
    saved = -float(shares[-1, EOS]) - sum(np.log1p(-np.array(ends[:-1])))
    assert baseline.nats(gap, knows_length=True) == pytest.approx(spent - saved, rel=1e-4)


def test_other_tokenizer_is_refused(finished: RunConfig, tmp_path: Path) -> None:
    checkpoint.make_random(tmp_path)
    with pytest.raises(ValueError, match="another tokenizer"):
        train(replace(finished, tokenizer=tmp_path / "tokenizer.json", resume=finished.out / "snapshot"))


def test_export_records_the_run_and_keeps_the_weights(finished: RunConfig, tmp_path: Path) -> None:
    chosen = export(finished.out, tmp_path, "toy")
    loaded = checkpoint.load(tmp_path)
    assert loaded.config.name == "toy" and loaded.config.training["snapshot"] == chosen
    original = checkpoint.load(finished.out / chosen).model.state_dict()
    assert all(torch.equal(value, original[name]) for name, value in loaded.model.state_dict().items())


def test_engine_fills_with_the_export(finished: RunConfig, tmp_path: Path) -> None:
    export(finished.out, tmp_path, "toy")
    report = evaluate(tmp_path, finished.pack, num_gaps=12, context=96)
    assert 0 < report.bits_per_byte < 8
    assert report.interval_own[0] <= report.exact_own <= report.interval_own[1]


def test_weights_are_cut_into_parts(
    model: Embedded, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_PART_BYTES", 60_000)
    checkpoint.save(tmp_path, model, tokenizer, "float32")
    parts = sorted(tmp_path.glob("*.safetensors"))
    assert len(parts) > 1 and all(part.stat().st_size < 65_000 for part in parts)
    loaded = checkpoint.load(tmp_path).model.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())
    monkeypatch.undo()
    checkpoint.save(tmp_path, model, tokenizer, "float32")
    assert sorted(path.name for path in tmp_path.glob("model*")) == ["model.safetensors"]


def test_int8_costs_little(model: Embedded, batch: Batch, tokenizer: Tokenizer, tmp_path: Path) -> None:
    checkpoint.save(tmp_path, model, tokenizer, "int8")
    with torch.no_grad():
        exact = span_loss(model, to_device(batch, CPU)).token
        rounded = span_loss(checkpoint.load(tmp_path).model, to_device(batch, CPU)).token
    assert abs(exact - rounded) < 0.05


def test_gap_never_changes_context(model: Embedded, batch: Batch) -> None:
    changed = replace(batch, gap_ids=np.where(batch.gap_ids > 15, 20, batch.gap_ids))
    assert (changed.gap_ids != batch.gap_ids).any()
    with torch.no_grad():
        context, gaps = span_hidden(model, to_device(batch, CPU))
        changed_context, changed_gaps = span_hidden(model, to_device(changed, CPU))
    assert torch.equal(context, changed_context)
    assert not torch.equal(gaps, changed_gaps)


def test_copies_do_not_see_each_other(model: Embedded, batch: Batch) -> None:
    ids = batch.gap_ids.copy()
    ids[:, 1] = np.where(ids[:, 1] > 15, 20, ids[:, 1])
    with torch.no_grad():
        _, gaps = span_hidden(model, to_device(batch, CPU))
        _, changed = span_hidden(model, to_device(replace(batch, gap_ids=ids), CPU))
    assert torch.equal(gaps[:, 0], changed[:, 0])


def test_training_pass_equals_cached_step(model: Embedded, batch: Batch) -> None:
    tensors = to_device(batch, CPU)
    row = 0
    num_context, num_gap = int((tensors.context_ids[row] > 0).sum()), int((tensors.gap_ids[row, 0] > 0).sum())
    with torch.no_grad():
        _, gaps = span_hidden(model, tensors)
        _, keys = model.encode_context(
            tensors.context_ids[row : row + 1, :num_context], tensors.context_positions[row : row + 1, :num_context]
        )
        stepped = model.step(
            tensors.gap_ids[row : row + 1, 0, :num_gap], tensors.gap_positions[row : row + 1, 0, :, :num_gap], keys
        )
        trained = model.transformer.logits(gaps[row, 0, :num_gap])
    torch.testing.assert_close(stepped[0], trained, atol=1e-4, rtol=1e-4)


def test_orthogonalized_matrices_are_nearly_orthogonal() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((2, 16, 64), (2, 64, 16)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(shape, generator=generator)))
        assert values.min() > 0.5 and values.max() < 1.3


def test_rate_warms_up_and_cools_down() -> None:
    assert rate_factor(0, 0.0, 10, 0.3) == pytest.approx(0.1)
    assert rate_factor(50, 0.5, 10, 0.3) == 1.0
    assert rate_factor(50, 0.85, 10, 0.3) == pytest.approx(0.525)
    assert rate_factor(50, 1.2, 10, 0.3) == pytest.approx(0.05)


def test_refitted_length_head_is_no_worse(finished: RunConfig, tmp_path: Path) -> None:
    export(finished.out, tmp_path, "toy")
    before = checkpoint.load(tmp_path).model
    fitted = refit(tmp_path, finished.pack, num_rows=320)
    after = checkpoint.load(tmp_path).model
    assert fitted.after < 3.18
    assert torch.equal(before.length_head.weight, after.length_head.weight) == (fitted.after >= fitted.before)
    assert torch.equal(before.transformer.embedding.weight, after.transformer.embedding.weight)


def test_rows_have_few_gaps_where_requests_are_meant(config: RunConfig, tokenizer: Tokenizer) -> None:
    pack, most = read_pack(config.pack, "train"), {}
    for mix in (AS_REQUESTED, DEFAULT_MIX):
        rng = np.random.default_rng(3)
        most[mix] = max(len(draw_example(pack, tokenizer, config.shape, rng, mix).gaps) for _ in range(40))
    assert most[AS_REQUESTED] <= 3 < most[DEFAULT_MIX]


def test_sources_name_every_package(pack_folder: Path, tmp_path: Path) -> None:
    names = (*read_pack(pack_folder, "train").package_names, "unused")
    rows = [f"{name}\t1.0\tMIT" for name in names]
    (tmp_path / "sources.tsv").write_text("\n".join(["name\tversion\tlicence", *rows]) + "\n")
    assert write_sources(tmp_path / "sources.tsv", pack_folder, tmp_path / "used.tsv") == len(names) - 1
    assert "unused" not in (tmp_path / "used.tsv").read_text()
    (tmp_path / "sources.tsv").write_text("name\tversion\tlicence\n" + rows[0] + "\n")
    with pytest.raises(ValueError, match="names no source of"):
        write_sources(tmp_path / "sources.tsv", pack_folder, tmp_path / "used.tsv")


@pytest.mark.parametrize("copies", [("causal", "masked"), ("tokens", "queries", "masked")])
def test_causal_copies_see_their_own_past_alone(
    copies: tuple[Copy, ...], model: Embedded, config: RunConfig, tokenizer: Tokenizer
) -> None:
    """A change of one token reaches the positions behind it in its gap, in its own kind of copy; and no context."""
    rng, pack = np.random.default_rng(2), read_pack(config.pack, "validation")
    shape, place = replace(config.shape, copies=copies), 2
    hybrid = collate([draw_example(pack, tokenizer, shape, rng) for _ in range(4)], shape, Noise(), rng)
    ids = hybrid.gap_ids.copy()
    ids[:, 0, place] = np.where(ids[:, 0, place] == 20, 21, 20)
    with torch.no_grad():
        context, gaps = span_hidden(model, to_device(hybrid, CPU))
        context_after, gaps_after = span_hidden(model, to_device(replace(hybrid, gap_ids=ids), CPU))
    assert torch.equal(context, context_after)
    moved = (gaps != gaps_after).any(dim=-1).numpy()
    is_behind = hybrid.ranks >= hybrid.ranks[:, :1, place, None]
    wanted = (hybrid.sees == hybrid.groups[:, :1, place, None]) & is_behind
    assert (moved == wanted).all() and moved[:, :-1].any() and not moved[:, -1].any()


def test_a_hybrid_run_resumes_an_exported_checkpoint(finished: RunConfig, tmp_path: Path) -> None:
    export(finished.out, tmp_path / "shipped", "toy")
    steps = checkpoint.load(tmp_path / "shipped").config.training["steps"]
    options = {"resume": tmp_path / "shipped", "num_steps": 6, "objective": "hybrid", "bf16": True}
    progress = train(replace(finished, out=tmp_path / "run", **options))
    assert progress.step == steps + 6 and checkpoint.load(tmp_path / "run" / "snapshot").config.causal
    assert not checkpoint.load(finished.out / "snapshot").config.causal


def test_the_engine_scores_what_the_hybrid_learns(config: RunConfig, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The likelihood of a fill in the engine is the loss of the causal copy, whatever else is in the forward."""
    hybrid = replace(config, objective="hybrid")
    model = Embedded(embedded_config(hybrid, tokenizer.vocab_size))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=parameter.shape[-1] ** -0.5)
    checkpoint.save(tmp_path, model, tokenizer, "float32")
    runtime = Runtime.of(checkpoint.load(tmp_path), "toy")
    rng, pack = np.random.default_rng(2), read_pack(config.pack, "validation")
    example = next(e for e in iter(lambda: draw_example(pack, tokenizer, hybrid.shape, rng), None) if len(e.gaps) > 1)
    batch = to_device(collate([example], hybrid.shape, Noise(), rng), CPU)
    layout = lay_out([len(text) for text in example.texts], [1] * len(example.gaps), config.hole_span)
    with torch.no_grad():
        logits = model.transformer.logits(span_hidden(model, batch)[1][0, 0])
        ids = torch.tensor([[token for text in example.texts for token in text]])
        _, keys = model.encode_context(ids, layout.context_positions[None])
    logits[:, ~runtime.vocabulary.allowed(may_delete=True)] = -torch.inf
    nats = cross_entropy(logits, batch.targets[0, 0], reduction="none")
    reader = Reader(runtime, keys, layout.hole_positions[0].tolist())
    fills, used = list(enumerate(example.gaps)), 0
    together = drain_work(runtime, score_fills(reader, fills))
    for (hole, gap), found in zip(fills, together, strict=True):
        assert found == pytest.approx(-float(nats[used : used + len(gap) + 1].sum()), rel=1e-4)
        assert drain_work(runtime, score_fills(reader, [(hole, gap)])) == [found]
        used += len(gap) + 1
