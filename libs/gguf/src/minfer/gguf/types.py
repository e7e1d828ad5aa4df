"""The numbers that GGUF files use for types: of tensors and of metadata values."""

from __future__ import annotations

from enum import IntEnum


class QuantType(IntEnum):
    """How a tensor's numbers are stored; the ids are those of GGML and appear in files.

    A number that is not listed becomes a value of the name 'type NUMBER': files are newer than programs.
    """

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41

    @classmethod
    def _missing_(cls, value: object) -> QuantType | None:
        if not isinstance(value, int):
            return None
        unknown = int.__new__(cls, value)
        unknown._name_, unknown._value_ = f"type {value}", value
        return unknown


UNDECODED: dict[QuantType, tuple[int, int]] = {
    QuantType.IQ2_XXS: (256, 66),
    QuantType.IQ2_XS: (256, 74),
    QuantType.IQ2_S: (256, 82),
    QuantType.IQ3_XXS: (256, 98),
    QuantType.IQ3_S: (256, 110),
    QuantType.IQ1_S: (256, 50),
    QuantType.IQ1_M: (256, 56),
    QuantType.TQ1_0: (256, 54),
    QuantType.TQ2_0: (256, 66),
    QuantType.MXFP4: (32, 17),
    QuantType.NVFP4: (64, 36),
    QuantType.Q1_0: (128, 18),
    QuantType.I8: (1, 1),
    QuantType.I16: (1, 2),
    QuantType.I32: (1, 4),
    QuantType.I64: (1, 8),
    QuantType.F64: (1, 8),
}
"""Numbers and bytes of one block, for types that can be listed and not decoded (`blocks` has the others)."""


class ValueType(IntEnum):
    """The type of a metadata value, as files number it."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


SCALAR_CODES: dict[ValueType, str] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
"""The code of `struct` (and, but for BOOL, of `array`) for each type of fixed size."""
