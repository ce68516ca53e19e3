"""A canvas as long as allowed, that ends where the model says end of text: for models that write from left to right."""

from typing import ClassVar

from midfill_engine.lengths.fixed import Fixed


class UntilEnd(Fixed):
    default_tokens: ClassVar[int] = 128
    may_delete = True
