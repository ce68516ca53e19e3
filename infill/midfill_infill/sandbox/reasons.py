"""Finds in the output of a command the words that say why it failed. Knows text alone, and no frames of tracebacks."""

import re
from typing import Final

COLOR: Final = re.compile(r"\x1b\[[\d;]*m")
# What test programs and compilers print first of a failure, each with its `message`.
_REASONS: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # node --test, as TAP; a file or a group fails because what is in it does.
        r"^ *error: \|-\n(?P<message>(?:.*\n){0,99}?)(?= *(?:code|name|stack|expected|\.\.\.)(?::|$))",
        r"""^ *error: (?P<quote>['"])(?!test failed|\d+ subtests? failed)(?P<message>.+)(?P=quote)$""",
        # An error with its kind; its message may go on in the next line that has text.
        r"^[ \t]*(?:# |Uncaught )?(?P<message>[\w.]*(?:Error|Exception)(?: \[\w+\])?: (?:.*:\s*\n.*|.*))$",
        # Jest.
        r"^[ \t]*(?P<message>Expected\b.*: .*\n\s*Received\b.*: .*)$",
        # Rust, with the message in the next lines, before 1.73 in quotes.
        r"\bpanicked at (?:'(?P<message>.*)', \S+|\S+:\n)",
        r"^error(?:\[E\d+\])?: (?!could not compile|test failed|aborting)(?P<message>.+)$",
        # Compilers, Go's and that of TypeScript.
        r"^\S+?\.\w{1,5}:\d+(?::\d+)?: (?!warning|note|In )(?P<message>.+)$",
        r"\berror (?P<message>TS\d+: .+)$",
    )
)
_PANIC_LINES: Final = re.compile(r"(?:(?!stack backtrace:|note: ).+\n)*")


def find_reason(output: str) -> str:
    """The first reason in the output, on one line; empty if no known program tells one."""
    text = COLOR.sub("", output)
    found = [match for match in (pattern.search(text) for pattern in _REASONS) if match is not None]
    if not found:
        return ""
    first = min(found, key=re.Match.start)
    message = first["message"]
    if message is None:  # a panic
        lines = _PANIC_LINES.match(text, first.end())
        message = lines[0] if lines else ""
    return " ".join(message.split())
