"""Reads settings from environment, project file and user file, in this order. Knows their names, not their meaning."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from midfill_infill.errors import MidfillError, advise_on_space

PROJECT_FILE: Final = ".midfill.toml"
USER_VARIABLE: Final = "MIDFILL_CONFIG"

Source = Literal["flag", "environment", "project", "user", "default"]
Value = str | float | list[float] | None
Quality = float | Literal["authors"] | None  # None leaves the choice to the engine
Seconds = tuple[float, float]  # how long a body and how long a line should take to fill
MOST_SECONDS: Final = 3600
LEAST_CONTEXT, MOST_CONTEXT = 256, 1_000_000  # tokens


@dataclass(frozen=True)
class Key:
    """A setting: its name, its allowed values in words, the test for them, its help, and `usual`, its default value."""

    name: str
    expected: str
    allows: Callable[[Any], bool]
    help: str
    usual: Value = None

    @property
    def variable(self) -> str:
        """The environment variable of the setting."""
        return f"MIDFILL_{self.name.upper()}"


@dataclass(frozen=True)
class Setting:
    """A setting's value, the kind of place that sets it, and the `place`: a file or a variable, "" for a default."""

    value: Value
    source: Source = "default"
    place: str = ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _one_of(*names: str) -> tuple[str, Callable[[Any], bool]]:
    """The arguments `expected` and `allows` of a Key whose value is one of these names."""
    return "one of " + ", ".join(names), lambda value: value in names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_seconds(value: Any) -> bool:
    if value == "off":
        return True
    seconds = value if isinstance(value, list) else [value]
    return len(seconds) in (1, 2) and all(_is_number(number) and 0 < number <= MOST_SECONDS for number in seconds)


def _is_context(value: Any) -> bool:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value in ("on", "off") or (is_count and LEAST_CONTEXT <= value <= MOST_CONTEXT)


def _is_quality(value: Any) -> bool:
    return value == "authors" or (_is_number(value) and 0 <= value <= 1)


KEYS: Final = {
    key.name: key
    for key in (
        Key("model", "a model's name, folder or OWNER/NAME", _is_text, "The model that fills."),
        Key(
            "engine", "PROTOCOL:MODEL@URL", _is_text, "The engine of another project that fills, in place of Midfill's."
        ),
        Key(
            "context",
            f"on, off, or a number of tokens from {LEAST_CONTEXT} to {MOST_CONTEXT}",
            _is_context,
            "Whether a model sees parts of related files, or the open file alone. A number: so many tokens of all, for"
            " another project's engine.",
        ),
        Key("device", *_one_of("auto", "cpu", "cuda", "mps"), "Where it runs."),
        Key("dtype", *_one_of("auto", "fp32", "bf16", "fp16"), "In which number format."),
        Key("weights", *_one_of("stored", "int8", "int4"), "As they are stored, or in 8 bits on CPUs, or 4 on GPUs."),
        Key("quality", "a number from 0 to 1, or authors", _is_quality, "0 settles most tokens a step, 1 fewest."),
        Key(
            "seconds",
            "seconds for a body and for a line, such as 3 1, or off",
            _is_seconds,
            "How long a fill should take: on a slow machine a causal model searches less widely.",
            [3.0, 1.0],
        ),
        Key(
            "cache",
            *_one_of("none", "prefix", "dual", "frozen", "block"),
            "What a step does not compute anew, such as dual.",
        ),
    )
}


def user_file() -> Path:
    """The file with the user's settings, whether it exists or not."""
    if chosen := os.environ.get(USER_VARIABLE):
        return Path(chosen)
    from platformdirs import user_config_path

    return user_config_path("midfill") / "config.toml"


def project_file(folder: Path) -> Path | None:
    """The nearest `.midfill.toml` in `folder` and the folders above it, up to the root of its repository."""
    for candidate in (folder, *folder.parents):
        if (candidate / PROJECT_FILE).is_file():
            return candidate / PROJECT_FILE
        if (candidate / ".git").exists():
            return None
    return None


def load(project: Path | None = None) -> dict[str, Setting]:
    """All settings by name; without a folder `project` no `.midfill.toml` counts. Raises MidfillError `bad_config`."""
    settings = {name: Setting(key.usual) for name, key in KEYS.items()}
    for layer in reversed(list(_read_layers(project))):
        settings |= layer
    return settings


def choose_quality(flag: Quality, project: Path | None = None) -> Quality:
    """The quality for a fill: the flag, otherwise the setting; None leaves the choice to the engine."""
    value = load(project)["quality"].value if flag is None else flag
    if value == "authors":
        return "authors"
    return float(value) if isinstance(value, int | float) else None


def choose_seconds(project: Path | None = None) -> tuple[Seconds | None, bool]:
    """Returns the seconds that a body and a line should take, None if there is no limit, and whether the user has set
    them. If one number is set, a line gets a third of it.
    """
    setting = load(project)["seconds"]
    is_set = setting.source != "default"
    value = setting.value
    if value is None or isinstance(value, str):
        return None, is_set
    numbers = value if isinstance(value, list) else [value]
    body_s = numbers[0]
    line_s = numbers[1] if len(numbers) > 1 else body_s / 3
    return (body_s, line_s), is_set


def shows_related(project: Path | None = None) -> bool:
    """True if a model may see parts of related files, False if it sees the open file alone."""
    return load(project)["context"].value != "off"


def choose_context_tokens() -> int | None:
    """The number of tokens that another project's engine may get; None for the usual number of its protocol."""
    value = load()["context"].value
    return value if isinstance(value, int) else None


def _read_layers(project: Path | None) -> Iterator[Mapping[str, Setting]]:
    """Yields what the environment, the project file and the user file set; what comes earlier overrides."""
    from_environment: dict[str, Setting] = {}
    for key in KEYS.values():
        text = os.environ.get(key.variable)
        if text:
            from_environment[key.name] = Setting(_parse(key, text, key.variable), "environment", key.variable)
    yield from_environment
    if project is not None:
        file = project_file(project.absolute())
        if file is not None:
            yield _read_file(file, "project")
    yield _read_file(user_file(), "user")


def _parse(key: Key, text: str, place: str) -> Value:
    """The value that a text stands for. Raises MidfillError `bad_config`; its message names the text's `place`."""
    value: Value = text
    if key.name == "context":
        with suppress(ValueError):
            value = int(text)
    elif key.name in ("quality", "seconds"):
        with suppress(ValueError):
            numbers = list(map(float, text.split()))
            value = numbers[0] if len(numbers) == 1 else numbers
    if not key.allows(value):
        message = f"{place} is {text!r}, and it takes {key.expected}"
        raise MidfillError("bad_config", message, "set it to one of those, or unset it")
    return value


def _read_file(file: Path, source: Source) -> dict[str, Setting]:
    """The settings in a file, none if there is no such file. Raises MidfillError `bad_config`."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        import tomllib  # not needed without a settings file

        values = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise MidfillError("bad_config", f"{file} cannot be read ({error})") from None
    settings: dict[str, Setting] = {}
    for name, value in values.items():
        _check(file, name, value)
        settings[name] = Setting(value, source, str(file))
    return settings


def _check(file: Path, name: str, value: Any) -> None:
    """Raises MidfillError `bad_config` if a file may not set a setting to a value. A project's file may set no engine,
    and may only turn `context` off, because these two decide which code leaves the machine.
    """
    if name == "engine" and file.name == PROJECT_FILE:
        next_step = "remove it there, and run `midfill config engine VALUE` for yourself"
        raise MidfillError("bad_config", f"{file} sets `engine`, which a project may not choose", next_step)
    if name not in KEYS:
        next_step = f"known are {', '.join(KEYS)}"
        raise MidfillError("bad_config", f"{file} sets {name!r}, which is not a setting", next_step)
    if name == "context" and file.name == PROJECT_FILE and value != "off":
        next_step = f"remove it there, and run `midfill config context {value}` for yourself"
        message = f"{file} sets `context` to {value}, and a project may only turn it off"
        raise MidfillError("bad_config", message, next_step)
    if not KEYS[name].allows(value):
        raise MidfillError("bad_config", f"{file} sets {name} to {value!r}, and it takes {KEYS[name].expected}")


def set_for_user(name: str, value: str | None) -> Path:
    """Writes one setting into the user's file, or removes it if the value is None; other lines stay. Follows a link to
    the file, and keeps the file's mode. Returns the file. Raises MidfillError `bad_config` and `write_failed`.
    """
    import json  # not needed to read settings
    import tomllib

    file = user_file()
    target = Path(os.path.realpath(file))
    try:
        with locked_for_change(target):
            _read_file(file, "user")  # a wrong file is not changed
            text = file.read_bytes().decode("utf-8-sig") if file.exists() else ""
            lines = _without(text.splitlines(keepends=True), name)
            if value is not None:
                parsed = _parse(KEYS[name], value, name)
                # JSON escapes are valid in TOML strings.
                lines.insert(0, f"{name} = {json.dumps(parsed, ensure_ascii=False)}\n")
            data = "".join(lines).encode()
            tomllib.loads(data.decode())
            replace_file(target, data)
    except OSError as error:
        message = f"{file} cannot be written ({error.strerror})"
        raise MidfillError("write_failed", message, advise_on_space(error)) from None
    except ValueError:  # an undecodable byte or a control character
        raise MidfillError("bad_config", f"{value!r} has a character that no settings file can hold") from None
    return file


@contextmanager
def locked_for_change(path: Path) -> Iterator[None]:
    """Makes the folder of a file, and locks it: waits until no other process holds this lock. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        with suppress(ImportError, OSError):  # on Windows and in some network file systems there is no such lock
            import fcntl

            folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file in one step: it has its old bytes or the new ones, whenever this process ends. Keeps its mode."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(data)
        if path.exists():
            temporary.chmod(path.stat().st_mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _without(lines: list[str], name: str) -> list[str]:
    """The lines of a settings file without those of one setting. Its value may be a list on several lines: tries
    how many lines must go until the file can be read and has all other settings.
    """
    import tomllib

    other_settings = tomllib.loads("".join(lines))
    if name not in other_settings:
        return lines
    del other_settings[name]
    for start, line in enumerate(lines):
        if line.partition("=")[0].strip(" \t'\"") != name:
            continue
        for end in range(start + 1, len(lines) + 1):
            other_lines = [*lines[:start], *lines[end:]]
            with suppress(ValueError):
                if tomllib.loads("".join(other_lines)) == other_settings:
                    return other_lines
    return lines
