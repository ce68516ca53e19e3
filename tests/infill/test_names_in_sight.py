"""Which names are in sight of a hole."""

from midfill_infill.proposals.sight import Sight


def test_only_whole_words_are_in_sight() -> None:
    sight = Sight(["value_of = other.value", "$name"], frozenset({"print"}))
    assert sight.has("value") and sight.has("value_of") and sight.has("print")
    assert not sight.has("val") and not sight.has("name")
    assert Sight([], None).has("anything"), "where no list of built-in names is kept"
