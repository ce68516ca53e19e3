from prices import discount


def test_discount():
    assert discount(200, 0.1) == 180
    assert discount(1000, 0.25) == 750
