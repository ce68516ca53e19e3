"""The bench of 0.5 B on a CPU, with a tiny shape: every way is timed at every load, and computes nearly the same."""

from dataclasses import replace
from pathlib import Path

from bench import laptop, narrow

TINY = replace(
    laptop.HALF_B, vocab_size=320, dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=128
)


def test_every_way_computes_nearly_the_same() -> None:
    found = laptop.measure(TINY, context=32, rounds=2)
    ways = {row.way for row in found}
    assert {"fp32", "int8"} <= ways and len(found) == 3 * len(ways)
    for row in found:
        assert row.cpu_s > 0
        assert (row.error == 0) == (row.way == "fp32") and row.error < 0.1


def test_lines_are_hidden_whole_and_filled_twice(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"f{number}.py").write_text(
            f"import os\n\n\ndef f():\n    value_{number} = os.getcwd()\n    return 1\n"
        )
    lines = narrow.draw_lines(tmp_path, 3)
    assert len(lines) == 3
    for line in lines:
        assert (line.before + line.text + line.after) in {file.read_text() for file in tmp_path.iterdir()}
    found = narrow.measure(lines)
    assert found.lines == 3 and 0 <= found.same <= 1 and found.difference[0] <= found.difference[1]
