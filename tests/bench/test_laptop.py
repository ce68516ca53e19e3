"""The bench of 0.5 B on a CPU, with a tiny shape: every way is timed at every load, and computes nearly the same."""

from dataclasses import replace

from bench import laptop

TINY = replace(
    laptop.HALF_B, vocab_size=320, dim=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, mlp_dim=128
)


def test_fills_are_as_long_as_they_should_be() -> None:
    rows = {
        (row.hole, row.context, row.seconds): row
        for row in laptop.measure_fills({"tiny": TINY}, (1e-3, 1e-3), rounds=1)
    }
    assert len(rows) == 8
    for (hole, context, seconds), row in rows.items():
        least = {"line": 10, "body": 60}[hole] if seconds == "off" else 1
        assert 0 < row.cpu_s == row.most_cpu_s and row.forwards >= least
        assert row.pass_s > 0 and row.width in ((1,) if seconds == "off" else range(1, 6))
        assert row.forwards < rows[hole, "cold", seconds].forwards or context == "cold"


def test_every_way_computes_nearly_the_same() -> None:
    found = laptop.measure(TINY, context=32, rounds=2)
    ways = {row.way for row in found}
    assert {"fp32", "int8"} <= ways and len(found) == 3 * len(ways)
    for row in found:
        assert row.cpu_s > 0
        assert (row.error == 0) == (row.way == "fp32") and row.error < 0.1
