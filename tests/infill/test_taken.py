"""What earlier fills propose."""

from midfill_infill.proposals import Surroundings, propose
from midfill_infill.syntax.holes import body_named, hole_at_cursor
from midfill_infill.text.document import Document


def test_what_was_taken_before_is_proposed_where_it_fits() -> None:
    document = Document(b"class A:\n    def f(self):\n        ...\n\n\nx = 1\n\ny = 2\n", "python")
    taken = ["if a:\n    b()\nreturn c", "x += 1"]
    around = Surroundings(document, (body_named(document, "A.f"),), taken=taken)
    found = propose(("taken",), around, 0)
    assert [each.text for each in found] == ["if a:\n            b()\n        return c", "x += 1"]
    assert found[0].certainty > found[1].certainty and found[0].origin == "as you took before"
    line = Surroundings(document, (hole_at_cursor(document, document.data.index(b"\n\ny") + 1),), taken=taken)
    assert [each.text for each in propose(("taken",), line, 0)] == ["x += 1"]
    assert len(propose(("taken",), Surroundings(document, around.holes, taken=list(map(str, range(99)))), 0)) == 8
