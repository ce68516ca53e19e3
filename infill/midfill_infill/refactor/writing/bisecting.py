"""Finds by bisection which of many fills make a test fail. Knows ids of holes; runs nothing itself."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

Test = Callable[[Sequence[int]], bool]
# The indices of the parts of which a test fails; None if something else fails.
TestParts = Callable[[Sequence[int]], set[int] | None]


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


def find_guilty(suspects: Sequence[int], test: Test, *, known_to_fail: bool = False) -> Verdict:
    """Splits the ids `suspects` into good and guilty ones. `test(chosen)` is True if the tree passes with `chosen` in
    it.

    Suspects that pass stay in the tree while others are tested, so the last of those that fail only together becomes
    guilty. If one half of some suspects passes, the other half must fail, and is not tested as a whole. Before a
    suspect counts as guilty, a test of it alone repeats the known result; if it passes then, it is doubtful, which ends
    the search. One guilty suspect among n costs at most 2 + 2 * log2(n) tests.
    """
    verdict = Verdict()
    search = _search(verdict, suspects, known_to_fail=known_to_fail)
    try:
        chosen = next(search)
        while True:
            verdict.num_runs += 1
            chosen = search.send(test(chosen))
    except StopIteration:
        return verdict


def find_guilty_apart(good: Sequence[int], parts: Sequence[Sequence[int]], test: TestParts) -> Verdict | None:
    """As `find_guilty`, for `parts` of the suspects each of which fails in tests of its own: searches all at once, so
    the number of tests is that of the longest search and 2 * log2(number of parts). None if others than the guilty ones
    of a part make its tests fail, or if suspects outside of all parts, `good`, do not pass.
    """
    verdicts = [Verdict() for _ in parts]
    searches = [_search(verdict, part, known_to_fail=True) for verdict, part in zip(verdicts, parts, strict=True)]
    asked = {index: next(search) for index, search in enumerate(searches)}
    if good and test(good) != set():
        return None
    while asked:
        chosen = [asked.get(index, verdict.good) for index, verdict in enumerate(verdicts)]
        failing = test([*good, *chain.from_iterable(chosen)])
        if failing is None:
            return None
        for index in list(asked):
            try:
                asked[index] = searches[index].send(index not in failing)
            except StopIteration:
                del asked[index]
        if any(verdict.doubtful for verdict in verdicts):
            return None
    together = Verdict([*good, *chain.from_iterable(verdict.good for verdict in verdicts)])
    for bit in range((len(parts) - 1).bit_length()):
        for value in (0, 1):  # of any two parts, each is once in the tree without the other
            inside = {index for index in range(len(parts)) if index >> bit & 1 == value}
            guilty = chain.from_iterable(verdicts[index].guilty for index in sorted(inside))
            if test([*together.good, *guilty]) != inside:
                return None
    together.guilty.extend(chain.from_iterable(verdict.guilty for verdict in verdicts))
    return together


def split(groups: Iterable[Iterable[int]]) -> list[set[int]]:
    """Joins groups that have an id in common."""
    parts: list[set[int]] = []
    for group in map(set, groups):
        apart = [part for part in parts if part.isdisjoint(group)]
        parts = [*apart, group.union(*(part for part in parts if not part.isdisjoint(group)))]
    return parts


def _search(verdict: Verdict, chosen: Sequence[int], *, known_to_fail: bool) -> Generator[list[int], bool, None]:
    """Adds to `verdict` which of `chosen` are good and guilty. Yields what to test, and is sent whether it passes."""
    if not chosen or verdict.doubtful:
        return
    if not known_to_fail and (yield [*verdict.good, *chosen]):
        verdict.good.extend(chosen)
        return
    if len(chosen) == 1:
        is_doubtful = yield [*verdict.good, *chosen]
        (verdict.doubtful if is_doubtful else verdict.guilty).extend(chosen)
        return
    middle = len(chosen) // 2
    num_good = len(verdict.good)
    yield from _search(verdict, chosen[:middle], known_to_fail=False)
    yield from _search(verdict, chosen[middle:], known_to_fail=len(verdict.good) == num_good + middle)
