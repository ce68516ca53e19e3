"""Reads user settings from JSON. Knows no editor: an invalid value is reported and its default is used."""

from collections.abc import Mapping
from dataclasses import Field as DataclassField
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass

from midfill_infill.filling.candidates import SHOWN

Count = Annotated[int, Field(ge=1, le=1024)]
_COUNT: Final = "a whole number from 1 to 1024"
_FLAG: Final = "true or false"


def _setting(default: Any, help: str, expected: str = "") -> Any:
    """A field with its help text and a description of its values, which a Literal does not need."""
    return field(default_factory=lambda: default, metadata={"title": expected, "description": help})


@dataclass(frozen=True, config=ConfigDict(strict=True))
class Settings:
    """`model` is a name or folder, None the default. None elsewhere leaves the choice to the model.

    `preview`, `confidence` and `server_command` are for editor plugins; the server only validates them.
    """

    model: Annotated[str, Field(pattern=r"\S")] | None = _setting(
        None, "Model, by name or folder.", "a model's name or folder"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = _setting("auto", "Where the model runs.")
    steps: Count | None = _setting(
        None, "At most so many denoise steps of a diffusion model, which decides by default; others have none.", _COUNT
    )
    max_hole_tokens: Count | None = _setting(None, "At most so many tokens a hole.", _COUNT)
    seed: Annotated[int, Field(ge=0, le=2**53 - 1)] = _setting(
        0, "0 takes the likeliest fill, any other number draws one.", "a whole number from 0"
    )
    trigger: Literal["auto", "manual"] = _setting("auto", "Ghost text while typing, or only when asked for.")
    languages: Mapping[str, bool] = _setting(
        {},
        "Ghost text while typing by language, `*` for those not named; what is asked for works in all.",
        "language ids with true or false each",
    )
    debounce_ms: Annotated[int, Field(ge=0, le=5000)] = _setting(
        150, "Rest after a key before ghost text is made.", "a whole number from 0 to 5000"
    )
    ghost_text_certainty: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = _setting(
        SHOWN, "Unasked ghost text is shown from this certainty on, where the model tells it.", "a number from 0 to 1"
    )
    ghost_text_log_probability: Annotated[float, Field(le=0, allow_inf_nan=False)] | None = _setting(
        None,
        "Where the model tells only the probabilities of tokens: from this mean of their logarithms (nats) on.",
        "a number up to 0",
    )
    exclude: tuple[str, ...] = _setting((), "Files to leave out, as in a .gitignore.", "a list of patterns")
    repository_context: bool = _setting(
        True,
        "Show the model parts of related files; false, or `midfill config context off`, the open one alone.",
        _FLAG,
    )
    next_edits: bool = _setting(True, "Show where a change that was made twice may be made again.", _FLAG)
    preview: Literal["decoration", "buffer", "off"] = _setting("decoration", "How a fill is shown while it sharpens.")
    confidence: Literal["weak", "off"] = _setting("weak", "Whether the weakest tokens of a fill are underlined.")
    server_command: tuple[str, ...] = _setting((), "How the editor starts the server.", "a list of words")

    def suggests_in(self, language: str | None) -> bool:
        """True if ghost text is made while typing in a language."""
        return self.trigger == "auto" and self.languages.get(language or "", self.languages.get("*", True))


@plain_dataclass(frozen=True)
class Rule:
    """One setting: the editor's key, a description of its values, and what it does."""

    key: str
    expected: str
    help: str


def _rule(setting: DataclassField[Any]) -> Rule:
    expected = setting.metadata["title"] or f"one of {', '.join(get_args(setting.type))}"
    return Rule(to_camel(setting.name), expected, setting.metadata["description"])


RULES: Final = {setting.name: _rule(setting) for setting in fields(Settings)}


def parse_settings(values: object) -> tuple[Settings, list[str]]:
    """Settings from an editor's JSON, and one sentence for each problem."""
    if values is None:
        return Settings(), []
    if not isinstance(values, Mapping):
        return Settings(), [f"The settings of midfill must be an object, not {_describe(values)}."]
    names = {rule.key: name for name, rule in RULES.items()}
    problems = [f"midfill.{key} is not a setting; known are {', '.join(names)}." for key in values if key not in names]
    given = {names[key]: value for key, value in values.items() if key in names and value is not None}
    chosen: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    try:
        return Settings(**chosen), problems
    except ValidationError as error:
        for name in dict.fromkeys(str(problem["loc"][0]) for problem in error.errors()):
            rule = RULES[name]
            shown = _describe(values[rule.key])
            problems.append(f"midfill.{rule.key} must be {rule.expected}, not {shown}; the default is used.")
            del chosen[name]
        return Settings(**chosen), problems


def _describe(value: object) -> str:
    """The value as Python writes it, shortened to 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
