"""Makes text safe to print on a terminal, and pluralizes."""

import unicodedata


def visible(text: str) -> str:
    """`text` as long as before: control and direction characters, and what is no character, are shown."""
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char in "\n\t" or char.isprintable():
        return char
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) != "Zs" else char


def plural(number: int, word: str) -> str:
    """`1 patch`, `2 patches`."""
    ending = "" if number == 1 else "es" if word.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number} {word}{ending}"
