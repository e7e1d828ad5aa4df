"""Metadata: every type, typed reads, and what they say when the file disagrees."""

from __future__ import annotations

from array import array

import pytest

import gguf_bytes as build
from minfer.gguf import Metadata, ValueType, open_bytes
from minfer.gguf.encode import encode_array, encode_scalar
from minfer.gguf.errors import MetadataKeyError, MetadataTypeError


@pytest.fixture
def metadata() -> Metadata:
    return open_bytes(build.whole_file().build(), "m.gguf").metadata


def test_every_type_is_decoded(metadata: Metadata) -> None:
    assert dict(metadata) == {
        "uint8": 255,
        "int8": -1,
        "uint16": 65535,
        "int16": -2,
        "uint32": 4_000_000_000,
        "int32": -5,
        "float32": 1.5,
        "true": True,
        "false": False,
        "string": "naïve",
        "uint64": 1 << 63,
        "int64": -(1 << 62),
        "float64": 0.1,
        "strings": ["a", "", "bc", "é"],
        "integers": array("i", [1, -2, 3]),
        "floats": array("f", [0.5, -0.25]),
        "booleans": [False, True],
        "nested": [["x", "yz"], [array("B", [7, 8])]],
    }
    assert metadata["true"] is True


def test_it_keeps_the_order_of_the_file(metadata: Metadata) -> None:
    assert list(metadata) == list(build.EVERY_TYPE)
    assert len(metadata) == len(build.EVERY_TYPE)
    assert "int8" in metadata
    assert "int9" not in metadata


def test_kinds_are_known_without_decoding(metadata: Metadata) -> None:
    assert metadata.kind("int16") == (ValueType.INT16, None, 1)
    assert metadata.kind("strings") == (ValueType.ARRAY, ValueType.STRING, 4)
    assert bytes(metadata.raw("string")) == "naïve".encode()


def test_typed_reads(metadata: Metadata) -> None:
    assert metadata.string("string") == "naïve"
    assert [metadata.integer(key) for key in ("uint8", "int64", "uint64")] == [255, -(1 << 62), 1 << 63]
    assert metadata.number("float64") == 0.1
    assert metadata.number("int32") == -5.0
    assert isinstance(metadata.number("int32"), float)
    assert metadata.boolean("false") is False
    assert list(metadata.integers("integers")) == [1, -2, 3]
    assert list(metadata.numbers("integers")) == [1, -2, 3]
    assert list(metadata.numbers("floats")) == [0.5, -0.25]
    assert metadata.strings("strings") == ["a", "", "bc", "é"]
    assert metadata.byte_strings("strings") == [b"a", b"", b"bc", "é".encode()]


def test_arrays_are_decoded_once(metadata: Metadata) -> None:
    assert metadata.strings("strings") is metadata.strings("strings")


def test_defaults_stand_in_for_missing_keys_only(metadata: Metadata) -> None:
    assert metadata.integer("absent", 7) == 7
    assert metadata.string("absent", None) is None
    assert metadata.number("absent", 1) == 1
    assert metadata.boolean("absent", True) is True
    assert metadata.strings("absent", ()) == ()
    assert metadata.numbers("absent", None) is None
    with pytest.raises(MetadataTypeError):
        metadata.integer("string", 7)
    with pytest.raises(KeyError):
        metadata["absent"]


def test_a_missing_key_is_named(metadata: Metadata) -> None:
    with pytest.raises(MetadataKeyError, match=r"m\.gguf lacks the metadata key 'llama\.block_count'"):
        metadata.integer("llama.block_count")
    with pytest.raises(MetadataKeyError):
        metadata.byte_strings("absent")


@pytest.mark.parametrize(
    ("read", "key", "text"),
    [
        ("integer", "float32", "m.gguf: metadata key 'float32' should be an integer and is FLOAT32"),
        ("integer", "true", "m.gguf: metadata key 'true' should be an integer and is BOOL"),
        ("number", "string", "m.gguf: metadata key 'string' should be a number and is STRING"),
        ("string", "uint8", "m.gguf: metadata key 'uint8' should be a string and is UINT8"),
        ("boolean", "uint8", "m.gguf: metadata key 'uint8' should be a boolean and is UINT8"),
        ("string", "strings", "m.gguf: metadata key 'strings' should be a string and is ARRAY of 4 STRING"),
        ("strings", "string", "m.gguf: metadata key 'string' should be an array of strings and is STRING"),
        (
            "integers",
            "floats",
            "m.gguf: metadata key 'floats' should be an array of integers and is ARRAY of 2 FLOAT32",
        ),
        ("numbers", "uint8", "m.gguf: metadata key 'uint8' should be an array of numbers and is UINT8"),
        (
            "byte_strings",
            "integers",
            "m.gguf: metadata key 'integers' should be an array of strings and is ARRAY of 3 INT32",
        ),
    ],
)
def test_a_value_of_another_type_is_described(metadata: Metadata, read: str, key: str, text: str) -> None:
    with pytest.raises(MetadataTypeError) as caught:
        getattr(metadata, read)(key)
    assert caught.value.fact == text


@pytest.mark.parametrize(
    "values",
    [
        [b"\xff", b"ok"],  # not UTF-8
        [b"a\0b", b"\0", b""],  # the separator of the fast path
        ["é".encode()[:1], "é".encode()[1:]],  # one character across two strings
        [b"\xe2\x82", b"\xac"],
        [b""],
        [],
    ],
)
def test_any_bytes_can_be_strings(values: list[bytes]) -> None:
    file = build.File(pairs=[build.pair("k", build.ARRAY, build.texts(list(values)))])
    metadata = open_bytes(file.build()).metadata
    assert metadata.byte_strings("k") == values
    assert metadata.strings("k") == [value.decode("utf-8", "replace") for value in values]


def test_metadata_can_be_made_of_plain_values() -> None:
    metadata = Metadata.of(
        {
            "text": "é",
            "count": 3,
            "negative": -3,
            "large": 1 << 40,
            "very_negative": -(1 << 40),
            "number": 0.5,
            "truth": True,
            "tokens": ["a", b"\xff"],
            "types": [1, 2],
            "scores": [0, 0.5],
            "flags": [True],
            "none": [],
            "short": encode_scalar(3, ValueType.UINT16),
            "bytes": encode_array([1], ValueType.UINT8),
            "packed": array("d", [0.1]),
        }
    )
    kinds = {key: metadata.kind(key)[:2] for key in metadata}
    assert kinds == {
        "text": (ValueType.STRING, None),
        "count": (ValueType.UINT32, None),
        "negative": (ValueType.INT32, None),
        "large": (ValueType.UINT64, None),
        "very_negative": (ValueType.INT64, None),
        "number": (ValueType.FLOAT32, None),
        "truth": (ValueType.BOOL, None),
        "tokens": (ValueType.ARRAY, ValueType.STRING),
        "types": (ValueType.ARRAY, ValueType.INT32),
        "scores": (ValueType.ARRAY, ValueType.FLOAT32),
        "flags": (ValueType.ARRAY, ValueType.BOOL),
        "none": (ValueType.ARRAY, ValueType.INT32),
        "short": (ValueType.UINT16, None),
        "bytes": (ValueType.ARRAY, ValueType.UINT8),
        "packed": (ValueType.ARRAY, ValueType.FLOAT64),
    }
    assert metadata.string("text") == "é"
    assert metadata.byte_strings("tokens") == [b"a", b"\xff"]
    assert list(metadata.numbers("packed")) == [0.1]


def test_values_that_do_not_fit_their_type_are_refused() -> None:
    with pytest.raises(ValueError, match="UINT8 cannot hold"):
        encode_scalar(256, ValueType.UINT8)
    with pytest.raises(ValueError, match="INT32 cannot hold"):
        encode_array([1 << 40], ValueType.INT32)
    with pytest.raises(TypeError):
        encode_scalar(3, ValueType.STRING)
    with pytest.raises(TypeError):
        encode_array([3], ValueType.ARRAY)
