"""Which names are in sight of a hole."""

from midfill_infill.splicing.sight import Sight


def test_only_whole_words_are_in_sight_and_a_missing_name_always() -> None:
    sight = Sight(["value_of = other.value", "$name"], frozenset({"print"}), lambda name: name == "json")
    assert sight.has("value") and sight.has("value_of") and sight.has("print") and sight.has("json.loads")
    assert not sight.has("val") and not sight.has("name") and not sight.has("other.lost")
    assert sight.has("") and sight.has("other.")  # what the parser missed has no text
