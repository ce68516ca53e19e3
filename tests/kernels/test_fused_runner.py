"""Passes through the fused transformer against the same passes through torch's operators, at toy size."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from midfill_engine.loading.runtime import open_fused
from midfill_engine.models import fused
from midfill_engine.models.choice import Choice
from midfill_engine.models.fused import Sizes
from midfill_engine.models.fused_runner import FusedRunner, Mirror, Pool, Step, group_rows, why_not_fused
from midfill_engine.models.moe import MixtureOfExperts, MoEConfig
from midfill_engine.models.operators import OperatorsError, TorchOperators
from midfill_engine.models.packed import Pass, Result, run_packed
from midfill_engine.models.transformer import KeyValues, StackedKeys, Transformer, TransformerConfig, Yarn

QWEN_LIKE = TransformerConfig(
    vocab_size=70, dim=32, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16, mlp_dim=48,
    mlp="swiglu", norm_gain=True, qk_norm=False, attention_bias=True, tied_head=False,
)  # fmt: skip
ONE_LAYER = replace(QWEN_LIKE, num_layers=1)
LONG = 9
BUCKETS = (8, 16)
SMALL = Sizes(buckets=BUCKETS, long_rows=LONG, slots=16)


def draw(config: TransformerConfig, device: torch.device) -> Transformer:
    model = Transformer(config).to(device).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        scale = parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 1
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return model


def make_choice(num_rows: int, seed: int, **changes: object) -> Choice:
    """Two rules, and a token that some rows may not take."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(2, 66, generator=generator) > 0.3
    rule_of = torch.randint(0, 2, (num_rows,), generator=generator)
    barred = {5: torch.rand(num_rows, generator=generator) > 0.5}
    return Choice(allowed, rule_of, barred, needs_entropy=True, **changes)  # type: ignore[arg-type]


def make_pass(model: Transformer, length: int, past_length: int, seed: int, **changes: object) -> Pass:
    """`length` rows behind `past_length`, every other one wanted."""
    device = model.embedding.weight.device
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 70, (length + past_length,), generator=generator)
    positions = torch.arange(length + past_length)
    past: KeyValues | None = None
    if past_length:
        first = Pass(ids[:past_length], positions[:past_length], positions[:0], keeps=True)
        past = run_packed(model, [first], TorchOperators(device, torch.float32))[0].own
    wanted = torch.arange(0, length, 2)
    choice = make_choice(len(wanted), seed)
    made = Pass(ids[past_length:], positions[past_length:], wanted, past=past, choice=choice)
    return replace(made, **changes)  # type: ignore[arg-type]


def assert_same(found: Result, expected: Result) -> None:
    torch.testing.assert_close(found.hidden, expected.hidden, rtol=1e-3, atol=1e-3)
    assert (found.own is None) == (expected.own is None)
    for ours, theirs in zip(found.own or (), expected.own or (), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert (found.chosen is None) == (expected.chosen is None)
    if found.chosen is not None and expected.chosen is not None:
        assert torch.equal(found.chosen.ids, expected.chosen.ids)
        for name in ("confidence", "entropy"):
            torch.testing.assert_close(
                getattr(found.chosen, name), getattr(expected.chosen, name), rtol=1e-3, atol=1e-4
            )


def passes_of(model: Transformer) -> list[Pass]:
    """Every kind: with and without a past, long with both, without a choice, sampled, masked, with keys to keep."""
    sampled = make_choice(3, 4, temperature=0.7, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(4, 10, dtype=torch.bool).tril(diagonal=6)
    mask[2, 1] = False
    return [
        make_pass(model, 4, 7, 0),
        make_pass(model, 3, 0, 1, keeps=True),
        make_pass(model, LONG + 1, 0, 2, keeps=True),
        make_pass(model, LONG, 6, 3),
        make_pass(model, 6, 4, 4, choice=sampled),
        make_pass(model, 4, 6, 5, attention_mask=mask),
        make_pass(model, 2, 3, 6, choice=None),
    ]


@pytest.mark.parametrize(("last_seen", "sizes"), [((2, 2, 4, 4), [2, 2]), ((1, 5, 5, 5, 5), [1, 4]), ((3, 3, 3), [3])])
def test_passes_by_blocks_run_on_the_kernels(
    last_seen: tuple[int, ...], sizes: list[int], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, with the same bits beside other passes, and with as many blocks as a pass may have.
    The keys that it keeps have memory of their own.
    """
    model = draw(QWEN_LIKE, device)
    operators = TorchOperators(device, torch.float32)
    mask = torch.arange(-6, len(last_seen)) < torch.tensor(last_seen)[:, None]
    pass_ = make_pass(model, len(last_seen), 6, 5, attention_mask=mask, keeps=True)
    groups = group_rows(pass_)
    assert groups is not None and [group.num_rows for group in groups] == sizes
    monkeypatch.setattr(FusedRunner, "_run_torch", lambda *_: pytest.fail("by torch"))
    runner = FusedRunner(model, operators, replace(SMALL, blocks=len(sizes)))
    (alone,) = runner.run([pass_])
    assert_same(alone, run_packed(model, [pass_], operators)[0])
    _, beside, _ = runner.run([make_pass(model, 4, 7, 0), pass_, make_pass(model, 2, 0, 1)])
    assert torch.equal(alone.hidden, beside.hidden)
    assert isinstance(beside.own, StackedKeys)
    assert beside.own.keys.untyped_storage().nbytes() == 2 * beside.own.keys.nbytes


@pytest.mark.parametrize("seen", ["110 001 011", "100 110 101", "111 111 001", "001 111 111"])
def test_a_mask_that_is_not_by_blocks_has_no_groups(seen: str) -> None:
    mask = torch.tensor([[True] + [flag == "1" for flag in row] for row in seen.split()])
    rows = torch.arange(3)
    assert group_rows(Pass(rows, rows, rows, attention_mask=mask)) is None


LLADA2_LIKE = replace(
    QWEN_LIKE,
    num_heads=4,
    num_kv_heads=2,
    rope_dim=8,
    qk_norm=True,
    attention_bias=False,
    moe=MoEConfig(
        8, 3, 24, router="sigmoid", renormalize=True, scale=2.5, num_groups=4, num_chosen_groups=2, shared_dim=16,
        router_bias=True,
    ),
    num_dense_layers=1,
)  # fmt: skip
LLADA_MOE_LIKE = replace(ONE_LAYER, moe=MoEConfig(6, 2, 24))


@pytest.mark.parametrize("config", [LLADA2_LIKE, LLADA_MOE_LIKE])
def test_mixtures_of_experts_run_on_the_kernels(
    config: TransformerConfig, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps they compute every product, because torch's may change with the number of rows. Long passes, which torch
    computes, take the kernel for experts, a part of their rows at a time.
    """
    model = draw(config, device)
    operators = TorchOperators(device, torch.float32)
    passes = [
        make_pass(model, 7, 6, 0, keeps=True),
        make_pass(model, 5, 0, 1, keeps=True),
        make_pass(model, LONG, 3, 2),
    ]
    runner = FusedRunner(model, operators, SMALL)
    results, by_torch = runner.run(passes), run_packed(model, passes, operators)
    for found, theirs in zip(results, by_torch, strict=True):
        assert_same(found, theirs)
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", lambda *_: pytest.fail("by torch"))
        assert torch.equal(runner.run(passes[1:2])[0].hidden, results[1].hidden)
    monkeypatch.setattr(MixtureOfExperts, "mix", lambda *_: pytest.fail("by torch"))
    monkeypatch.setattr(fused, "ROW_BUCKETS", (4,))
    assert_same(runner.run(passes)[2], by_torch[2])


def test_passes_agree_with_torch(device: torch.device) -> None:
    model = draw(QWEN_LIKE, device)
    operators = TorchOperators(device, torch.float32)
    expected = run_packed(model, passes_of(model), operators)
    runner = FusedRunner(model, operators, SMALL)
    for found, theirs in zip(runner.run(passes_of(model)), expected, strict=True):
        assert_same(found, theirs)
    key = model.blocks[0].attention.k.weight  # type: ignore[union-attr]
    assert isinstance(key, torch.Tensor)
    assert key.untyped_storage().nbytes() > key.nbytes, "shared, not copied"


def test_a_pass_has_the_same_bits_alone(device: torch.device) -> None:
    model = draw(ONE_LAYER, device)
    runner = FusedRunner(model, TorchOperators(device, torch.float32), SMALL)
    passes = [make_pass(model, 4, 7, 0), make_pass(model, 3, 0, 1), make_pass(model, LONG, 6, 3)]
    for result, step in zip(runner.run(passes), passes, strict=True):
        (alone,) = runner.run([step])
        assert torch.equal(alone.hidden, result.hidden)
        assert alone.chosen is not None and result.chosen is not None
        assert torch.equal(alone.chosen.confidence, result.chosen.confidence)


def test_steps_follow_each_other_on_the_same_memory(device: torch.device) -> None:
    """Results of a step stay as they are when the next one runs, and a longer past finds room."""
    model = draw(ONE_LAYER, device)
    operators = TorchOperators(device, torch.float32)
    runner = FusedRunner(model, operators, SMALL)
    steps = [[make_pass(model, BUCKETS[0], past, seed, keeps=True)] for seed, past in enumerate((5, 30, 0))]
    found = [runner.run(step)[0] for step in steps]
    for result, step in zip(found, steps, strict=True):
        assert_same(result, run_packed(model, step, operators)[0])
    runner.free_memory()
    assert_same(runner.run(steps[1])[0], found[1])


def test_more_rows_and_rules_than_one_step_holds(device: torch.device) -> None:
    model = draw(ONE_LAYER, device)
    operators = TorchOperators(device, torch.float32)
    passes = [make_pass(model, length, 3, length) for length in (5, 6, 8)]
    runner = FusedRunner(model, operators, replace(SMALL, rules=6))
    for found, theirs in zip(runner.run(passes), run_packed(model, passes, operators), strict=True):
        assert_same(found, theirs)


def test_a_pass_of_too_many_rules_is_computed_all_the_same(device: torch.device) -> None:
    model = draw(ONE_LAYER, device)
    operators = TorchOperators(device, torch.float32)
    step = make_pass(model, 6, 3, 0)
    runner = FusedRunner(model, operators, replace(SMALL, rules=2))
    assert_same(runner.run([step])[0], run_packed(model, [step], operators)[0])


def test_a_past_is_copied_once_for_as_long_as_it_is_the_same(
    device: torch.device, record_calls: Callable[..., list[Any]]
) -> None:
    copies = record_calls(Pool, "_copy")
    model = draw(ONE_LAYER, device)
    runner = FusedRunner(model, TorchOperators(device, torch.float32), SMALL)
    step = make_pass(model, 2, 6, 0)
    for _ in range(3):
        runner.run([step])
    assert len(copies) == 1


class OnDevice(torch.Tensor):
    """A tensor as of a device: whatever takes its values to the host is counted."""

    WAITS = ("cpu", "to", "tolist", "item", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__array__")
    waits = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_copy = func.__name__ == "copy_" and not isinstance(args[0], cls)
        OnDevice.waits += is_copy or func.__name__ in cls.WAITS
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_step_waits_once_for_the_device_and_sends_it_one_copy(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, record_calls: Callable[..., list[Any]]
) -> None:
    sent, compute = record_calls(Mirror, "send"), Step._compute

    def marked(self: Step) -> tuple[torch.Tensor, torch.Tensor]:
        states, numbers = compute(self)
        return states.as_subclass(OnDevice), numbers.as_subclass(OnDevice)  # type: ignore[return-value]

    monkeypatch.setattr(Step, "_compute", marked)
    model = draw(ONE_LAYER, device)
    runner = FusedRunner(model, TorchOperators(device, torch.float32), SMALL)
    passes = [make_pass(model, 4, 7, 0, keeps=True), make_pass(model, 3, 0, 1, shows_states=False)]
    for copies in (2, 1):  # the schedule is new at first
        sent.clear()
        OnDevice.waits = 0
        results = runner.run(passes)
        assert (OnDevice.waits, len(sent)) == (1, copies)
        assert [len(result.hidden) for result in results] == [2, 0]


def test_results_are_there_once_they_are_waited_for(device: torch.device) -> None:
    model = draw(ONE_LAYER, device)
    runner = FusedRunner(model, TorchOperators(device, torch.float32), SMALL)
    expected = run_packed(model, passes_of(model), TorchOperators(device, torch.float32))
    for found, theirs in zip(runner.launch(passes_of(model))(), expected, strict=True):
        assert_same(found, theirs)
    assert runner.launch([])() == []


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_check_fails_for_a_model_whose_states_differ(device: torch.device, is_causal: bool) -> None:
    model = draw(ONE_LAYER, device)
    runner = FusedRunner(model, TorchOperators(device, torch.float32), SMALL)
    runner.check(is_causal=is_causal)
    model.final_norm.weight = torch.nn.Parameter(-model.final_norm.weight, requires_grad=False)  # type: ignore[operator]
    with pytest.raises(OperatorsError, match="differ from torch's"):
        runner.check(is_causal=is_causal)


def test_the_check_of_a_mixture_in_bf16_bears_rows_that_take_other_experts(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their states are as far from torch's as torch's own from those in fp32; a kernel that is wrong is found."""
    moe = MoEConfig(16, 4, 24, router="sigmoid", renormalize=True, scale=2.5, shared_dim=16)
    config = replace(QWEN_LIKE, num_layers=3, moe=moe, num_dense_layers=1)
    model = draw(config, device).to(torch.bfloat16)
    runner = FusedRunner(model, TorchOperators(device, torch.bfloat16), replace(SMALL, buckets=(32,), long_rows=24))
    runner.check()
    experts = model.blocks[1].mlp
    assert isinstance(experts, MixtureOfExperts)
    by_torch = copy.deepcopy(experts)
    experts.down.neg_()
    monkeypatch.setattr(experts, "mix", by_torch.mix)
    with pytest.raises(OperatorsError, match="differ from torch's"):
        runner.check()


def test_the_reason_why_a_model_is_not_fused_is_named() -> None:
    assert why_not_fused(QWEN_LIKE) is None
    assert why_not_fused(replace(QWEN_LIKE, yarn=Yarn(4.0, 64))) == "it stretches positions"
    assert why_not_fused(replace(QWEN_LIKE, mlp="relu2")) == "its MLPs are not gated"
    assert why_not_fused(replace(QWEN_LIKE, head_dim=12)) == "its heads are 12 wide"


def test_kernels_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(OperatorsError, match="need a GPU"):
        open_fused(Transformer(QWEN_LIKE), TorchOperators(torch.device("cpu"), torch.float32))
