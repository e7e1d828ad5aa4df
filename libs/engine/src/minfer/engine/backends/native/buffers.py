"""Instructions and memory: which operations run together, and where values lie."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from minfer.engine.backends.native.operations import Domain, Kind, Operation, Value

_ALIGNMENT = 128


def group(operations: Sequence[Operation]) -> None:
    """Mark where instructions begin.

    Row operations of one domain run together, row by row: each needs nothing of other rows unless it
    changes the domain, which begins an instruction. Products run together when none reads another.
    """
    previous: Operation | None = None
    written: set[int] = set()
    for op in operations:
        joins = previous is not None and _joins(previous, op, written)
        op.starts = not joins
        written = {*written, op.out} if joins else {op.out}
        previous = op


def _joins(previous: Operation, op: Operation, written: set[int]) -> bool:
    if previous.rows != op.rows:
        return False
    if previous.kind < Kind.MATMUL and op.kind < Kind.MATMUL:
        return True
    accumulates = bool(op.kind is Kind.MATMUL and op.p[1])
    return previous.kind is Kind.MATMUL is op.kind and not (accumulates and op.out in written)


def place(
    operations: Sequence[Operation],
    values: Sequence[Value],
    rows: Mapping[Domain, int],
    kept: Collection[int],
) -> int:
    """Give each value its offset; values share memory when no instruction needs both. Total bytes.

    kept: values that must be there after the step.
    """
    first, last = _lives(operations)
    for value in kept:
        last[value] = len(operations)
    alive: list[tuple[int, int, int]] = []  # offset, end, last instruction
    total = 0
    for value in sorted(first, key=lambda v: (first[v], v)):
        n_bytes = -(-values[value].row_bytes * rows[values[value].rows] // _ALIGNMENT) * _ALIGNMENT
        alive = sorted(span for span in alive if span[2] >= first[value])
        offset = 0
        for start, end, _ in alive:
            if offset + n_bytes <= start:
                break
            offset = max(offset, end)
        values[value].offset = offset
        alive.append((offset, offset + n_bytes, last[value]))
        total = max(total, offset + n_bytes)
    return total


def _lives(operations: Sequence[Operation]) -> tuple[dict[int, int], dict[int, int]]:
    """For each value the first and the last instruction that touches it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    instruction = -1
    for op in operations:
        instruction += op.starts
        for value in (*op.reads(), op.out):
            if value >= 0:
                first.setdefault(value, instruction)
                last[value] = instruction
    return first, last
