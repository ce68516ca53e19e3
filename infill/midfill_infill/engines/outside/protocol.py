"""The interface of adapters for other engines: a hole to fill, the calls that may fill it, pieces of answers.

A prompt shows excerpts of other files in the layout with which the model was trained; for a model whose layout is not
known, it shows them as comments above the text.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from midfill_infill.answers.ending import Extent
from midfill_infill.answers.markers import defuse, find_dialect
from midfill_infill.answers.wrapping import find_start

BLOCK_TOKENS: Final = 1024  # that an answer of several lines may take
THINKING_TOKENS: Final = 2048  # that a model's thoughts before its answer may take
LIMIT: Final = "max_tokens"  # how most engines call the limit of tokens
NEWER_LIMIT: Final = "max_completion_tokens"
CUT: Final = "length"  # the ending of an answer that the limit of tokens cut, as most engines call it
_CUTS: Final = (CUT, "model_length", "max_tokens")  # Mistral's name for a full window, and that of some proxies
ENDED: Final = "stop"  # any other ending, where an engine gives none a name
_LAST_EVENT: Final = "[DONE]"


@dataclass(frozen=True)
class Sources:
    """What a prompt shows beside the hole's text: parts of other `files` (path and text), the `name` of the repository,
    the `path` of the hole's own file, and the `comment` mark with which a line comment begins in its language.
    """

    files: tuple[tuple[str, str], ...] = ()
    name: str = ""
    path: str = ""
    comment: str = "#"

    def defuse(self, model: str) -> "Sources":
        """The same sources without special tokens of the model, see `answers.markers`."""
        files = tuple((defuse(path, model), defuse(text, model)) for path, text in self.files)
        return Sources(files, defuse(self.name, model), defuse(self.path, model), self.comment)

    def comments(self) -> str:
        """The files as comments, each below its path; an empty line ends them."""
        if not self.files:
            return ""
        lines = [line for path, text in self.files for line in (path, *text.split("\n"), "")]
        return "".join(f"{self.comment} {line}".rstrip() + "\n" for line in lines[:-1]) + "\n"


@dataclass(frozen=True)
class HoleQuery:
    """A question to an engine: what belongs between `before` and `behind`.

    `extent` says how much the hole takes. A string of `stops` ends the answer. `temperature` 0 is greedy decoding.
    `model` may be empty. `limit` is the number of tokens that the engine takes with its answer, if it tells.
    """

    before: str
    behind: str
    max_tokens: int
    stops: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0
    model: str = ""
    extent: Extent = "block"
    sources: Sources = Sources()
    limit: int | None = None

    @property
    def left(self) -> str:
        """The text before the hole without its last space, for models that continue it: their tokens begin with one."""
        return self.before.removesuffix(" ")

    @property
    def defused(self) -> "HoleQuery":
        """The same query with the model's special tokens in the code broken, for servers that obey them in a prompt."""
        before, behind = defuse(self.before, self.model), defuse(self.behind, self.model)
        return replace(self, before=before, behind=behind, sources=self.sources.defuse(self.model))

    @property
    def has_own_layout(self) -> bool:
        """True if there are other files, and the model's layout puts something before the whole prompt to show them."""
        return bool(self.sources.files and find_dialect(self.model).opening)

    @property
    def headed(self) -> "HoleQuery":
        """The same query with the other files as text at the start of `before`, and without sources."""
        sources, dialect = self.sources, find_dialect(self.model)
        if not sources.files:
            return self
        _, heading = dialect.write_above(sources.name, sources.path, sources.files)
        files_text = heading if "{files}" in dialect.heading else sources.comments()
        return replace(self, before=files_text + self.before, sources=Sources())

    @property
    def prompt(self) -> str:
        """The prompt with the model's special tokens around the code. The query must be `defused`, and the model one
        whose format is known.
        """
        sources, dialect = self.sources, find_dialect(self.model)
        if not self.has_own_layout:
            return dialect.write(self.headed.before, self.behind)
        opening, heading = dialect.write_above(sources.name, sources.path, sources.files)
        return opening + dialect.write(heading + self.before, self.behind)


@dataclass(frozen=True)
class Call:
    """A POST request. `is_continuation`: the model continues `HoleQuery.left` and sees nothing behind the hole. If
    `left` lacks the last space before the hole, the answer begins with it.
    """

    path: str
    body: dict[str, Any]
    is_continuation: bool = False

    @property
    def renamed(self) -> "Call":
        """The same call with the limit of tokens under the name that OpenAI's models which think take alone."""
        body = {NEWER_LIMIT if name == LIMIT else name: value for name, value in self.body.items()}
        return replace(self, body=body)


@dataclass(frozen=True)
class Piece:
    """A part of an answer: its text, and its tokens with their log-probabilities if the engine gives them. `model` is
    the name that the engine gives, `error` what it says of a failure; both may be empty. `is_continuation` is that of
    the call. `ending` is why the answer ends here: CUT by the limit of tokens, or another word; empty if it goes on.
    """

    text: str = ""
    logprobs: tuple[tuple[str, float], ...] = ()
    model: str = ""
    error: str = ""
    is_continuation: bool = False
    ending: str = ""


END: Final = Piece(ending=ENDED)


class Protocol:
    """How to call another project's engine. A key is sent only to the service that its variable is named after."""

    default_url: ClassVar[str] = ""
    root: ClassVar[str] = ""
    """The path of an address that has none."""
    key_variables: ClassVar[dict[str, str]] = {}
    """Environment variables that hold keys, by the domain to which a key may be sent."""
    needs_model: ClassVar[bool] = False
    """True if every call names a model."""
    has_stops: ClassVar[bool] = True
    """False if no answer may be stopped at a line break, not even for a part of a line."""
    knows_end: ClassVar[bool] = False
    """True if all models behind it were tuned to end their answers, which then are never cut by their lines."""
    context_tokens: ClassVar[int] = 3072
    """How many tokens are sent at most by default: many engines take a few thousand and truncate the others silently.
    """

    answer_tokens: ClassVar[int] = BLOCK_TOKENS
    """How many tokens an answer may take, for which the limit must have room."""

    def limit_question(self, model: str) -> tuple[str, dict[str, Any] | None] | None:
        """Where an engine tells how many tokens it takes with its answer: a path, and a body for POST, None for GET.
        None if it tells nowhere.
        """
        return None

    def read_limit(self, answer: Any, model: str, wanted: int) -> int | None:
        """The limit in the JSON answer to `limit_question`; None if it has none. `wanted` tokens should be sent. Raises
        KeyError, TypeError, ValueError and AttributeError for answers in another form.
        """
        raise NotImplementedError

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        """Yields the kinds of calls to try, the best first; the next one is tried if the engine refuses one."""
        raise NotImplementedError

    def find_answer(self, text: str) -> int | None:
        """Where the answer begins in what has arrived; None while this may be thoughts, which do not count."""
        return None if find_start(text) is None else 0

    def uncover(self, answer: str) -> str:
        """The text of a hole in an answer, without what the prompt demanded around it."""
        return answer

    def read(self, line: str) -> Piece | None:
        """The piece in a server-sent event or a line of JSON; None if there is none. Raises ValueError, KeyError,
        TypeError and AttributeError for a message in another form.
        """
        text = line.removeprefix("data:").strip()
        if text == _LAST_EVENT:
            return END
        if not text.startswith("{"):
            return None
        message = json.loads(text)
        error = read_error(message)
        return Piece(error=error) if error else self.read_message(message)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        """The piece in a message that is no error; None if there is none. Raises as `read`."""
        raise NotImplementedError


def read_delta(message: dict[str, Any]) -> Piece | None:
    """The piece in a message in the form of chats, which fill-in-the-middle services share; None without a choice."""
    if not message.get("choices"):
        return None
    choice = message["choices"][0]
    delta = choice.get("delta") or choice.get("message") or {}
    text = delta.get("content") or choice.get("text") or ""
    if isinstance(text, list):  # Mistral's models that think send parts; those with thoughts have no text
        text = "".join(part.get("text") or "" for part in text)
    return Piece(str(text), (), str(message.get("model", "")), ending=read_ending(choice))


def read_ending(choice: dict[str, Any]) -> str:
    """The reason for which a choice ends, CUT by whatever limit of tokens; empty if it goes on."""
    reason = str(choice.get("finish_reason") or "")
    return CUT if reason in _CUTS else reason


def read_error(message: dict[str, Any]) -> str:
    """The error in an answer, in any of the known forms; empty if there is none."""
    error = message.get("error") or message.get("detail") or message.get("message") or ""
    if isinstance(error, dict):
        error = error.get("message", "")
    return str(error)
