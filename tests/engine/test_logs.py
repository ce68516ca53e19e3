"""The log: the same line does not come without end."""

import logging

import pytest

from midfill_engine.serving import access
from midfill_engine.serving.access import RateLimit


def test_a_line_of_code_that_logs_too_often_is_muted_and_reported_later(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    logger, limit = logging.getLogger("tests.rate"), RateLimit(lambda: now_s[0])
    logger.addFilter(limit)
    try:
        for minute in range(2):
            now_s[0] = minute * access.INTERVAL_S
            for number in range(500):
                logger.warning("descriptor %d", number)
                if number == 0:
                    logger.warning("another place")
    finally:
        logger.removeFilter(limit)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 * (access.MAX_LINES + 1)
    assert lines.count("another place") == 2
    assert lines[access.MAX_LINES + 1] == f"descriptor 0 ({500 - access.MAX_LINES} more like this were not logged)"


def test_the_access_log_is_never_muted() -> None:
    limit, record = RateLimit(), logging.makeLogRecord({"name": access.ACCESS, "msg": "200"})
    assert all(limit.filter(record) for _ in range(10 * access.MAX_LINES))
