"""A small autoregressive model that reads a diffusion model's proposals (FlashDLM, arXiv 2505.21467, guided diffusion).

Knows ids, both models' vocabularies and a canvas's line of tokens; no sampler, no request. The supervisor has the same
vocabulary. Where its tokenizer has fill-in-the-middle tokens and there is one hole, it reads the text behind it first.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from midfill_engine.checkpoint_files import CheckpointError, CheckpointFiles
from midfill_engine.loading import hub
from midfill_engine.loading.hub import LoadedHubModel
from midfill_engine.models.choice import Choice
from midfill_engine.models.family import Family, Markers, SpecialTokens
from midfill_engine.models.operator_choice import choose_operators
from midfill_engine.models.operators import Operators
from midfill_engine.models.packed import Pass, Result, run_packed
from midfill_engine.models.shapes import (
    LLAMA_TENSORS,
    TINY,
    read_llama_shape,
    read_markers,
    read_qwen2_shape,
    read_qwen3_shape,
)
from midfill_engine.models.transformer import KeyValues
from midfill_engine.tokens.vocabulary import Vocabulary

_SHAPES: Final = {"llama": read_llama_shape, "qwen2": read_qwen2_shape, "qwen3": read_qwen3_shape}
SUPERVISORS: Final = {
    name: Family(
        name=name,
        attention="bidirectional",  # passes bring the causal mask themselves
        logit_shift=1,
        shape=shape,
        tensors=LLAMA_TENSORS,
        tokens=lambda files: SpecialTokens(mask_id=-1, special_ids=()),
        context_window=32768,
        example={**TINY, "model_type": name},
        added_tokens=("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    )
    for name, shape in _SHAPES.items()
}


@dataclass(frozen=True)
class Guide:
    """`opening` stands before everything, `markers` are the fill-in-the-middle tokens, if it has some."""

    loaded: LoadedHubModel
    operators: Operators
    opening: tuple[int, ...]
    markers: Markers | None

    @property
    def max_tokens(self) -> int:
        return self.loaded.config.max_context

    def run(self, passes: list[Pass]) -> list[Result]:
        return run_packed(self.loaded.model.transformer, passes, self.operators)

    def prompt(self, pieces: list[list[int]], specials: frozenset[int]) -> "Prompt":
        """What it reads of the context `pieces`, whose special ids are another model's and left out."""
        texts = [[token for token in piece if token not in specials] for piece in pieces]
        if self.markers is None or len(texts) != 2 or not texts[1]:
            return Prompt([*self.opening, *texts[0]], texts[1:])
        return Prompt([*self.opening, *self.markers.lay(texts[0], texts[1])], [[]])

    def count_bytes(self, num_tokens: int) -> int:
        """What reading `num_tokens` holds: keys, values and states."""
        shape = self.loaded.config.transformer
        size = self.loaded.dtype.itemsize
        a_token = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim + 8 * shape.dim + 2 * shape.mlp_dim
        return num_tokens * a_token * size


@dataclass(frozen=True)
class Prompt:
    """`start` is the same in every step; `between[i]` stands behind hole i."""

    start: list[int]
    between: list[list[int]]


@dataclass
class Supervision:
    """One row's: what it was shown last, and the keys of the prompt."""

    guide: Guide
    prompt: Prompt
    asked: list[int] = field(default_factory=list)  # the canvas positions that it was asked about, in order
    _keys: KeyValues | None = None

    def ask(self, holes: list[list[tuple[int, int, bool]]]) -> Pass | None:
        """`holes` has of every position of every hole the place, the token and whether that is a proposal, in order.

        A negative token is unknown; nothing is asked from there on. None where there is nothing to ask.
        """
        line, drafts = list(self.prompt.start), list[tuple[int, int]]()  # (index in line, place)
        is_open = True
        for hole, behind in zip(holes, self.prompt.between, strict=True):
            for place, token, is_draft in hole:
                is_open = is_open and token >= 0
                if is_open:
                    drafts += [(len(line), place)] if is_draft else []
                    line.append(token)
            line += behind if is_open else []
        self.asked = [place for _, place in drafts]
        if not drafts or drafts[0][0] == 0 or drafts[-1][0] > self.guide.max_tokens:
            self.asked = []
            return None
        line = line[: drafts[-1][0] + 1]
        return self._pass(line, [index for index, _ in drafts])

    def _pass(self, line: list[int], drafts: list[int]) -> Pass:
        start = 0 if self._keys is None else len(self.prompt.start) - 1
        ids, places = torch.tensor(line), torch.tensor(drafts)
        rows = torch.arange(start, len(line) - 1)  # what follows the last proposal nobody asks
        num_tokens = self.guide.loaded.config.transformer.vocab_size
        choice = Choice(
            allowed=torch.ones(1, num_tokens, dtype=torch.bool),
            rule_of=torch.zeros(len(drafts), dtype=torch.int64),
            asked=ids[places],
        )
        return Pass(
            ids=ids[rows],
            positions=rows,
            wanted=places - 1 - start,
            past=self._keys,
            mask=torch.arange(len(line) - 1)[None] <= rows[:, None],
            keeps=self._keys is None and len(self.prompt.start) > 1,
            choice=choice,
            by_guide=True,
        )

    def agreed(self, result: Result, quality: float, num_places: int) -> Tensor:
        """[1, T]: the proposals, from the left, that it gives at least `quality` times what it gives its own best."""
        assert result.chosen is not None and result.chosen.asked is not None
        if result.own is not None:
            end = len(self.prompt.start) - 1
            self._keys = [(key[:, :, :end].clone(), value[:, :, :end].clone()) for key, value in result.own]
        is_likely = result.chosen.asked >= quality * result.chosen.confidence
        agreed = torch.zeros(1, num_places, dtype=torch.bool)
        agreed[0, torch.tensor(self.asked)] = is_likely.long().cumprod(dim=0).bool()
        return agreed


def load_guide(folder: Path, vocabulary: Vocabulary, device: torch.device, dtype: torch.dtype, operators: str) -> Guide:
    """Raises CheckpointError for a model that is not autoregressive, or that has other tokens than `vocabulary`."""
    files = CheckpointFiles(folder)
    family = SUPERVISORS.get(files.config.get("model_type", ""))
    if family is None:
        known = ", ".join(SUPERVISORS)
        raise CheckpointError(f"The supervisor at {folder} is none of the types that are known: {known}.")
    loaded = hub.load(files, family, device, dtype)
    theirs = loaded.tokenizer
    if any(
        piece and (index >= theirs.vocab_size or theirs.token_bytes(index) != piece)
        for index, piece in enumerate(vocabulary.pieces)
    ):
        raise CheckpointError(f"The supervisor at {folder} has another vocabulary than the model that it is to guide.")
    bos = files.role("bos") if files.tokenizer_config.get("add_bos_token") else None
    chosen = choose_operators(operators, device, dtype)
    return Guide(loaded, chosen, () if bos is None else (bos,), read_markers(files))
