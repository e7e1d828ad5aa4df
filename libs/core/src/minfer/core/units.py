"""Sizes, durations and counts as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human_bytes(n_bytes: int) -> str:
    """`n_bytes` with a binary unit and three significant digits: 98362432 is '93.8 MiB'."""
    value = float(n_bytes)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{n_bytes} B"
    return f"{value:.0f} {unit}" if abs(value) >= 100 else f"{value:.1f} {unit}"


def counted(n: int, noun: str) -> str:
    """A number with what it counts: '1 token', '2 tokens'."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def human_seconds(seconds: float) -> str:
    """`seconds` in the largest unit that keeps it readable: '840 ms', '3.2 s', '2 min 5 s'."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
