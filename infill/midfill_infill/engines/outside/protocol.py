"""What the adapters of other engines share: one hole to fill, the calls that may fill it, and their answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class HoleQuery:
    """A hole and the text around it. `temperature` 0 means the likeliest, `stops` end it, `model` may be empty."""

    before: str
    behind: str
    max_tokens: int
    stops: tuple[str, ...] = ()
    temperature: float = 0.0
    seed: int = 0
    model: str = ""

    @property
    def left(self) -> str:
        """The text before, for a model that only goes on: its words begin with a space, so it is left the last one.

        Without all of an indentation it would begin something new.
        """
        return self.before.removesuffix(" ")


@dataclass(frozen=True)
class Call:
    """What is posted, and where. `goes_on`: the model sees `left` alone and repeats the space behind it."""

    path: str
    body: dict[str, Any]
    goes_on: bool = False


@dataclass(frozen=True)
class Piece:
    """A part of an answer: more text, with the tokens and their log-probabilities where the engine says them."""

    text: str = ""
    logprobs: tuple[tuple[str, float], ...] = ()
    model: str = ""
    error: str = ""


class Protocol:
    """`default_url` is where such an engine listens unless told otherwise, `key_variables` hold its key.

    A service is never sent a key that was meant for another: what a variable is named after must be in its host.
    """

    default_url: ClassVar[str] = ""
    key_variables: ClassVar[dict[str, str]] = {}
    """Environment variables, by what the host's name holds."""
    needs_model: ClassVar[bool] = False
    context_tokens: ClassVar[int] = 3072
    """What it is shown of a document: engines of a few thousand tokens are common, and say nothing where they cut."""

    def calls(self, query: HoleQuery) -> Iterator[Call]:
        """The ways to ask, the best first: the next is tried where the engine does not take the one before."""
        raise NotImplementedError

    def read(self, line: str) -> Piece | None:
        """Reads a server-sent event, or a line of JSON. None for comments, blank lines and the end.

        Raises ValueError and KeyError for another form.
        """
        text = line.removeprefix("data:").strip()
        if not text.startswith("{"):
            return None
        message = json.loads(text)
        error = read_error(message)
        return Piece(error=error) if error else self.read_message(message)

    def read_message(self, message: dict[str, Any]) -> Piece | None:
        """The piece of a message without an error; None if it holds no text."""
        raise NotImplementedError


def read_error(message: dict[str, Any]) -> str:
    """What an engine says went wrong, in any of the forms in use."""
    said = message.get("error") or message.get("detail") or message.get("message") or ""
    if isinstance(said, dict):
        said = said.get("message", "")
    return str(said)
