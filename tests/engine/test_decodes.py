"""At temperature 0 a decode is the authors' own, token for token: what their sampling code wrote is recorded."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "engine/bench"))
import decodes  # type: ignore[import-not-found]


@pytest.mark.parametrize("name", decodes.recorded_decodes())
def test_a_decode_is_the_authors(name: str, tmp_path: Path) -> None:
    found = decodes.compare(name, tmp_path)
    assert found.num_cases >= 20
    assert found.num_same == found.num_cases
