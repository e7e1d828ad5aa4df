"""Who goes next."""

from __future__ import annotations

from minfer.serve.scheduling.waiting_line import WaitingLine


def _drain(line: WaitingLine[str], n_running: dict[bytes, int] | None = None) -> list[str]:
    order = []
    while (following := line.next(n_running or {})) is not None:
        order.append(line.take(following[0]))
    return order


def test_first_come_first_served_within_an_owner() -> None:
    line: WaitingLine[str] = WaitingLine()
    for item in "abc":
        line.add(b"", item)
    assert _drain(line) == ["a", "b", "c"]


def test_owners_take_turns_however_much_one_has_queued() -> None:
    line: WaitingLine[str] = WaitingLine()
    for item in ("a1", "a2", "a3", "a4"):
        line.add(b"a", item)
    line.add(b"b", "b1")
    line.add(b"b", "b2")
    assert _drain(line) == ["a1", "b1", "a2", "b2", "a3", "a4"]


def test_who_runs_least_is_served_first() -> None:
    line: WaitingLine[str] = WaitingLine()
    line.add(b"a", "a1")
    line.add(b"b", "b1")
    assert line.next({b"a": 2, b"b": 1}) == (b"b", "b1")


def test_looking_takes_nothing_and_the_front_goes_first() -> None:
    line: WaitingLine[str] = WaitingLine()
    line.add(b"", "a")
    line.add(b"", "b", at_front=True)
    assert line.next({}) == line.next({}) == (b"", "b")
    assert len(line) == 2


def test_removing_leaves_the_order_of_the_others() -> None:
    line: WaitingLine[str] = WaitingLine()
    for item in "abcd":
        line.add(b"", item)
    assert line.remove(lambda item: item in "ac") == ["a", "c"]
    assert _drain(line) == ["b", "d"]
    assert len(line) == 0
