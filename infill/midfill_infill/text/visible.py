"""Makes text safe for a terminal and for JSON, and words numbers."""

import unicodedata


def visible(text: str) -> str:
    """`text` with a visible character for each control, direction or unprintable one; keeps the length."""
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char in "\n\t" or char.isprintable():
        return char
    if char < " ":
        return chr(0x2400 + ord(char))
    return char if unicodedata.category(char) == "Zs" else "\N{REPLACEMENT CHARACTER}"


def encodable(text: str) -> str:
    """`text` with a question mark for each lone surrogate, which neither JSON nor UTF-8 can hold."""
    return text.encode(errors="replace").decode()


def duration(seconds: float) -> str:
    """`12 s`, `5 min` or `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plural(number: int, word: str) -> str:
    """`1 patch`, `2 patches`."""
    ending = "" if number == 1 else "es" if word.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number} {word}{ending}"
