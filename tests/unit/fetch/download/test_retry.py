"""Back-off, and what servers ask for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from minfer.fetch.download.retry import RetryPolicy, retry_after_s

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 7 "}, 7.0),
        ({"Retry-After": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "Thu, 01 Jan 99999 12:00:30 GMT"}, None),
        ({"RateLimit": '"resolvers";r=0;t=55'}, 56.0),
        ({"RateLimit": '"resolvers";r=12;t=55'}, None),
        ({"Retry-After": "3", "RateLimit": '"api";r=0;t=55'}, 3.0),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(headers, NOW) == expected


def test_waits_double_up_to_the_longest_with_up_to_half_of_jitter() -> None:
    policy = RetryPolicy(first_wait_s=1, longest_wait_s=10)
    for failures, full in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10)):
        waits = [policy.wait_s(failures, None) for _ in range(50)]
        assert all(wait is not None and full / 2 <= wait <= full for wait in waits)
        assert len(set(waits)) > 1


def test_a_servers_wish_is_honoured_up_to_a_limit() -> None:
    policy = RetryPolicy(longest_retry_after_s=60)
    wait = policy.wait_s(1, 60)
    assert wait is not None
    assert 60 <= wait <= 61
    assert policy.wait_s(1, 61) is None
