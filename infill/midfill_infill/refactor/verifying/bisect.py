"""Finds guilty items by group testing. Knows numbers and a test, nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Test = Callable[[Sequence[int]], bool]


@dataclass
class Verdict:
    """`good` passes as a whole; adding any of `guilty` to it failed twice. `num_runs` counts tests.

    `doubtful` items both passed and failed the same test.
    """

    good: list[int] = field(default_factory=list)
    guilty: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)
    num_runs: int = 0


def find_guilty(suspects: Sequence[int], test: Test) -> Verdict:
    """Splits `suspects` into good and guilty; `test(chosen)` says whether the tree passes with `chosen` in it.

    One guilty among n costs at most 2 + 2 * log2(n) tests: the last asks what is known once more, and where it passes
    the search ends there. What passes is kept while the others are tested, so two that only fail together cost one of
    them. Where a half passes, the other is known to fail and is not tested whole.
    """
    verdict = Verdict()

    def passes(chosen: Sequence[int]) -> bool:
        verdict.num_runs += 1
        return test([*verdict.good, *chosen])

    def search(chosen: Sequence[int], *, known_to_fail: bool) -> None:
        if not chosen or verdict.doubtful:
            return
        if not known_to_fail and passes(chosen):
            verdict.good.extend(chosen)
            return
        if len(chosen) == 1:
            (verdict.doubtful if passes(chosen) else verdict.guilty).extend(chosen)
            return
        middle = len(chosen) // 2
        num_good = len(verdict.good)
        search(chosen[:middle], known_to_fail=False)
        search(chosen[middle:], known_to_fail=len(verdict.good) == num_good + middle)

    search(suspects, known_to_fail=False)
    return verdict
