"""Lists the markers, that is special tokens, of other engines' models, and breaks the same text in the user's code.

A server that reads special tokens from a prompt's text takes such text in the user's code for a marker. `defuse` puts
an invisible character into it, `restore` takes that out of the answer. Does no I/O.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

# Breaks a marker. Unicode's normal forms and the tokenizers of the models below keep this character, so the broken
# marker does not become a marker again.
JOINER: Final = "\u2060"
MAX_STOPS: Final = 4  # OpenAI's API refuses more


@dataclass(frozen=True)
class Dialect:
    """The prompt and the special tokens of the models whose lower-case names hold `pattern`, a regular expression.

    `template` is their prompt with {before} and {behind}, if it is known. `ends` are tokens that end a text, those that
    matter most first; `others` are further special tokens. If it is known how other files are shown, `opening` stands
    before the template and `heading` before the text before the hole. In one of them, {files} stands for all other
    files, each written as `file`.
    """

    pattern: str
    template: str = ""
    ends: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    opening: str = ""
    heading: str = ""
    file: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """All special tokens of the models."""
        return (*_MARKER.findall(self.template), *self.ends, *self.others)

    def write(self, before: str, behind: str) -> str:
        """The prompt for a hole between the texts `before` and `behind`, which must be defused."""
        return _put(self.template, before=before, behind=behind)

    def write_above(self, name: str, path: str, files: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """What shows other `files` (path and text) of the repository `name`: what stands before the template, and what
        stands before the text of the hole's own file, which is stored at `path`.
        """
        shown = "".join(_put(self.file, path=other, text=text) for other, text in files)
        opening = _put(self.opening, name=name, path=path, files=shown)
        heading = _put(self.heading, path=path, files=shown)
        return opening, heading

    def stops(self, own_stops: tuple[str, ...]) -> list[str]:
        """The stops of a request: its own ones and the ends that no code contains, at most `MAX_STOPS`."""
        ends = [end for end in self.ends if end not in IN_CODE]
        return [*own_stops, *ends][:MAX_STOPS]


def _put(template: str, **texts: str) -> str:
    """The template with `texts` in place of their names in braces."""
    return re.sub(r"\{(\w+)\}", lambda name: texts[name[1]], template)


_MARKER: Final = re.compile(r"<[^<>{}]+>|\[[A-Z]+\]")
_QWEN_FIM: Final = "<|fim_prefix|>{before}<|fim_suffix|>{behind}<|fim_middle|>"
_STAR_FIM: Final = "<fim_prefix>{before}<fim_suffix>{behind}<fim_middle>"
_STAR_ENDS: Final = ("<|endoftext|>", "<file_sep>", "<repo_name>", "<fim_pad>", "<|end_of_text|>")
_SENTENCE_MARKERS: Final = ("<s>", "<unk>", "<pad>", "[INST]", "[/INST]")

# From model cards and tokenizer files. Other files: Qwen2.5-Coder's card and examples/Qwen2.5-Coder-repolevel-fim.py;
# StarCoder2's report (arXiv 2402.19173, section 5.1), where the path belongs to the text before the hole;
# DeepSeek-Coder's card, "Repository Level Code Completion"; Codestral's layout is the one that its editor plugins send.
DIALECTS: Final = (
    Dialect(
        r"qwen.*coder",
        _QWEN_FIM,
        ("<|endoftext|>", "<|file_sep|>", "<|repo_name|>", "<|fim_pad|>", "<|im_end|>", "<|im_start|>", "<|cursor|>"),
        opening="<|repo_name|>{name}\n{files}<|file_sep|>{path}\n",
        file="<|file_sep|>{path}\n{text}\n",
    ),
    Dialect(
        r"codegemma",
        _QWEN_FIM,
        ("<|file_separator|>", "<end_of_turn>", "<eos>", "<start_of_turn>"),
        ("<bos>", "<pad>", "<unk>", "<mask>"),
    ),
    Dialect(r"granite.*code.*fim", _QWEN_FIM, ("<|endoftext|>", "<|end_of_text|>", "<|fim_pad|>")),
    Dialect(
        r"seed-?coder",
        "<[fim-suffix]>{behind}<[fim-prefix]>{before}<[fim-middle]>",
        ("<[end▁of▁sentence]>", "<[begin▁of▁sentence]>", "<[SEP▁TOKEN]>", "<[PAD▁TOKEN]>"),
    ),
    Dialect(r"santacoder", "<fim-prefix>{before}<fim-suffix>{behind}<fim-middle>", ("<|endoftext|>", "<fim-pad>")),
    Dialect(
        r"starcoder-?2",
        _STAR_FIM,
        _STAR_ENDS,
        opening="<repo_name>{name}{files}<file_sep>",
        heading="{path}\n",
        file="<file_sep>{path}\n{text}\n",
    ),
    Dialect(
        r"starcoder|stable-?code|refact|granite",
        _STAR_FIM,
        _STAR_ENDS,
        ("<filename>", "<reponame>", "<gh_stars>", "<jupyter_start>", "<jupyter_code>", "<jupyter_output>"),
    ),
    Dialect(r"code-?llama", "<PRE> {before} <SUF>{behind} <MID>", ("<EOT>", "</s>"), _SENTENCE_MARKERS),
    Dialect(
        r"deepseek.*coder",
        "<｜fim▁begin｜>{before}<｜fim▁hole｜>{behind}<｜fim▁end｜>",
        ("<｜end▁of▁sentence｜>", "<|EOT|>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
        heading="{files}#{path}\n",
        file="#{path}\n{text}\n",
    ),
    Dialect(
        r"codestral|devstral",
        "[SUFFIX]{behind}[PREFIX]{before}",
        ("</s>",),
        ("[MIDDLE]", *_SENTENCE_MARKERS),
        heading="{files}+++++ {path}\n",
        file="+++++ {path}\n{text}\n\n",
    ),
    Dialect(r"gemma", "", ("<end_of_turn>", "<eos>", "<start_of_turn>"), ("<bos>", "<pad>", "<unk>", "<mask>")),
    Dialect(r"stral|mixtral|llama-?2|vicuna|phi-?3", "", ("</s>", "<|end|>"), _SENTENCE_MARKERS),
    Dialect(
        r"llama",
        "",
        ("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|begin_of_text|>"),
        ("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|finetune_right_pad_id|>"),
    ),
    Dialect(
        r"glm|phi|gpt-oss",
        "",
        ("<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|return|>", "<|end|>"),
        ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "<|message|>", "<|channel|>", "<|start|>"),
    ),
)
# Markers of some models that are ordinary HTML, placeholders or index expressions for all others.
IN_CODE: Final = frozenset(
    ("<s>", "</s>", "<PRE>", "<SUF>", "<MID>", "<unk>", "<pad>", "<mask>", "<bos>", "<eos>", "<filename>", "<reponame>")
    + ("[SUFFIX]", "[PREFIX]", "[MIDDLE]", "[INST]", "[/INST]")
)
MARKERS: Final = tuple(dict.fromkeys(marker for dialect in DIALECTS for marker in dialect.markers))
END_MARKERS: Final = tuple(dict.fromkeys(end for dialect in DIALECTS for end in dialect.ends))

_UNKNOWN: Final = Dialect("")


def find_dialect(model: str) -> Dialect:
    """The dialect of a model by its name; one without a template and markers if it is unknown."""
    for dialect in DIALECTS:
        if re.search(dialect.pattern, model.lower()):
            return dialect
    return _UNKNOWN


def special_to(model: str) -> Collection[str]:
    """The markers that a prompt to this model must not contain: all but those that are code to its dialect."""
    return frozenset(MARKERS) - IN_CODE | frozenset(find_dialect(model).markers)


def defuse(text: str, model: str = "") -> str:
    """The text with every marker of the model broken by an invisible character; `restore` undoes this."""
    special = special_to(model)

    def break_marker(match: re.Match[str]) -> str:
        marker = match[0].replace(JOINER, "")
        num_joiners = len(match[0]) - len(marker)
        if num_joiners == 0 and marker not in special:
            return marker
        # A marker that the text itself has broken gets one more joiner, so that `restore` needs no model.
        return marker[0] + JOINER * (num_joiners + 1) + marker[1:]

    return _compile_markers().sub(break_marker, text)


def restore(text: str) -> str:
    """Undoes `defuse`, for every model."""
    return _compile_markers().sub(lambda match: match[0].replace(JOINER, "", 1), text)


@cache
def _compile_markers() -> re.Pattern[str]:
    """A pattern that matches each marker, also with joiners behind its first character."""
    alternatives: list[str] = []
    for start in sorted({marker[0] for marker in MARKERS}):
        endings = [re.escape(marker[1:]) for marker in MARKERS if marker[0] == start]
        alternatives.append(f"{re.escape(start)}{JOINER}*(?:{'|'.join(endings)})")
    return re.compile("|".join(alternatives))
