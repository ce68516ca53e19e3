"""Settings: a bad value is named with what was expected, and costs only itself."""

import pytest

from midfill_lsp.settings import RULES, Settings, parse_settings
from midfill_lsp.views import find_innermost


def test_valid_settings_are_read_without_a_problem() -> None:
    values = {"model": "m", "device": "cuda", "steps": 9, "maxHoleTokens": 64, "seed": 3, "exclude": ["*.x"]}
    assert parse_settings(values) == (Settings("m", "cuda", 9, 64, 3, exclude=("*.x",)), [])
    assert len(RULES) <= 16
    assert parse_settings(None) == parse_settings({"steps": None}) == (Settings(), [])


@pytest.mark.parametrize("key, value, expected", [
    ("model", "  ", "a model's name or folder"), ("model", 3, "a model's name or folder"),
    ("device", [], "one of auto, cpu"), ("device", "gpu", "one of auto, cpu"), ("steps", 0, "from 1 to 1024"),
    ("steps", 1.5, "from 1 to 1024"), ("steps", True, "from 1 to 1024"), ("steps", "x" * 500, "not 'xxxx"),
    ("trigger", "always", "one of auto, manual"), ("debounceMs", -1, "from 0 to 5000"), ("exclude", "x", "a list"),
    ("exclude", [1], "a list of patterns"), ("repositoryContext", 1, "true or false"), ("preview", "on", "decoration"),
    ("ghostTextCertainty", 1.01, "from 0 to 1"), ("ghostTextCertainty", True, "from 0 to 1"),
    ("ghostTextCertainty", float("nan"), "from 0 to 1"), ("ghostTextCertainty", "0.5", "from 0 to 1"),
    ("ghostTextLogProbability", 0.1, "a number up to 0"), ("ghostTextLogProbability", "-1", "a number up to 0"),
    ("languages", ["python"], "true or false each"), ("languages", {"python": 1}, "true or false each"),
    ("maxHoleTokens", 10**9, "from 1 to 1024"), ("seed", -1, "from 0"),
])  # fmt: skip
def test_a_bad_value_costs_only_itself(key: str, value: object, expected: str) -> None:
    settings, (problem,) = parse_settings({key: value, ("seed" if key == "steps" else "steps"): 7})
    assert settings == (Settings(seed=7) if key == "steps" else Settings(steps=7))
    assert problem.startswith(f"midfill.{key} must be ") and expected in problem and len(problem) < 200


def test_ghost_text_by_language() -> None:
    settings, problems = parse_settings({"languages": {"markdown": False, "python": True}})
    assert not problems and [settings.suggests_in(name) for name in ("markdown", "python", "go", None)] == [
        False,
        True,
        True,
        True,
    ]
    settings, _ = parse_settings({"languages": {"*": False, "python": True}})
    assert [settings.suggests_in(name) for name in ("markdown", "python", None)] == [False, True, False]
    assert not Settings(trigger="manual", languages={"python": True}).suggests_in("python")


def test_the_innermost_folder_is_found_whatever_its_spelling() -> None:
    assert (
        find_innermost(["", "file:///%61%62%63", "file:///abc/d", "file:///ab"], "file:///abc/d/e.py")
        == "file:///abc/d"
    )


def test_an_unknown_key_lists_the_known() -> None:
    settings, (problem,) = parse_settings({"modle": "x"})
    assert settings == Settings()
    assert problem == (
        "midfill.modle is not a setting; known are model, device, steps, maxHoleTokens, seed, "
        "trigger, languages, debounceMs, ghostTextCertainty, ghostTextLogProbability, exclude, "
        "repositoryContext, nextEdits, preview, confidence, serverCommand."
    )


@pytest.mark.parametrize("values", [[1], "x", 7, False])
def test_settings_that_are_no_object_give_the_defaults_and_a_problem(values: object) -> None:
    settings, (problem,) = parse_settings(values)
    assert settings == Settings() and "must be an object" in problem
