"""The scheduler over fake fills: fairness, bounds, cancelling, failures."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.engine.fakes import ENDLESS, LIMIT_S, FakeFills, Pace, wait_until

from midfill_engine.errors import RequestError
from midfill_engine.scheduling.scheduler import Scheduler, is_out_of_memory
from midfill_engine.scheduling.turns import Event
from midfill_engine.scheduling.work import Claim, Fill, Show, Work, gather
from midfill_engine.wire import ErrorCode, FilledHole, InfillRequest, InfillResponse, Stats, StepEvent


def request(name: str) -> InfillRequest:
    return InfillRequest.model_validate({"segments": [{"hole": {}}], "tag": name})


class Reader:
    """Collects a ticket's events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, StepEvent):
            self.ended.set()

    def end(self) -> InfillResponse | RequestError:
        assert self.ended.wait(LIMIT_S)
        assert not isinstance(self.events[-1], StepEvent)
        return self.events[-1]


MakeScheduler = Callable[..., Scheduler]


@pytest.fixture
def make_scheduler() -> Iterator[MakeScheduler]:
    made: list[Scheduler] = []

    def make(open_fill: Callable[[InfillRequest], Fill], **options: object) -> Scheduler:
        made.append(Scheduler(open_fill, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()


def test_the_scheduler_rests_whenever_no_request_is_open(make_scheduler: MakeScheduler) -> None:
    open_at_rest, rested = list[int](), threading.Event()
    fills = FakeFills(num_steps=3)

    def rest() -> None:
        open_at_rest.append(scheduler.num_open)
        rested.set()

    scheduler = make_scheduler(fills, on_idle=rest)
    for name in ("first", "second"):
        rested.clear()
        scheduler.submit(request(name), reader := Reader())
        reader.end()
        assert rested.wait(LIMIT_S)
    assert open_at_rest == [0, 0]


def test_open_fills_take_turns_step_by_step(make_scheduler: MakeScheduler) -> None:
    pace = Pace()
    fills = FakeFills(num_steps=6, on_step=pace)
    scheduler = make_scheduler(fills)
    readers = [Reader() for _ in range(3)]
    for name, reader in zip("abc", readers, strict=True):
        scheduler.submit(request(name), reader)
    pace.free()
    assert all(isinstance(reader.end(), InfillResponse) for reader in readers)
    order = "".join(step.tag or "" for step in fills.stepped)
    shared = order[order.index("c") :]
    counts = [order[: order.index("c")].count(name) for name in "ab"]
    assert max(counts) <= 2
    assert all(len(set(shared[start : start + 3])) == 3 for start in range(0, 9, 3))


def test_a_short_fill_does_not_wait_for_a_long_one(make_scheduler: MakeScheduler) -> None:
    pace = Pace()
    fills = FakeFills(ENDLESS, on_step=pace)
    scheduler = make_scheduler(lambda asked: FakeFills(3)(asked) if asked.tag == "short" else fills(asked))
    scheduler.submit(request("long"), Reader())
    reader, num_steps = Reader(), list[int]()

    def note(event: Event) -> None:
        num_steps.append(len(fills.stepped))
        reader(event)

    scheduler.submit(request("short"), note)
    pace.free()
    assert isinstance(reader.end(), InfillResponse)
    assert num_steps[-1] <= 5  # of the long one: a first by itself, then one for each of the short one's


def test_too_many_open_requests_are_refused_at_once(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(FakeFills(ENDLESS, step_s=0.01), max_requests=4, max_active=2)
    tickets = [scheduler.submit(request("x"), Reader()) for _ in range(4)]
    with pytest.raises(RequestError) as caught:
        scheduler.submit(request("x"), Reader())
    assert (caught.value.code, caught.value.status) == (ErrorCode.BUSY, 429)
    assert caught.value.headers["retry-after"] == "1"
    for ticket in tickets:
        ticket.cancel()


def test_a_waiting_request_runs_when_there_is_room(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(FakeFills(num_steps=3, step_s=0.002), max_active=1)
    readers = [Reader() for _ in range(4)]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    assert all(isinstance(reader.end(), InfillResponse) for reader in readers)
    assert scheduler.num_open == 0


@pytest.mark.parametrize("position", [0, 1, 5])
def test_cancelling_frees_the_place_within_a_step(make_scheduler: MakeScheduler, position: int) -> None:
    """Only the step that is running when the cancel comes is let through."""
    pace = Pace()
    fills = FakeFills(ENDLESS, on_step=pace)
    scheduler = make_scheduler(fills, max_active=4)
    readers = [Reader() for _ in range(6)]
    tickets = [scheduler.submit(request(str(index)), reader) for index, reader in enumerate(readers)]

    def count() -> int:
        return sum(step.tag == str(position) for step in fills.stepped)

    pace.allow(12)
    wait_until(lambda: len(fills.stepped) == 12)
    num_before = count()
    tickets[position].cancel()
    pace.allow(1)
    end = readers[position].end()
    assert isinstance(end, RequestError) and end.code is ErrorCode.CANCELLED
    assert scheduler.num_open == 5
    assert len(fills.stepped) <= 13
    assert count() <= num_before + 1
    num_stepped = count()
    pace.allow(12)
    wait_until(lambda: len(fills.stepped) >= 24)
    assert count() == num_stepped
    pace.free()


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


async def failing(error: Exception) -> InfillResponse:
    await Show(StepEvent(step=0, num_steps=2, holes=[]))
    raise error


@pytest.mark.parametrize(
    ("error", "code", "recovers"),
    [
        (OutOfMemoryError("CUDA out of memory"), ErrorCode.OUT_OF_MEMORY, True),
        (MemoryError(), ErrorCode.OUT_OF_MEMORY, True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ErrorCode.OUT_OF_MEMORY, True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9.05 GB)"), ErrorCode.OUT_OF_MEMORY, True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), ErrorCode.OUT_OF_MEMORY, True),
        (RequestError(ErrorCode.TOO_LARGE, "too large"), ErrorCode.TOO_LARGE, False),
        (ZeroDivisionError("secret code"), ErrorCode.INTERNAL, False),
    ],
)
def test_a_failure_ends_one_fill_only(
    make_scheduler: MakeScheduler, caplog: pytest.LogCaptureFixture, error: Exception, code: ErrorCode, recovers: bool
) -> None:
    recovered: list[bool] = []
    good = FakeFills(num_steps=20, step_s=0.001)
    scheduler = make_scheduler(
        lambda asked: failing(error) if asked.tag == "bad" else good(asked),
        on_out_of_memory=lambda: recovered.append(True),
    )
    bystander, victim = Reader(), Reader()
    scheduler.submit(request("good"), bystander)
    scheduler.submit(request("bad"), victim)
    end = victim.end()
    assert isinstance(end, RequestError) and end.code is code
    assert isinstance(bystander.end(), InfillResponse)
    assert bool(recovered) is recovers
    assert "secret" not in caplog.text + end.message
    assert scheduler.num_open == 0


class AcceleratorError(RuntimeError):
    """Named like torch's."""


def test_a_lost_device_ends_the_engine(make_scheduler: MakeScheduler) -> None:
    failed = threading.Event()
    scheduler = make_scheduler(lambda asked: failing(AcceleratorError("illegal access")), on_device_lost=failed.set)
    reader = Reader()
    scheduler.submit(request("x"), reader)
    assert isinstance(reader.end(), RequestError)
    assert failed.is_set()


def test_closing_ends_every_request(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(FakeFills(ENDLESS, step_s=0.005), max_active=2)
    readers = [Reader() for _ in range(5)]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    scheduler.close()
    assert all(isinstance(reader.end(), RequestError) for reader in readers)
    with pytest.raises(RequestError):
        scheduler.submit(request("x"), Reader())


def test_fifty_failures_in_a_row_leave_the_scheduler_working(make_scheduler: MakeScheduler) -> None:
    def sometimes(asked: InfillRequest) -> Fill:
        return failing(OutOfMemoryError()) if asked.tag == "bad" else FakeFills(1)(asked)

    scheduler = make_scheduler(sometimes)
    for _ in range(50):
        bad, good = Reader(), Reader()
        scheduler.submit(request("bad"), bad)
        scheduler.submit(request("good"), good)
        assert isinstance(bad.end(), RequestError)
        assert isinstance(good.end(), InfillResponse)


async def working(num_steps: int, num_bytes: int = 0, num_rows: int = 1) -> InfillResponse:
    """A fill of steps that need a forward; its passes and their answers are numbers."""
    await Claim(num_bytes)
    total = 0
    for step in range(num_steps):
        event = StepEvent(step=step, num_steps=num_steps, holes=[])
        (answer,) = await Work([step], num_rows, event)
        total += answer
    hole = FilledHole(text=str(total), tokens=[], confidence=[])
    return InfillResponse(model="fake", holes=[hole], stats=Stats(steps=num_steps, forwards=0, tokens=0, ms=0.0))


class Forwards:
    """Counts the passes of every forward; the first one waits until `go` is set, when all requests are in."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go = threading.Event()

    def __call__(self, passes: list[int]) -> list[int]:
        assert self.go.wait(LIMIT_S)
        self.sizes.append(len(passes))
        return [10 * step for step in passes]


def test_steps_of_open_fills_share_a_forward(make_scheduler: MakeScheduler) -> None:
    forwards = Forwards()
    scheduler = make_scheduler(lambda asked: working(10), run=forwards)
    readers = [Reader() for _ in range(4)]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    forwards.go.set()
    for reader in readers:
        end = reader.end()
        assert isinstance(end, InfillResponse)
        assert end.holes[0].text == "450"
    assert max(forwards.sizes) == 4
    assert sum(forwards.sizes) == 40
    assert len(forwards.sizes) <= 11  # 10, and the first where not all had come when it began
    assert b"midfill_shared_steps_total" in scheduler.metrics.show()


def test_all_runs_on_one_thread_without_an_event_loop(make_scheduler: MakeScheduler) -> None:
    threads, ended = list[str](), threading.Event()

    def note() -> None:
        threads.append(threading.current_thread().name)
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()

    async def fill(asked: InfillRequest) -> InfillResponse:
        note()
        return await working(2)

    def run(passes: list[int]) -> list[int]:
        note()
        return passes

    def listen(event: Event) -> None:
        note()
        if isinstance(event, InfillResponse):
            ended.set()

    make_scheduler(fill, run=run).submit(request("x"), listen)
    assert ended.wait(LIMIT_S)
    assert threads == ["midfill-scheduler"] * 6


def test_cancelling_ends_the_coroutines_of_a_fill_between_two_passes(make_scheduler: MakeScheduler) -> None:
    running, ended = list[str](), list[str]()

    async def part(name: str) -> None:
        try:
            while True:
                await Work([0], 1)
                running.append(name)
        finally:
            ended.append(name)

    async def fill(asked: InfillRequest) -> InfillResponse:
        await gather(part("a"), part("b"))
        raise AssertionError("its parts ended")

    reader = Reader()
    ticket = make_scheduler(fill, run=lambda passes: passes).submit(request("x"), reader)
    wait_until(lambda: len(running) > 4)
    ticket.cancel()
    end = reader.end()
    assert isinstance(end, RequestError) and end.code is ErrorCode.CANCELLED
    assert ended == ["a", "b"] and running == ["a", "b"] * (len(running) // 2)


def test_steps_are_shown_while_a_launched_forward_runs_and_built_only_for_who_watches(
    make_scheduler: MakeScheduler,
) -> None:
    done, built = list[str](), list[str]()

    async def fill(asked: InfillRequest) -> InfillResponse:
        await Claim(0)

        def show() -> StepEvent:
            built.append(asked.tag or "")
            return StepEvent(step=0, num_steps=1, holes=[])

        await Work([1], 1, show)
        return await working(0)

    def launch(passes: list[int]) -> Callable[[], list[int]]:
        done.append("launched")

        def wait() -> list[int]:
            done.append("waited")
            return passes

        return wait

    def listen(event: Event) -> None:
        done.append("shown") if isinstance(event, StepEvent) else ended.set()

    scheduler = make_scheduler(fill, launch=launch)
    for name, watches in (("seen", True), ("unseen", False)):
        ended = threading.Event()
        scheduler.submit(request(name), listen, watches=watches)
        assert ended.wait(LIMIT_S)
    assert done == ["launched", "shown", "waited", "launched", "waited"]
    assert built == ["seen"]


def test_a_forward_holds_no_more_rows_than_allowed(make_scheduler: MakeScheduler) -> None:
    forwards = Forwards()
    scheduler = make_scheduler(lambda asked: working(6, num_rows=30), run=forwards, max_rows=64)
    readers = [Reader() for _ in range(5)]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    forwards.go.set()
    assert all(isinstance(reader.end(), InfillResponse) for reader in readers)
    assert max(forwards.sizes) == 2


def test_memory_is_claimed_before_it_is_used(make_scheduler: MakeScheduler) -> None:
    forwards, seen = Forwards(), list[int]()

    def run(passes: list[int]) -> list[int]:
        results = forwards(passes)
        seen.append(scheduler.claimed_bytes)
        return results

    scheduler = make_scheduler(lambda asked: working(5, num_bytes=400), run=run, max_bytes=1000)
    readers = [Reader() for _ in range(6)]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    forwards.go.set()
    assert all(isinstance(reader.end(), InfillResponse) for reader in readers)
    assert max(seen) == 800
    assert max(forwards.sizes) == 2
    assert scheduler.claimed_bytes == 0


def test_what_can_never_fit_is_refused(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(lambda asked: working(5, num_bytes=2000), max_bytes=1000)
    reader = Reader()
    scheduler.submit(request("x"), reader)
    end = reader.end()
    assert isinstance(end, RequestError) and end.code is ErrorCode.TOO_LARGE


def test_the_newest_request_of_a_document_goes_first(make_scheduler: MakeScheduler) -> None:
    order: list[str] = []
    started = threading.Event()

    def open_fill(asked: InfillRequest) -> Fill:
        order.append(asked.tag or "")
        if asked.tag == "first":
            assert started.wait(LIMIT_S)
        return FakeFills(1)(asked)

    scheduler = make_scheduler(open_fill, max_active=1)
    readers = [Reader() for _ in range(5)]
    names = [("first", None), ("old", "a.py"), ("other", None), ("newer", "a.py"), ("newest", "a.py")]
    for (tag, document), reader in zip(names, readers, strict=True):
        scheduler.submit(request(tag).model_copy(update={"document": document}), reader)
    started.set()
    assert all(isinstance(reader.end(), InfillResponse) for reader in readers)
    assert order == ["first", "newest", "newer", "old", "other"]


@pytest.mark.parametrize("frees", [True, False])
def test_a_lack_of_memory_fails_only_its_cause(frees: bool, make_scheduler: MakeScheduler) -> None:
    """A forward that fails is tried in halves; a request alone once more, in halves of its own."""
    recovered: list[bool] = []

    def recover() -> None:
        recovered.append(frees)
        if not frees:
            raise RuntimeError("the device failed")

    def run(passes: list[int]) -> list[int]:
        if -1 in passes or len(passes) > 3:
            raise OutOfMemoryError("CUDA out of memory")
        return passes

    async def bad() -> InfillResponse:
        await Work([-1], 1)
        raise AssertionError("it got an answer")

    async def wide() -> InfillResponse:
        answer = await Work([1, 2, 3, 4, 5], 5)
        hole = FilledHole(text=str(answer), tokens=[], confidence=[])
        return InfillResponse(model="fake", holes=[hole], stats=Stats(steps=1, forwards=1, tokens=0, ms=0.0))

    kinds = {"bad": bad, "wide": wide, "good": lambda: working(8)}
    scheduler = make_scheduler(lambda asked: kinds[asked.tag or ""](), run=run, on_out_of_memory=recover)
    readers = {name: Reader() for name in ("good", "bad", "wide")}
    for name, reader in readers.items():
        scheduler.submit(request(name), reader)
    ends = {name: reader.end() for name, reader in readers.items()}
    assert isinstance(ends["good"], InfillResponse)
    assert isinstance(ends["wide"], InfillResponse)
    assert ends["wide"].holes[0].text == "[1, 2, 3, 4, 5]"
    assert isinstance(ends["bad"], RequestError) and ends["bad"].code is ErrorCode.OUT_OF_MEMORY
    assert recovered


def test_a_refusal_says_when_to_come_again(make_scheduler: MakeScheduler) -> None:
    """From how long fills took in their places: two of 5 seconds move the mean from 0 to 1.8, and eleven wait."""
    now_s, pace = [0.0], Pace()

    def step(number: int) -> None:
        pace(number)
        now_s[0] += 0.5

    fills = FakeFills(10, on_step=step)
    scheduler = make_scheduler(fills, max_requests=12, max_active=1, clock=lambda: now_s[0])
    readers = [Reader(), Reader()]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    pace.allow(20)
    for reader in readers:
        assert isinstance(reader.end(), InfillResponse)
    tickets = [scheduler.submit(request("x"), Reader()) for _ in range(12)]
    wait_until(lambda: len(scheduler._active) == 1)
    with pytest.raises(RequestError) as caught:
        scheduler.submit(request("x"), Reader())
    assert caught.value.headers["retry-after"] == "20"
    for ticket in tickets:
        ticket.cancel()
    pace.free()


def test_other_runtime_errors_are_no_lack_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
