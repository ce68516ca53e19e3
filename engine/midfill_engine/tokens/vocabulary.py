"""Masks of the tokens that may be chosen, from their bytes. Knows ids and bytes, not text or models."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# The wire's line ending is \n, and code contains no other control characters than line breaks and tabs.
UNWANTED_BYTES: Final = (frozenset(range(0x20)) | {0x7F}) - {ord("\n"), ord("\t")}
MAX_MASKS: Final = 128
NAMED: Final = re.compile(rb"[\w$\x80-\xff]")  # a byte of a name


class Vocabulary:
    """The bytes of every token, and masks [V] (bool, true where a token may be chosen) over them."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        special_ids: Sequence[int],
        delete_ids: Sequence[int] = (),
        expand_id: int | None = None,
    ) -> None:
        self.pieces = pieces
        self.delete_ids = tuple(delete_ids)
        self.expand_id = expand_id
        specials = frozenset(special_ids)
        is_clean = (bool(piece) and UNWANTED_BYTES.isdisjoint(piece) for piece in pieces)
        self._fillable = torch.tensor([clean and index not in specials for index, clean in enumerate(is_clean)])
        self._lengths = torch.tensor([len(piece) for piece in pieces])
        self._order = sorted(range(len(pieces)), key=pieces.__getitem__)
        self._sorted = [pieces[index] for index in self._order]
        keep = lru_cache(maxsize=MAX_MASKS)
        self.spelling = keep(self._mark_spelling)
        self.beginning = keep(lambda start: self._mark(self._find_longer(start)))
        self._meeting = keep(lambda start: self._mark([*self._find_shorter(start), *self._find_longer(start)]))
        self._containing = keep(lambda part: self._mark(i for i, piece in enumerate(pieces) if part in piece))

    def _mark(self, ids: Iterable[int]) -> Tensor:
        mask = torch.zeros(len(self.pieces), dtype=torch.bool)
        mask[list(ids)] = True
        return mask

    def _find_longer(self, start: bytes) -> list[int]:
        """The tokens that begin with these bytes."""
        first = bisect_left(self._sorted, start)
        return self._order[first : bisect_right(self._sorted, start, first, key=lambda piece: piece[: len(start)])]

    def _find_shorter(self, text: bytes) -> list[int]:
        """The tokens that are prefixes of these bytes."""
        found = []
        for end in range(1, len(text) + 1):
            first = bisect_left(self._sorted, text[:end])
            found += self._order[first : bisect_right(self._sorted, text[:end], first)]
        return found

    def allowed(
        self, *, forbid: Sequence[str] = (), leading: str = "", may_delete: bool = False, may_expand: bool = False
    ) -> Tensor:
        """The mask [V] of tokens without a string of `forbid`, beginning with `leading`."""
        mask = self._fillable.clone()
        for text in forbid:
            mask &= ~self._containing(text.encode("utf-8", errors="replace"))
        if leading:
            mask &= self.beginning(leading.encode())
        elif may_delete:
            mask[list(self.delete_ids)] = True
        if may_expand and self.expand_id is not None:
            mask[self.expand_id] = True
        return mask

    def _mark_spelling(self, left: bytes, then_filled: bool, forbid: tuple[str, ...] = ()) -> Tensor:
        """The mask [V] of tokens that spell a prefix of `left`, or all of it and more text, which has no string of
        `forbid` and, if `then_filled`, does not begin with white space.
        """
        unwanted = [part.encode() for part in forbid]

        def is_wanted(rest: bytes) -> bool:
            return not (then_filled and rest[:1].isspace()) and not any(part in rest for part in unwanted)

        longer = (index for index in self._find_longer(left) if is_wanted(self.pieces[index][len(left) :]))
        return self._mark([*self._find_shorter(left), *longer])

    def spelling_only(self, left: bytes) -> Tensor:
        """The mask [V] of tokens that spell a prefix of `left`, or all of it, and no more."""
        return self.spelling(left, False) & (self._lengths <= len(left))

    def ending(self, after: str) -> Tensor:
        """The mask [V] of tokens that may come before `after`; line breaks if it begins with one or is empty."""
        start = after[:64].encode("utf-8", errors="replace")
        return self.beginning(b"\n") if start[:1] in (b"", b"\n") else self._meeting(start)

    @property
    def spaced(self) -> Tensor:
        """The mask [V] of tokens that begin with white space."""
        return self.beginning(b" ") | self.beginning(b"\t") | self.beginning(b"\n")

    @cached_property
    def worded(self) -> Tensor:
        """The mask [V] of tokens that begin with a letter, a digit, an underscore or a dollar sign."""
        return self._mark(index for index, piece in enumerate(self.pieces) if NAMED.match(piece))

    def is_deletion(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """True where `ids` are tokens that shorten a hole."""
        found = np.zeros(ids.shape, dtype=bool)
        for token in self.delete_ids:
            found |= ids == token
        return found
