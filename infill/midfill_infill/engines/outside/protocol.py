"""The interface of adapters for other engines: a hole to fill, the calls that may fill it, pieces of answers.

Other files are laid out as the model's authors did; for models whose layout is not known, as comments above the text.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from midfill_infill.answers.ending import Extent
from midfill_infill.answers.markers import defuse, find_dialect

BLOCK_TOKENS: Final = 1024  # that an answer of several lines may take


@dataclass(frozen=True)
class Sources:
    """Parts of other files (path and text), the names of the repository and of the hole's own file, and the start of a
    line comment in its language.
    """

    files: tuple[tuple[str, str], ...] = ()
    name: str = ""
    path: str = ""
    comment: str = "#"

    def defuse(self, model: str) -> "Sources":
        files = tuple((defuse(path, model), defuse(text, model)) for path, text in self.files)
        return Sources(files, defuse(self.name, model), defuse(self.path, model), self.comment)

    def comments(self) -> str:
        """The files as comments, each below its path; an empty line ends them."""
        lines = [line for path, text in self.files for line in (path, *text.split("\n"), "")]
        return "".join(f"{self.comment} {line}".rstrip() + "\n" for line in lines[:-1]) + "\n" * bool(lines)


@dataclass(frozen=True)
class HoleQuery:
    """A hole, how much it takes, and the text around it. `temperature` 0 is greedy decoding, `stops` end the fill,
    `model` may be empty. `limit` is the number of tokens that the engine takes, where it told.
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
        """The text before the hole without its last space, for causal models: their tokens begin with a space."""
        return self.before.removesuffix(" ")

    @property
    def defused(self) -> "HoleQuery":
        """The same code for a server that takes special tokens in a prompt's text for its own."""
        before, behind = defuse(self.before, self.model), defuse(self.behind, self.model)
        return replace(self, before=before, behind=behind, sources=self.sources.defuse(self.model))

    @property
    def has_own_layout(self) -> bool:
        """True if there are other files, and the model has special tokens for them."""
        return bool(self.sources.files and find_dialect(self.model).opening)

    @property
    def headed(self) -> "HoleQuery":
        """The same code with the other files as text before it, without special tokens."""
        sources, dialect = self.sources, find_dialect(self.model)
        if not sources.files:
            return self
        _, heading = dialect.write_above(sources.name, sources.path, sources.files)
        shown = heading if "{files}" in dialect.heading else sources.comments()
        return replace(self, before=shown + self.before, sources=Sources())

    @property
    def prompt(self) -> str:
        """The prompt in the format of the model, which must be known. Its code must be defused."""
        sources, dialect = self.sources, find_dialect(self.model)
        if not self.has_own_layout:
            return dialect.write(self.headed.before, self.behind)
        opening, heading = dialect.write_above(sources.name, sources.path, sources.files)
        return opening + dialect.write(heading + self.before, self.behind)


@dataclass(frozen=True)
class Call:
    """A POST request. `goes_on`: the model sees only `left`, and repeats the space after it."""

    path: str
    body: dict[str, Any]
    goes_on: bool = False


@dataclass(frozen=True)
class Piece:
    """A part of an answer: more text, with its tokens and log-probabilities if the engine gives them. `goes_on`: the
    model sees only the text before the hole.
    """

    text: str = ""
    logprobs: tuple[tuple[str, float], ...] = ()
    model: str = ""
    error: str = ""
    goes_on: bool = False


class Protocol:
    """How to call another project's engine. A key is sent only to the service that its variable is named after."""

    default_url: ClassVar[str] = ""
    key_variables: ClassVar[dict[str, str]] = {}
    """Environment variables of keys, by the domain that may see them."""
    needs_model: ClassVar[bool] = False
    has_stops: ClassVar[bool] = True
    """False if an answer may go on behind a line break wherever the hole is."""
    context_tokens: ClassVar[int] = 3072
    """The part of a document that it sees: many engines take a few thousand tokens and truncate silently."""

    def limit_question(self, model: str) -> tuple[str, dict[str, Any] | None] | None:
        """Where an engine tells how many tokens it takes with its answer: a path, and a body for POST."""
        return None

    def read_limit(self, told: Any, model: str, wanted: int) -> int | None:
        """The number in the answer, if it is there; `wanted` tokens are to be sent. Raises KeyError, TypeError,
        ValueError and AttributeError.
        """
        raise NotImplementedError

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        """The calls to try, best first; the next one is tried if the engine refuses the one before."""
        raise NotImplementedError

    def read(self, line: str) -> Piece | None:
        """Reads a server-sent event or a line of JSON; None without text. Raises ValueError and KeyError."""
        text = line.removeprefix("data:").strip()
        if not text.startswith("{"):
            return None
        message = json.loads(text)
        error = read_error(message)
        return Piece(error=error) if error else self.read_message(message)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        """The piece of a message without an error; None if it holds no text."""
        raise NotImplementedError


def read_delta(message: dict[str, Any]) -> Piece | None:
    """The piece of a message in the form of chats, which FIM services share; None without a choice."""
    if not message["choices"]:
        return None
    choice = message["choices"][0]
    delta = choice.get("delta") or choice.get("message") or {}
    return Piece(str(delta.get("content") or choice.get("text") or ""), (), str(message.get("model", "")))


def read_error(message: dict[str, Any]) -> str:
    """The error in an answer, in any of the known forms; empty if there is none."""
    error = message.get("error") or message.get("detail") or message.get("message") or ""
    if isinstance(error, dict):
        error = error.get("message", "")
    return str(error)
