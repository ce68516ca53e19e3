"""A body proposed from the most alike function, its names changed as between the headers."""

from collections.abc import Sequence

from midfill_engine.wire import Draft, FilledHole
from midfill_infill.candidates import Place
from midfill_infill.context.references import Reference
from midfill_infill.context.siblings import propose_body
from midfill_infill.splicing.sight import Sight
from midfill_infill.syntax.holes import body_named
from midfill_infill.text.document import Document

SOURCE = '''class Report:
    def sum_by_category(self, rows):
        """Sums up each category."""
        sums = {}
        for row in rows:
            sums[row.category] = sums.get(row.category, 0) + row.amount
        return sums

    def sum_by_payee(self, rows):
        """Sums up each payee."""
        ...

    def close(self):
        self.file.close()
'''


def propose(source: str, name: str, references: Sequence[Reference] = (), seen: str = "") -> list[Draft]:
    document = Document(source.encode(), "python")
    return propose_body(document, body_named(document, name), references, lambda word: word in (seen or source))


def test_names_change_as_between_the_headers() -> None:
    (draft,) = propose(SOURCE, "sum_by_payee")
    assert draft.text == (
        "sums = {}\n        for row in rows:\n"
        "            sums[row.payee] = sums.get(row.payee, 0) + row.amount\n        return sums"
    )
    (other,) = propose(SOURCE.replace("payee", "shop_name").replace("rows):", "entries):", 1), "sum_by_shop_name")
    assert "entries" not in other.text and "row in rows" in other.text


def test_a_name_changes_only_into_one_that_is_seen() -> None:
    (draft,) = propose(SOURCE, "sum_by_payee", seen="row rows sums category get amount for in return")
    assert "row.category" in draft.text and "payee" not in draft.text


def test_siblings_come_from_references_too_and_stubs_are_none() -> None:
    alone = 'def load_user(path):\n    """Loads a user."""\n    ...\n'
    assert propose(alone, "load_user") == []
    stub = Reference(kind="open", text='def load_user(path):\n    """Loads a user."""\n    pass\n')
    assert propose(alone, "load_user", [stub]) == []
    like = Reference(kind="open", text='def load_team(path):\n    """Loads a team."""\n    return Team.read(path)\n')
    far = Reference(kind="open", text="def shut(self):\n    self.door.close()\n")
    (draft,) = propose(alone, "load_user", [far, like], seen=alone + like.text)
    assert draft.text == "return Team.read(path)"
    (certain,) = propose(alone, "load_user", [like], seen=alone + like.text + " User")
    assert certain.text == "return User.read(path)"
    (unlike,) = propose(alone, "load_user", [far])
    assert unlike.certainty < certain.certainty


def test_a_body_that_reads_a_parameter_that_is_not_there_is_less_alike() -> None:
    lost = "def mean_of(values, weight: float = 1):\n    return weight * sum(values) / len(values)\n\n\n"
    sound = "def mean_span_width(values):\n    return max(values) - min(values)\n\n\n"
    wanted, both = "def mean(values):\n    ...\n", "def mean(values, weight):\n    ...\n"
    ((first,), (second,), (alone,)) = (
        propose(text, "mean") for text in (lost + sound + wanted, lost + sound + both, lost + wanted)
    )
    assert first.text == "return max(values) - min(values)"
    assert second.text == alone.text == "return weight * sum(values) / len(values)"


def test_scripts() -> None:
    source = (
        "export function readTeam(id) {\n  return get(`/team/${id}`)\n}\n\n"
        "export function readUser(id) {\n  throw new Error('not implemented')\n}\n"
    )
    document = Document(source.encode(), "javascript")
    (draft,) = propose_body(document, body_named(document, "readUser"), (), lambda word: True)
    assert draft.text == "return get(`/user/${id}`)"


def test_bodies_are_looked_for_only_where_a_fill_has_a_fault() -> None:
    document = Document(SOURCE.encode(), "python")
    hole = body_named(document, "sum_by_payee")
    place = Place(document, (hole,), Sight((SOURCE,), None))
    looked_for: list[int] = []

    def list_drafts(index: int) -> list[Draft]:
        looked_for.append(index)
        return [Draft(text="return rows", certainty=0.5)]

    good, bad = (
        place.row([FilledHole(text=text, tokens=[(0, len(text))], confidence=[0.9])])
        for text in ("return self.file", "return (")
    )
    assert place.improve(good, list_drafts) == good and not looked_for
    assert place.improve(bad, list_drafts).candidate.fills[0].text == "return rows" and looked_for == [0]
