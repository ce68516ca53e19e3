"""Masks of the tokens that may be chosen, from their bytes. Knows ids and bytes, not text or models."""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

# The wire's line ending is \n, and code contains no other control characters than line breaks and tabs.
UNWANTED_BYTES: Final = (frozenset(range(0x20)) | {0x7F}) - {ord("\n"), ord("\t")}
MAX_MASKS: Final = 128


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
        self._where = lru_cache(maxsize=MAX_MASKS)(self._scan)

    def _scan(self, test: Callable[..., bool], *given: Hashable) -> Tensor:
        """The mask [V] of tokens for whose bytes `test(piece, *given)` is true."""
        return torch.tensor([test(piece, *given) for piece in self.pieces])

    def allowed(
        self, *, forbid: Sequence[str] = (), leading: str = "", may_delete: bool = False, may_expand: bool = False
    ) -> Tensor:
        """The mask [V] of tokens without a string of `forbid`, beginning with `leading`."""
        mask = self._fillable.clone()
        for text in forbid:
            mask &= ~self._where(bytes.__contains__, text.encode("utf-8", errors="replace"))
        if leading:
            mask &= self.beginning(leading.encode())
        elif may_delete:
            mask[list(self.delete_ids)] = True
        if may_expand and self.expand_id is not None:
            mask[self.expand_id] = True
        return mask

    def spelling(self, left: bytes, then_filled: bool, forbid: tuple[str, ...] = ()) -> Tensor:
        """The mask [V] of tokens that spell a part of `left` or go beyond it, then without a string of `forbid` and, if
        `then_filled`, without white space first.
        """
        return self._where(_spells, left, then_filled, forbid)

    def spelling_only(self, left: bytes) -> Tensor:
        """The mask [V] of tokens that spell a part of `left`, or all of it, and no more."""
        return self.spelling(left, False) & torch.tensor([len(piece) <= len(left) for piece in self.pieces])

    def ending(self, after: str) -> Tensor:
        """The mask [V] of tokens that may come next before the text `after`; line breaks if that begins with one, or is
        empty.
        """
        start = after[:64].encode("utf-8", errors="replace")
        return self.beginning(b"\n") if start[:1] in (b"", b"\n") else self._where(_meets, start)

    def beginning(self, wanted: bytes) -> Tensor:
        """The mask [V] of tokens that begin with these bytes."""
        return self._where(bytes.startswith, wanted)

    @property
    def spaced(self) -> Tensor:
        """The mask [V] of tokens that begin with white space."""
        return self.beginning(b" ") | self.beginning(b"\t") | self.beginning(b"\n")

    def is_deletion(self, ids: Tensor) -> Tensor:
        """True where `ids` are tokens that shorten a hole."""
        return torch.isin(ids, torch.tensor(self.delete_ids, dtype=ids.dtype, device=ids.device))


def _spells(piece: bytes, left: bytes, then_filled: bool, forbid: tuple[str, ...]) -> bool:
    if len(piece) <= len(left):
        return bool(piece) and left.startswith(piece)
    rest = piece[len(left) :]
    is_spaced = then_filled and rest[:1].isspace()
    return piece.startswith(left) and not is_spaced and not any(part.encode() in rest for part in forbid)


def _meets(piece: bytes, after: bytes) -> bool:
    return bool(piece) and (after.startswith(piece) or piece.startswith(after))
