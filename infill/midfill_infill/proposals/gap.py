"""The gap between two texts as words see it. Knows white space; no files, no model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """What stands around a hole: its words begin with `lead` and go on as `after`.

    The user's text is that of the words without `lead` and with `tail` behind.
    """

    before: str
    after: str
    lead: str = ""
    tail: str = ""

    @classmethod
    def between(cls, before: str, after: str) -> "Gap":
        """A word takes the space before it, and a line break and its indent are one word: both move into the gap."""
        kept = before.rstrip(" ")
        if kept != before and kept and kept[-1] not in "\n\t":
            return cls(kept, after, lead=before[len(kept) :])
        if not before.endswith("\n"):
            return cls(before, after)
        if after.startswith(("  ", "\t")):
            return cls(before[:-1], "\n" + after, lead="\n", tail="\n")
        return cls(before[:-1], after, lead="\n")
