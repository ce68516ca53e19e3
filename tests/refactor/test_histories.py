"""Random histories of apply, edit and undo over two runs: a file always holds exactly what the reports say it does."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.refactor.trees import HOLE, Tree, fill_of, make_tree, source

from midfill_infill.refactor.journal.records import WRITTEN, HoleRow, Report, StateChange
from midfill_infill.refactor.writing.apply import Writer
from midfill_infill.refactor.writing.reopening import note_put_back

NUM_HOLES = 4
NAMES = ("a.py", "b.py")

Step = tuple[str, int, int]
histories = st.lists(
    st.tuples(
        st.sampled_from(["apply", "apply", "undo", "undo", "insert", "delete", "spoil", "unspoil", "restore"]),
        st.integers(0, 2**NUM_HOLES - 1),
        st.integers(0, 40),
    ),
    min_size=2,
    max_size=12,
)


@dataclass
class Model:
    """A file as lines and holes. A hole is what stands in it now."""

    parts: list[bytes | int]
    texts: dict[int, bytes] = field(default_factory=dict)
    spoiled: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, data: bytes, first_hole: int) -> "Model":
        pieces = data.split(HOLE)
        parts: list[bytes | int] = list(pieces[0].splitlines(keepends=True))
        texts = {}
        for number, piece in enumerate(pieces[1:], start=first_hole):
            parts += [number, *piece.splitlines(keepends=True)]
            texts[number] = HOLE
        return cls(parts, texts)

    def render(self) -> bytes:
        return b"".join(part if isinstance(part, bytes) else self.texts[part] for part in self.parts)

    def plain_lines(self) -> list[int]:
        """Places of whole lines."""
        return [
            place
            for place, part in enumerate(self.parts)
            if isinstance(part, bytes) and part.endswith(b"\n") and part.startswith(b"X")
        ]


@dataclass
class World:
    tree: Tree
    models: dict[str, Model]

    def step(self, step: Step) -> None:
        action, chosen, place = step
        if action in ("apply", "undo"):
            self.write(action, [hole for hole in range(NUM_HOLES * len(NAMES)) if chosen >> (hole % NUM_HOLES) & 1])
            return
        name = NAMES[place % len(NAMES)]
        getattr(self, action)(self.models[name], place)
        (self.tree.root / name).write_bytes(self.models[name].render())

    def insert(self, model: Model, place: int) -> None:
        lines = model.plain_lines()
        model.parts.insert(lines[place % len(lines)], b"X_MINE = %d\n" % place)

    def delete(self, model: Model, place: int) -> None:
        lines = model.plain_lines()
        if len(lines) > 2:
            del model.parts[lines[place % len(lines)]]

    def spoil(self, model: Model, place: int) -> None:
        hole = sorted(model.texts)[place % len(model.texts)]
        model.spoiled.setdefault(hole, model.texts[hole])
        model.texts[hole] = b"return %d" % place

    def unspoil(self, model: Model, place: int) -> None:
        hole = sorted(model.texts)[place % len(model.texts)]
        model.texts[hole] = model.spoiled.pop(hole, model.texts[hole])

    def restore(self, model: Model, place: int) -> None:
        """Puts the old text back, as git does."""
        hole = sorted(model.texts)[place % len(model.texts)]
        model.texts[hole] = HOLE
        model.spoiled.pop(hole, None)

    def write(self, action: str, numbers: list[int]) -> None:
        with self.tree.open() as journal:
            note_put_back(journal, self.tree.root)
            rows = [journal.hole(number + 1) for number in numbers]
            was = {row.id: row for row in rows}
            writer = Writer(journal, self.tree.root)
            if action == "apply":
                report = writer.apply([row for row in rows if not row.is_written], is_git=False)
            else:
                report = writer.undo(rows)
        self.take(action, was, report)
        for name, model in self.models.items():
            assert (self.tree.root / name).read_bytes() == model.render()

    def take(self, action: str, was: dict[int, HoleRow], report: Report) -> None:
        """What the report says was written is written in the model, where it must not have been spoiled."""
        written = [change for change in report.holes if (change.state in WRITTEN) == (action == "apply")]
        for change in [change for change in written if change.state not in ("stale", "failed")]:
            self.set(change, action)
        told = len(report.troubles) + len(written)
        assert told >= sum(row.is_written == (action == "undo") for row in was.values()), "a refusal was not told"

    def set(self, change: StateChange, action: str) -> None:
        number, index = divmod(change.hole - 1, NUM_HOLES)
        model = self.models[NAMES[number]]
        old, new = (HOLE, fill_of(number, index)) if action == "apply" else (fill_of(number, index), HOLE)
        assert model.texts[change.hole] == old, "what somebody else wrote was overwritten"
        model.texts[change.hole] = new


def play(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {name: source(number, NUM_HOLES, padding=3) for number, name in enumerate(NAMES)}
        tree = make_tree(Path(folder) / "repo", files)
        models = {name: Model.of(data, 1 + number * NUM_HOLES) for number, (name, data) in enumerate(files.items())}
        world = World(tree, models)
        for step in history:
            world.step(step)
        touched = any(action in ("insert", "delete", "spoil", "unspoil", "restore") for action, _, _ in history)
        world.write("undo", list(range(NUM_HOLES * len(NAMES))))
        if not touched:
            assert world.tree.contents() == files


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories)
def test_short_histories(history: list[Step]) -> None:
    play(history)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories)
def test_two_hundred_histories(history: list[Step]) -> None:
    play(history)
