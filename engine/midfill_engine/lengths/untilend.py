"""A canvas as long as allowed; an end-of-text token ends it: for models that decode from left to right."""

from typing import ClassVar

from midfill_engine.lengths.fixed import Fixed


class UntilEnd(Fixed):
    default_tokens: ClassVar[int] = 128
    may_delete = True
