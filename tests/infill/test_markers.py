"""Special tokens in the user's code: broken in prompts, whole in answers."""

import random
import re

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from midfill_engine.models.fim_names import FIM_NAMES
from midfill_infill.answers.ending import EndFinder
from midfill_infill.answers.markers import (
    DIALECTS,
    END_MARKERS,
    IN_CODE,
    JOINER,
    MARKERS,
    Dialect,
    defuse,
    find_dialect,
    restore,
    special_to,
)
from midfill_infill.engines.outside.openai import OpenAI
from midfill_infill.engines.outside.protocol import HoleQuery

MODELS = [
    "",
    "qwen2.5-coder:1.5b",
    "codellama:7b-code",
    "Codestral-22B",
    "Seed-Coder-8B-Base",
    "starcoder2:3b",
    "gemma3",
]


def draw_texts(count: int) -> list[str]:
    chance = random.Random(7)
    pieces = [
        *MARKERS,
        *(each[0] + JOINER + each[1:] for each in MARKERS),
        JOINER,
        "<",
        "[",
        "|",
        ">",
        "a",
        "\n",
        "e\u0301",
    ]
    return ["".join(chance.choices(pieces, k=chance.randint(0, 8))) for _ in range(count)]


@pytest.mark.parametrize("model", MODELS)
def test_no_marker_of_the_model_is_left_and_every_text_comes_back(model: str) -> None:
    for text in draw_texts(3000):
        defused = defuse(text, model)
        assert restore(defused) == text
        assert not any(marker in defused for marker in special_to(model)), text
        assert defused.replace(JOINER, "") == text.replace(JOINER, "")


TEMPLATED = {
    "qwen2.5-coder", "codegemma", "granite-code-fim", "seed-coder", "santacoder", "starcoder2", "codellama",
    "deepseek-coder", "codestral",
}  # fmt: skip


@pytest.mark.parametrize("model", sorted(TEMPLATED))
def test_a_prompt_has_the_markers_of_its_template_and_no_other(model: str) -> None:
    """Each marker of the model is where the template puts it, and nowhere else."""
    dialect, texts = find_dialect(model), draw_texts(600)
    parts = re.split(r"(\{before\}|\{behind\})", dialect.template)
    for before, behind in zip(texts[::2], texts[1::2], strict=True):
        query = HoleQuery(before, behind, 9, model=model)
        prompt = next(OpenAI().calls(query)).body["prompt"]
        given = {"{before}": query.defused.before, "{behind}": query.defused.behind}
        wanted, place = set[tuple[int, str]](), 0
        for part in parts:
            if part not in given:
                wanted |= {(place + found.start(), found[0]) for found in re.finditer(r"<[^<> ]+>|\[[A-Z]+\]", part)}
            place += len(given.get(part, part))
        found = {
            (at, marker) for marker in dialect.markers for at in range(len(prompt)) if prompt.startswith(marker, at)
        }
        assert found == wanted and place == len(prompt)
        assert restore(prompt) == dialect.write(before, behind)


@pytest.mark.parametrize(("names", "suffix_first"), FIM_NAMES)
def test_templates_of_prompts_are_those_of_midfills_engine(names: tuple[str, str, str], suffix_first: bool) -> None:
    prefix, suffix, middle = names
    first, second = (suffix, prefix) if suffix_first else (prefix, suffix)
    laid = f"{first}{'{behind}' if suffix_first else '{before}'}{second}{'{before}' if suffix_first else '{behind}'}"
    assert laid + middle in {dialect.template for dialect in DIALECTS}


def test_code_is_altered_only_for_a_model_to_which_it_is_special() -> None:
    html, index = "<p><s>old</s> new</p>\n", "groups[PREFIX] + table[SUFFIX]\n"
    for model in ("", "qwen2.5-coder", "starcoder2"):
        assert defuse(html + index, model) == html + index
    assert defuse(html, "codellama:7b-code") == f"<p><{JOINER}s>old<{JOINER}/s> new</p>\n"
    assert defuse(index, "codestral") == f"groups[{JOINER}PREFIX] + table[{JOINER}SUFFIX]\n"


def test_no_marker_overlaps_another() -> None:
    """Otherwise breaking one could leave or make another."""
    for one in MARKERS:
        for start in range(1, len(one)):
            assert not any(other.startswith(one[start:]) or one.startswith(other, start) for other in MARKERS)


def test_an_unknown_model_is_protected_from_everything_that_is_not_code() -> None:
    assert special_to("my-model") == set(MARKERS) - IN_CODE
    assert {"<|fim_suffix|>", "<|endoftext|>", "<｜end▁of▁sentence｜>", "<[fim-suffix]>"} <= special_to("my-model")
    assert set(END_MARKERS) <= set(MARKERS)
    assert IN_CODE <= set(MARKERS)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.pattern)
def test_stops_are_few_and_are_no_code(dialect: Dialect) -> None:
    stops = dialect.stops(("\n",))
    assert stops[0] == "\n"
    assert len(stops) <= 4
    assert not IN_CODE & set(stops)


def test_a_model_is_known_by_its_name() -> None:
    assert find_dialect("Seed-Coder-8B-Base").template.startswith("<[fim-suffix]>{behind}")
    assert find_dialect("hf.co/unsloth/Qwen2.5-Coder-7B-GGUF:Q4").stops(()) == [
        "<|endoftext|>", "<|file_sep|>", "<|repo_name|>", "<|fim_pad|>",
    ]  # fmt: skip
    assert "</s>" in find_dialect("mistral-7b").ends
    assert find_dialect("my-model").markers == ()


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC(), normalizers.NFKC(), normalizers.Nmt()])
@pytest.mark.parametrize("is_normalized", [True, False])
def test_a_tokenizer_reads_no_special_token_there(
    normalizer: normalizers.Normalizer | None, is_normalized: bool
) -> None:
    pieces = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(pieces, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens([AddedToken(each, special=True, normalized=is_normalized) for each in MARKERS])
    for model in MODELS:
        text = "x".join(special_to(model))
        assert max(tokenizer.encode(text).ids) >= len(pieces)
        ids = tokenizer.encode(defuse(text, model)).ids
        assert max(ids) < len(pieces)
        if normalizer is None:
            assert restore(tokenizer.decode(ids)) == text


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("<|fim_middle|>return x<|endoftext|>", True),
        ("<|fim_middle|>\n<|cursor|>return x<|endoftext|>", True),
        ("<|fim_middle|>return x", False),
        ("<|fim_middle|><|endoftext|>", False),
        ("return x<|endoftext|>", True),
        ('eos: "<|endoftext|>', False),
        ('eos: "<|endoftext|>"\npad: 1\n', False),
        ('eos: "<|endoftext|>"<|im_end|>', True),
        ('x = "a<|endoftext|>\n', True),
        ("# it's over <|endoftext|>", True),
        ("<p>\n  <s>{old}</s> {now}\n</p>\n", False),
        ('<s className="old">{old}</s> {now}\n</s>', True),
    ],
)
def test_an_answer_ends_at_the_marker_behind_its_code(text: str, ends: bool) -> None:
    finder = EndFinder("block", "", "", "\n", knows_end=True)
    assert (finder.find(text, is_continuation=False) == len(text)) is ends
