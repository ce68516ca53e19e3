import pytest

from midfill_kernels.launch import choose_bucket


@pytest.mark.parametrize(("num_rows", "bucket"), [(1, 32), (32, 32), (33, 64), (200, 256), (1024, 1024)])
def test_buckets(num_rows: int, bucket: int) -> None:
    assert choose_bucket(num_rows) == bucket


def test_buckets_end() -> None:
    with pytest.raises(ValueError, match="at most 1024 rows, not 1025"):
        choose_bucket(1025)
