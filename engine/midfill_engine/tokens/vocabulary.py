"""Finds the sets of tokens that may be chosen, by their bytes. Knows ids and bytes, not text or models."""

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
MAX_SETS: Final = 128  # that are kept of each kind
NAMED: Final = re.compile(rb"[\w$\x80-\xff]")  # a byte of a name


class Vocabulary:
    """The bytes of every token, and sets of tokens: [V] bool, true where a token is in the set."""

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
        self._sorted_ids = sorted(range(len(pieces)), key=pieces.__getitem__)
        self._sorted_pieces = [pieces[index] for index in self._sorted_ids]
        keep = lru_cache(maxsize=MAX_SETS)  # sets that are kept must not be changed in place
        self.spelling = keep(self._mark_spelling)
        self.beginning = keep(lambda start: self._mark(self._find_longer(start)))  # tokens that begin with these bytes
        self._meeting = keep(lambda start: self._mark([*self._find_shorter(start), *self._find_longer(start)]))
        self._containing = keep(lambda part: self._mark(i for i, piece in enumerate(pieces) if part in piece))

    def _mark(self, ids: Iterable[int]) -> Tensor:
        token_set = torch.zeros(len(self.pieces), dtype=torch.bool)
        token_set[list(ids)] = True
        return token_set

    def _find_longer(self, start: bytes) -> list[int]:
        """Ids of the tokens that begin with these bytes."""
        first = bisect_left(self._sorted_pieces, start)
        end = bisect_right(self._sorted_pieces, start, first, key=lambda piece: piece[: len(start)])
        return self._sorted_ids[first:end]

    def _find_shorter(self, text: bytes) -> list[int]:
        """Ids of the tokens with which these bytes begin, or which are all of them."""
        ids = []
        for end in range(1, len(text) + 1):
            first = bisect_left(self._sorted_pieces, text[:end])
            ids += self._sorted_ids[first : bisect_right(self._sorted_pieces, text[:end], first)]
        return ids

    def allowed(
        self, *, forbid: Sequence[str] = (), leading: str = "", may_delete: bool = False, may_expand: bool = False
    ) -> Tensor:
        """The set [V] of tokens without a string of `forbid`: with a `leading`, only of those that begin with it; with
        none, those that shorten a hole too if it `may_delete`. If it `may_expand`, the one that lengthens it too.
        """
        token_set = self._fillable.clone()
        for text in forbid:
            token_set &= ~self._containing(text.encode("utf-8", errors="replace"))
        if leading:
            token_set &= self.beginning(leading.encode())
        elif may_delete:
            token_set[list(self.delete_ids)] = True
        if may_expand and self.expand_id is not None:
            token_set[self.expand_id] = True
        return token_set

    def _mark_spelling(self, left: bytes, then_filled: bool, forbid: tuple[str, ...] = ()) -> Tensor:
        """The set [V] of tokens that spell a prefix of `left`, or all of it and more text behind it. That text has no
        string of `forbid` and, if `then_filled`, does not begin with white space.
        """
        unwanted = [part.encode() for part in forbid]

        def is_wanted(text_behind: bytes) -> bool:
            return not (then_filled and text_behind[:1].isspace()) and not any(part in text_behind for part in unwanted)

        longer = (index for index in self._find_longer(left) if is_wanted(self.pieces[index][len(left) :]))
        return self._mark([*self._find_shorter(left), *longer])

    def spelling_only(self, left: bytes) -> Tensor:
        """The set [V] of tokens that spell a prefix of `left`, or all of it, and no more."""
        return self.spelling(left, False) & (self._lengths <= len(left))

    def ending(self, after: str) -> Tensor:
        """The set [V] of tokens that `after` may begin with; of line breaks if it begins with one or is empty."""
        start = after[:64].encode("utf-8", errors="replace")
        if start[:1] in (b"", b"\n"):
            return self.beginning(b"\n")
        return self._meeting(start)

    @property
    def spaced(self) -> Tensor:
        """The set [V] of tokens that begin with white space."""
        return self.beginning(b" ") | self.beginning(b"\t") | self.beginning(b"\n")

    @cached_property
    def worded(self) -> Tensor:
        """The set [V] of tokens that begin with a letter, a digit, `_`, `$` or a byte beyond ASCII."""
        return self._mark(index for index, piece in enumerate(self.pieces) if NAMED.match(piece))

    def is_deletion(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """True where one of `ids` is a token that shortens a hole."""
        is_deleted = np.zeros(ids.shape, dtype=bool)
        for token in self.delete_ids:
            is_deleted |= ids == token
        return is_deleted
