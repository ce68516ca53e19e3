"""The scheduler over fake fills: fairness, bounds, cancelling, failures."""

import threading
import time
from collections.abc import Callable, Generator, Iterator

import pytest
from tests.engine.fakes import FakeFills

from midfill_engine.errors import RequestError
from midfill_engine.scheduler import Event, Fill, Scheduler, is_out_of_memory
from midfill_engine.wire import ErrorCode, InfillRequest, InfillResponse, StepEvent


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
        assert self.ended.wait(5)
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


def test_open_fills_take_turns_step_by_step(make_scheduler: MakeScheduler) -> None:
    fills = FakeFills(num_steps=6, step_s=0.005)
    scheduler = make_scheduler(fills)
    readers = [Reader() for _ in range(3)]
    for name, reader in zip("abc", readers, strict=True):
        scheduler.submit(request(name), reader)
    assert all(isinstance(reader.end(), InfillResponse) for reader in readers)
    order = "".join(step.tag or "" for step in fills.stepped)
    shared = order[order.index("c") :]
    counts = [order[: order.index("c")].count(name) for name in "ab"]
    assert max(counts) <= 2
    assert all(len(set(shared[start : start + 3])) == 3 for start in range(0, 9, 3))


def test_a_short_fill_does_not_wait_for_a_long_one(make_scheduler: MakeScheduler) -> None:
    fills = FakeFills(num_steps=1000, step_s=0.002)
    scheduler = make_scheduler(lambda asked: FakeFills(3)(asked) if asked.tag == "short" else fills(asked))
    scheduler.submit(request("long"), Reader())
    reader = Reader()
    scheduler.submit(request("short"), reader)
    assert isinstance(reader.end(), InfillResponse)
    assert len(fills.stepped) < 100


def test_too_many_open_requests_are_refused_at_once(make_scheduler: MakeScheduler) -> None:
    scheduler = make_scheduler(FakeFills(num_steps=1000, step_s=0.01), max_requests=4, max_active=2)
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
    step_s = 0.03
    fills = FakeFills(num_steps=1000, step_s=step_s)
    scheduler = make_scheduler(fills, max_active=4)
    readers = [Reader() for _ in range(6)]
    tickets = [scheduler.submit(request(str(index)), reader) for index, reader in enumerate(readers)]
    time.sleep(0.2)
    started_s = time.monotonic()
    tickets[position].cancel()
    end = readers[position].end()
    assert time.monotonic() - started_s < step_s + 0.05
    assert isinstance(end, RequestError) and end.code is ErrorCode.CANCELLED
    assert scheduler.num_open == 5
    num_stepped = sum(step.tag == str(position) for step in fills.stepped)
    time.sleep(0.2)
    assert sum(step.tag == str(position) for step in fills.stepped) == num_stepped


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


def failing(error: Exception) -> Fill:
    yield StepEvent(step=0, num_steps=2, holes=[])
    raise error


@pytest.mark.parametrize(
    ("error", "code", "recovers"),
    [
        (OutOfMemoryError("CUDA out of memory"), ErrorCode.OUT_OF_MEMORY, True),
        (MemoryError(), ErrorCode.OUT_OF_MEMORY, True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ErrorCode.OUT_OF_MEMORY, True),
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
        lambda asked: failing(error) if asked.tag == "bad" else good(asked), recover=lambda: recovered.append(True)
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
    scheduler = make_scheduler(lambda asked: failing(AcceleratorError("illegal access")), fail=failed.set)
    reader = Reader()
    scheduler.submit(request("x"), reader)
    assert isinstance(reader.end(), RequestError)
    assert failed.is_set()


def test_closing_ends_every_request(make_scheduler: MakeScheduler) -> None:
    fills = FakeFills(num_steps=1000, step_s=0.005)
    scheduler = make_scheduler(fills, max_active=2)
    readers = [Reader() for _ in range(5)]
    for reader in readers:
        scheduler.submit(request("x"), reader)
    scheduler.close()
    assert all(isinstance(reader.end(), RequestError) for reader in readers)
    with pytest.raises(RequestError):
        scheduler.submit(request("x"), Reader())


def test_fifty_failures_in_a_row_leave_the_scheduler_working(make_scheduler: MakeScheduler) -> None:
    def sometimes(asked: InfillRequest) -> Generator[StepEvent, None, InfillResponse]:
        return failing(OutOfMemoryError()) if asked.tag == "bad" else FakeFills(1)(asked)

    scheduler = make_scheduler(sometimes)
    for _ in range(50):
        bad, good = Reader(), Reader()
        scheduler.submit(request("bad"), bad)
        scheduler.submit(request("good"), good)
        assert isinstance(bad.end(), RequestError)
        assert isinstance(good.end(), InfillResponse)


def test_other_runtime_errors_are_no_lack_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
