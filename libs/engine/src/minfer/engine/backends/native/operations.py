"""The operations of the flat program, numbered and laid out as csrc/minfer_native.h has them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from minfer.engine.graph.ops import ActivationKind, Rows


class Domain(IntEnum):
    """What the rows of a value are (enum mf_rows)."""

    TOKENS = 0
    LOGITS = 1
    SEQUENCES = 2
    PAIRS = 3
    ONCE = 4
    LOGIT_PAIRS = 5


DOMAIN_OF_ROWS: Final = {
    Rows.TOKENS: Domain.TOKENS,
    Rows.LOGITS: Domain.LOGITS,
    Rows.SEQUENCES: Domain.SEQUENCES,
    Rows.PAIRS: Domain.PAIRS,
}


class Kind(IntEnum):
    """Operations (enum mf_operation); from MATMUL on they are not run row by row."""

    EMBED = 0
    ROPE_TABLE = 1
    NORM = 2
    ROPE = 3
    CACHE_WRITE = 4
    ACTIVATE = 5
    GLU = 6
    ADD = 7
    MUL = 8
    SCALE = 9
    SOFTCAP = 10
    COPY = 11
    QUANTIZE = 12
    ADD_VECTOR = 13
    ROUTE = 14
    COMBINE = 15
    SELECT = 16
    POOL = 17
    NORM_L2 = 18
    SORT_PAIRS = 19
    SCALE_EXPERT = 20
    MATMUL = 32
    EXPERT_MATMUL = 33
    ATTEND = 34
    HEAD = 35


IN_PLACE: Final = frozenset(
    {Kind.NORM, Kind.ROPE, Kind.ACTIVATE, Kind.GLU, Kind.ADD, Kind.MUL, Kind.SCALE, Kind.SOFTCAP}
    | {Kind.ADD_VECTOR, Kind.NORM_L2, Kind.SCALE_EXPERT}
)
"""Operations whose result may lie where input a was."""

FUNCTIONS: Final[dict[ActivationKind, int]] = {
    "silu": 0,
    "gelu": 1,
    "gelu_tanh": 2,
    "relu": 3,
    "relu_squared": 4,
}

_OPERATION = struct.Struct("=16i4f")
_VALUE = struct.Struct("=qqii")


@dataclass(slots=True)
class Operation:
    """One mf_operation. a, b, out: values; weight, bias: matrices or vectors; -1 for none."""

    kind: Kind
    rows: Domain
    a: int = -1
    b: int = -1
    out: int = -1
    weight: int = -1
    bias: int = -1
    p: tuple[int, ...] = ()
    f: tuple[float, ...] = ()
    starts: bool = True

    def reads(self) -> tuple[int, ...]:
        """The values it needs."""
        extra = (self.weight,) if self.kind is Kind.COMBINE else ()
        accumulated = (self.out,) if self.kind is Kind.MATMUL and self.p[1] else ()
        return tuple(v for v in (self.a, self.b, *extra, *accumulated) if v >= 0)

    def pack(self) -> bytes:
        """As C lays it out."""
        numbers = (*self.p, *([0] * (8 - len(self.p))))
        fractions = (*self.f, *([0.0] * (4 - len(self.f))))
        head = (self.kind, self.starts, self.rows, self.a, self.b, self.out, self.weight, self.bias)
        return _OPERATION.pack(*head, *numbers, *fractions)


@dataclass(slots=True)
class Value:
    """One mf_value: rows of `row_bytes`; `features` floats, or another count that its readers know."""

    rows: Domain
    features: int
    row_bytes: int
    offset: int = 0

    def pack(self) -> bytes:
        """As C lays it out."""
        return _VALUE.pack(self.offset, self.row_bytes, self.rows, self.features)
