"""Bodies proposed from the functions most alike, their names changed as between the headers."""

import random
import time
from collections.abc import Sequence

from midfill_infill.context.references import Reference
from midfill_infill.proposals import Proposal, Surroundings
from midfill_infill.proposals.siblings import NUM_BODIES, propose_siblings
from midfill_infill.proposals.sight import Sight
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


def propose_all(
    source: str, name: str, references: Sequence[Reference] = (), seen: str = "", language: str = "python"
) -> list[Proposal]:
    document = Document(source.encode(), language)
    hole = body_named(document, name)
    around = Surroundings(document, (hole,), references)
    vars(around)["sight"] = Sight([seen or source], frozenset())  # a cached property
    return propose_siblings(around, 0)


def propose(source: str, name: str, references: Sequence[Reference] = (), seen: str = "") -> list[Proposal]:
    """The first."""
    return propose_all(source, name, references, seen)[:1]


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


def test_a_body_of_a_script_is_drafted_from_its_sibling() -> None:
    source = (
        "export function readTeam(id) {\n  return get(`/team/${id}`)\n}\n\n"
        "export function readUser(id) {\n  throw new Error('not implemented')\n}\n"
    )
    (draft,) = propose_all(source, "readUser", seen=source + "user", language="javascript")
    assert (draft.text, draft.origin) == ("return get(`/user/${id}`)", "like `readTeam`")


def test_the_three_most_alike_are_proposed_each_with_its_name() -> None:
    calls = {"one": "max", "two": "min", "three": "len", "four": "list"}
    others = "".join(f"def sum_{name}(rows):\n    return {call}(rows)\n\n\n" for name, call in calls.items())
    found = propose_all(f"{others}def sum_five(rows):\n    ...\n", "sum_five")
    assert len({each.text for each in found}) == len(found) == NUM_BODIES
    assert [each.certainty for each in found] == sorted((each.certainty for each in found), reverse=True)
    assert all(each.origin.startswith("like `sum_") for each in found)


def test_a_body_is_as_far_to_the_right_as_its_hole() -> None:
    deep = "class A:\n    class B:\n        def read(self, path):\n            if path:\n                return path\n"
    (found,) = propose_all(f"{deep}\n\ndef read(path):\n    ...\n", "read")
    assert found.text == "if path:\n        return path"


def test_a_test_is_like_tests_alone() -> None:
    source = "def test_total():\n    assert total([1]) == 1\n\n\ndef total(rows):\n    ...\n"
    assert propose_all(source, "total") == []
    assert propose_all(source.replace("def total(rows)", "def test_totals()"), "test_totals") != []


def test_a_body_that_begins_with_a_block_is_moved_as_a_whole() -> None:
    body = "{\n\t\tstart(a)\n\t}\n\tstop(a)"
    source = f"func runOne(a int) {{\n\t{body}\n}}\n\nfunc runTwo(a int) {{\n}}\n"
    assert propose_all(source, "runTwo", language="go")[0].text == body


def test_huge_docstrings_are_compared_at_once() -> None:
    draw = random.Random(1)
    docstrings = (" ".join(draw.choices("abcdefgh", k=5000)) for _ in range(12))
    functions = (
        f'def sum_{number}(a):\n    """{text}"""\n    return {number}\n' for number, text in enumerate(docstrings)
    )
    start_s = time.process_time()
    assert propose("\n".join(functions), "sum_3")
    assert time.process_time() - start_s < 1
