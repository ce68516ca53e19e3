"""Which tokens may stand where, by their bytes. Knows ids and bytes, not text or models."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

# The wire's line ending is \n, and nothing but line breaks and tabs among the control characters belongs in code.
UNWANTED_BYTES: Final = (frozenset(range(0x20)) | {0x7F}) - {ord("\n"), ord("\t")}


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
        is_fillable = (index not in specials and self._is_clean(piece) for index, piece in enumerate(pieces))
        self._fillable = torch.tensor(list(is_fillable))
        self._containing = lru_cache(maxsize=64)(self._scan)
        self._beginning = lru_cache(maxsize=8)(self._scan_start)
        self._spelling = lru_cache(maxsize=32)(self._scan_spelling)
        self._ending = lru_cache(maxsize=32)(self._scan_ending)

    def allowed(
        self, *, forbid: Sequence[str] = (), leading: str = "", may_delete: bool = False, may_expand: bool = False
    ) -> Tensor:
        """The mask [V] of tokens without a string of `forbid`, beginning with `leading`."""
        mask = self._fillable.clone()
        for text in forbid:
            mask &= ~self._containing(text.encode("utf-8", errors="replace"))
        if leading:
            mask &= self._beginning(leading.encode())
        elif may_delete:
            mask[list(self.delete_ids)] = True
        if may_expand and self.expand_id is not None:
            mask[self.expand_id] = True
        return mask

    def spelling(self, left: bytes, then_filled: bool, forbid: tuple[str, ...] = ()) -> Tensor:
        """The mask [V] of tokens that spell a part of `left`, or go beyond it with none of `forbid` there, and where
        `then_filled` not with white space.
        """
        return self._spelling(left, then_filled, forbid)

    def spelling_only(self, left: bytes) -> Tensor:
        """The mask [V] of tokens that spell a part of `left`, or all of it, and no more."""
        return self._spelling(left, False, ()) & torch.tensor([len(piece) <= len(left) for piece in self.pieces])

    def ending(self, after: str) -> Tensor:
        """The mask [V] of tokens that may come next where `after` stands behind; before a line break, all breaks."""
        return self._ending(after[:64].encode("utf-8", errors="replace"))

    def beginning(self, wanted: bytes) -> Tensor:
        """The mask [V] of tokens that begin with these bytes."""
        return self._beginning(wanted)

    def is_deletion(self, ids: Tensor) -> Tensor:
        """Where `ids` are tokens that shorten a hole."""
        return torch.isin(ids, torch.tensor(self.delete_ids, dtype=ids.dtype, device=ids.device))

    def _scan(self, unwanted: bytes) -> Tensor:
        return torch.tensor([unwanted in piece for piece in self.pieces])

    def _scan_start(self, wanted: bytes) -> Tensor:
        return torch.tensor([piece.startswith(wanted) for piece in self.pieces])

    def _scan_spelling(self, left: bytes, then_filled: bool, forbid: tuple[str, ...]) -> Tensor:
        barred = [part.encode() for part in forbid]

        def fits(piece: bytes) -> bool:
            if len(piece) <= len(left):
                return bool(piece) and left.startswith(piece)
            rest = piece[len(left) :]
            is_spaced = then_filled and rest[:1].isspace()
            return piece.startswith(left) and not is_spaced and not any(part in rest for part in barred)

        return torch.tensor([fits(piece) for piece in self.pieces])

    def _scan_ending(self, after: bytes) -> Tensor:
        if after[:1] in (b"", b"\n"):
            return self._beginning(b"\n")
        return torch.tensor(
            [bool(piece) and (after.startswith(piece) or piece.startswith(after)) for piece in self.pieces]
        )

    @property
    def spaced(self) -> Tensor:
        """The mask [V] of tokens that begin with white space."""
        return self._beginning(b" ") | self._beginning(b"\t") | self._beginning(b"\n")

    @staticmethod
    def _is_clean(piece: bytes) -> bool:
        return bool(piece) and UNWANTED_BYTES.isdisjoint(piece)
