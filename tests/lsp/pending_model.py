"""Random fills, moves, undos and kills over several documents, beside a plain model that knows what must be pending."""

import random
from dataclasses import dataclass, field

from pygls.exceptions import JsonRpcException
from tests.lsp.editor import Buffer, Editor
from tests.lsp.scripted_server import FILL

from midfill_infill.text.diffs import common_prefix

NUM_BODIES = 3
OTHERS = ("return 1", "return 2", FILL)
SOURCE = "# 😀\n" + "".join(f"def f{k}(ä):\n    return {k}  # ß\n\n\n" for k in range(NUM_BODIES))
OPERATIONS = tuple("fill fill fill accept discard discard reroll next undo undo redo type".split())


@dataclass
class Known:
    """What the model knows of a document: its texts in order of time, which fill made each, and what is pending."""

    buffer: Buffer
    texts: list[str]
    makers: list[int | None] = field(default_factory=lambda: [None])
    now: int = 0
    pending: dict[int, tuple[int, str]] = field(default_factory=dict)  # id -> body, what it held
    others: dict[int, tuple[str, ...]] = field(default_factory=dict)  # id -> its next alternatives

    @property
    def text(self) -> str:
        return self.texts[self.now]

    def add(self, text: str, maker: int | None) -> None:
        if text == self.text:
            return
        self.texts[self.now + 1 :], self.makers[self.now + 1 :] = [text], [maker]
        self.now += 1

    def meant(self, body: int) -> int | None:
        """The fill that a key at a body must act on."""
        here = [id for id, (other, _) in self.pending.items() if other == body]
        return max(here or self.pending, default=None)

    def drop_put_back(self, before: str) -> None:
        """An edit that is not the server's ends the fills whose bodies hold again what they held."""
        for id, (body, held) in list(self.pending.items()):
            if body_of(before, body) != body_of(self.text, body) == held:
                del self.pending[id]

    def line(self, body: int) -> int:
        return self.text[: self.text.index(f"def f{body}(")].count("\n") + 1


def body_of(text: str, body: int) -> str:
    return text.partition(f"def f{body}(ä):\n")[2].partition("\n")[0]


def put_body(text: str, body: int, new: str) -> str:
    head, name, rest = text.partition(f"def f{body}(ä):\n")
    return head + name + new + "\n" + rest.partition("\n")[2]


class Run:
    """One sequence; `wrong` says what the server did that the model did not expect."""

    def __init__(self, editor: Editor, chance: random.Random, number: int) -> None:
        self.editor, self.chance = editor, chance
        self.wrong: list[str] = []
        self.known = [Known(editor.open(SOURCE, uri=f"untitled:{number}/{index}"), [SOURCE]) for index in range(2)]

    async def step(self) -> str:
        known, body = self.chance.choice(self.known), self.chance.randrange(NUM_BODIES)
        operation = self.chance.choice(OPERATIONS)
        before = [set(each.pending) for each in self.known]
        self.editor.seen.told.clear()
        await getattr(self, f"_{operation}")(known, body)
        await self.editor.settle()
        for each, pending in zip(self.known, before, strict=True):
            self._compare(each, operation, pending)
        return operation

    def _compare(self, known: Known, operation: str, before: set[int]) -> None:
        told = {fill.id: fill for fill in self.editor.seen.pending.get(known.buffer.uri, [])}
        if known.buffer.text.source != known.text:
            self.wrong.append(f"{operation}: the text is {known.buffer.text.source!r}, not {known.text!r}")
        if told.keys() != known.pending.keys():
            self.wrong.append(f"{operation}: {sorted(told)} are pending, not {sorted(known.pending)}")
        for uri, ids in self.editor.seen.told:
            if uri == known.buffer.uri and set(ids) not in (before, known.pending.keys()):
                self.wrong.append(f"{operation}: for a moment {ids} were told as pending")

    def _place(self, known: Known, body: int) -> dict[str, object]:
        return {"uri": known.buffer.uri, "position": {"line": known.line(body), "character": 6}}

    async def _fill(self, known: Known, body: int) -> None:
        if any(other == body for other, _ in known.pending.values()) or FILL in body_of(known.text, body):
            return
        place = self._place(known, body)["position"]
        held = body_of(known.text, body)
        ranges = [{"start": place, "end": place}]
        result = await self.editor.do("fill", uri=known.buffer.uri, what="body", ranges=ranges, alternatives=3)
        known.pending[result["id"]] = body, held
        known.others[result["id"]] = OTHERS
        known.add(put_body(known.text, body, f"    {FILL}"), result["id"])

    async def _accept(self, known: Known, body: int) -> None:
        await self._close("accept", known, body)

    async def _discard(self, known: Known, body: int) -> None:
        await self._close("discard", known, body)

    async def _close(self, name: str, known: Known, body: int) -> None:
        wanted = known.meant(body)
        try:
            done = await self.editor.do(name, **self._place(known, body))
        except JsonRpcException as error:
            if wanted is not None or "nothing is pending here" not in error.message:
                self.wrong.append(f"{name}: {error.message}")
            return
        if done["id"] != wanted or wanted is None:
            self.wrong.append(f"{name}: acted on {done['id']}, not {wanted}")
            return
        body, held = known.pending.pop(wanted)
        if name == "discard":
            known.add(put_body(known.text, body, held), None)

    async def _reroll(self, known: Known, body: int) -> None:
        wanted = known.meant(body)
        if wanted is None:
            return
        result = await self.editor.do("reroll", **self._place(known, body))
        body, held = known.pending.pop(wanted)
        known.pending[result["id"]] = body, held
        new = body_of(known.buffer.text.source, body)
        known.add(put_body(known.text, body, new), result["id"])

    async def _next(self, known: Known, body: int) -> None:
        wanted = known.meant(body)
        if wanted is None or wanted not in known.others:
            return
        result = await self.editor.do("next", **self._place(known, body))
        shown, *others = known.others.pop(wanted)
        body, held = known.pending.pop(wanted)
        known.pending[result["id"]], known.others[result["id"]] = (body, held), (*others, shown)
        known.add(put_body(known.text, body, f"    {shown}"), result["id"])

    async def _undo(self, known: Known, body: int) -> None:
        if known.now:
            known.pending.pop(known.makers[known.now] or 0, None)
            known.now -= 1
            self._show(known)

    async def _redo(self, known: Known, body: int) -> None:
        if known.now + 1 < len(known.texts):
            known.now += 1
            self._show(known)

    async def _type(self, known: Known, body: int) -> None:
        """Inside of a body, or on the first line."""
        inside = f"def f{body}(ä):\n    ret"
        place = known.text.find(inside) + len(inside) if self.chance.random() < 0.5 and inside in known.text else 1
        self.editor.edit(known.buffer, place, place, "ü")
        before = known.text
        known.add(known.buffer.text.source, None)
        known.drop_put_back(before)

    def _show(self, known: Known) -> None:
        """An undo or redo as an editor tells it: all between the first difference and the last."""
        old, new = known.buffer.text.source, known.text
        start = common_prefix(old, new)
        tail = common_prefix(old[start:][::-1], new[start:][::-1])
        self.editor.edit(known.buffer, start, len(old) - tail, new[start : len(new) - tail])
        known.drop_put_back(old)


async def run_sequences(num_sequences: int, seed: int = 0, length: int = 12) -> tuple[int, list[str]]:
    """(operations, what was wrong). One server in fifty sequences is killed and started anew."""
    chance = random.Random(seed)
    editor, wrong, done = await start_fast(), [], 0
    try:
        for number in range(num_sequences):
            if number % 50 == 49:
                await editor.kill()
                editor = await start_fast()
            run = Run(editor, chance, number)
            for _ in range(length):
                await run.step()
                done += 1
                if run.wrong:
                    wrong.append(f"sequence {number}: {run.wrong[0]}")
                    break
            editor.reset()
    finally:
        await editor.kill()
    return done, wrong


async def start_fast() -> Editor:
    return await Editor().start(options={"model": "fast", "trigger": "manual", "steps": 1})
