"""Finds by bisection which of many fills make a test fail. Knows ids of holes; runs nothing itself."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

# Tests the tree with the fills of just these holes in it, and returns True if it passes.
Test = Callable[[Sequence[int]], bool]
# Tests it likewise, and returns the indices of the parts that fail; None if something else fails, too.
TestParts = Callable[[Sequence[int]], set[int] | None]


@dataclass
class Verdict:
    """The result of a search, as ids of holes. `good` passes as a whole; adding any of `guilty` to it failed twice. For
    `doubtful` one test both passed and failed. No passing test runs `unproven`. `num_runs` counts the tests.
    """

    good: list[int] = field(default_factory=list)
    guilty: list[int] = field(default_factory=list)
    doubtful: list[int] = field(default_factory=list)
    unproven: list[int] = field(default_factory=list)
    num_runs: int = 0


def find_guilty(suspects: Sequence[int], test: Test, *, known_to_fail: bool = False) -> Verdict:
    """Splits the ids `suspects` into good and guilty ones. `known_to_fail`: `test` has failed with all of them.

    Suspects that pass stay in the tree while others are tested, so if some fail only together, the last one of them
    becomes guilty. If the first half of failing suspects passes, the second half must fail, and is not tested as a
    whole. Before a suspect counts as guilty, the test that it failed is repeated; if that passes, the suspect is
    doubtful, which ends the search. One guilty suspect among n costs at most 2 + 2 * log2(n) tests.
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


def _search(verdict: Verdict, suspects: Sequence[int], *, known_to_fail: bool) -> Generator[list[int], bool, None]:
    """Adds each of `suspects` to a list of `verdict`. Yields the ids to test, and is sent whether they pass."""
    if not suspects or verdict.doubtful:
        return
    if not known_to_fail and (yield [*verdict.good, *suspects]):
        verdict.good.extend(suspects)
        return
    if len(suspects) == 1:
        passes_now = yield [*verdict.good, *suspects]
        (verdict.doubtful if passes_now else verdict.guilty).extend(suspects)
        return
    middle = len(suspects) // 2
    num_good = len(verdict.good)
    yield from _search(verdict, suspects[:middle], known_to_fail=False)
    yield from _search(verdict, suspects[middle:], known_to_fail=len(verdict.good) == num_good + middle)


def find_guilty_apart(good: Sequence[int], parts: Sequence[Sequence[int]], test: TestParts) -> Verdict | None:
    """As `find_guilty`, for suspects in `parts`, each of which fails in tests of its own; `good` are those in no part.
    Each test serves the searches of all parts, so they take 1 + 2 * log2(number of parts) tests more than the longest
    one. Returns None if that is impossible: `good` does not pass, a suspect is doubtful, or the tests of a part fail
    for another reason than its own guilty fills.
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
    # Guilty fills must fail in their own part alone: of any two parts, each is in the tree once without the other.
    for bit in range((len(parts) - 1).bit_length()):
        for value in (0, 1):
            inside = {index for index in range(len(parts)) if index >> bit & 1 == value}
            guilty = chain.from_iterable(verdicts[index].guilty for index in sorted(inside))
            if test([*together.good, *guilty]) != inside:
                return None
    together.guilty.extend(chain.from_iterable(verdict.guilty for verdict in verdicts))
    return together


def split(groups: Iterable[Iterable[int]]) -> list[set[int]]:
    """Splits all ids of some groups into disjoint parts: groups that have an id in common go into one part."""
    parts: list[set[int]] = []
    for group in map(set, groups):
        apart = [part for part in parts if part.isdisjoint(group)]
        parts = [*apart, group.union(*(part for part in parts if not part.isdisjoint(group)))]
    return parts
