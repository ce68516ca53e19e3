"""Finds by bisection which of many fills make a test fail. Knows ids of holes; runs nothing itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Test = Callable[[Sequence[int]], bool]


@dataclass
class Verdict:
    """The result of a search, as ids of holes. `good` passes as a whole; adding any of `guilty` to it failed twice. Of
    `doubtful` the same test both passed and failed. No test that passes runs `unproven`. `num_runs` counts the tests.
    """

    good: list[int] = field(default_factory=list)
    guilty: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)
    unproven: list[int] = field(default_factory=list)
    num_runs: int = 0


def find_guilty(suspects: Sequence[int], test: Test) -> Verdict:
    """Splits the ids `suspects` into good and guilty ones. `test(chosen)` is True if the tree passes with `chosen` in
    it.

    Suspects that pass stay in the tree while others are tested, so the last of those that fail only together becomes
    guilty. If one half of some suspects passes, the other half must fail, and is not tested as a whole. Before a
    suspect counts as guilty, a test of it alone repeats the known result; if it passes then, it is doubtful, which ends
    the search. One guilty suspect among n costs at most 2 + 2 * log2(n) tests.
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
            if passes(chosen):
                verdict.doubtful.extend(chosen)
            else:
                verdict.guilty.extend(chosen)
            return
        middle = len(chosen) // 2
        num_good = len(verdict.good)
        search(chosen[:middle], known_to_fail=False)
        search(chosen[middle:], known_to_fail=len(verdict.good) == num_good + middle)

    search(suspects, known_to_fail=False)
    return verdict
