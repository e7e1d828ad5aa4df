"""When to try again: exponential back-off with jitter, and what a server asks for."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_RATE_LIMIT = re.compile(r"\br=0\s*;\s*t=(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient a download is. `attempts` counts failures in a row without progress."""

    attempts: int = 6
    first_wait_s: float = 1.0
    longest_wait_s: float = 30.0
    longest_retry_after_s: float = 330.0  # the Hub's windows are 300 s long
    progress_bytes: int = 64 * 1024  # what counts as progress: each such step starts the count afresh

    def wait_s(self, failures: int, retry_after_s: float | None) -> float | None:
        """Seconds before attempt `failures` + 1; None when the server wants more than we would wait."""
        backoff = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        backoff *= 0.5 + random.random() / 2
        if retry_after_s is None:
            return backoff
        if retry_after_s > self.longest_retry_after_s:
            return None
        return retry_after_s + backoff / 10  # a little jitter, so that all who wait do not come at once


# For listings: somebody looks at a terminal that says nothing yet.
BRIEF = RetryPolicy(attempts=3, longest_retry_after_s=10.0)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds the server asks to wait, from Retry-After (seconds or a date) or the Hub's RateLimit."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    if text:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return _rate_limit_s(headers)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    return _rate_limit_s(headers)


def _rate_limit_s(headers: Mapping[str, str]) -> float | None:
    found = _RATE_LIMIT.search(headers.get("RateLimit", ""))
    return float(found.group(1)) + 1 if found else None
