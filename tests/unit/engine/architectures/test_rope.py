"""Rotary frequencies under every scaling, against formulas of the papers written out here."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest

from minfer.engine.architectures.errors import HyperparameterError
from minfer.engine.architectures.rope import RopeConfig, file_divisors
from minfer.engine.graph.builder import GraphBuilder
from minfer.gguf import GGUFFile, Metadata, QuantType, open_bytes
from minfer.gguf.writer import StoredTensor, write_stream


def _file(pairs: dict[str, Any], tensors: dict[str, list[float]] | None = None) -> GGUFFile:
    stored = [
        StoredTensor(name, (len(values),), QuantType.F32, np.array(values, "<f4").tobytes())
        for name, values in (tensors or {}).items()
    ]
    stream = io.BytesIO()
    write_stream(stream, {"general.architecture": "x"} | pairs, stored)
    return open_bytes(stream.getvalue())


def _read(**pairs: Any) -> RopeConfig:
    metadata: Metadata = _file({f"x.rope.{key.replace('__', '.')}": v for key, v in pairs.items()}).metadata
    return RopeConfig.read(metadata, "x", 64, 4096)


def _plain(base: float = 10000.0, n: int = 64) -> list[float]:
    return [base ** (-2 * i / n) for i in range(n // 2)]


def test_without_keys_there_is_no_scaling() -> None:
    config = _read()
    assert config.frequencies() == pytest.approx(_plain())
    assert config.total_magnitude == 1.0


def test_partial_rotation() -> None:
    assert _read(dimension_count=16, freq_base=5e5).frequencies() == pytest.approx(_plain(5e5, 16))


@pytest.mark.parametrize("kind", ["linear", "yarn", "none", "longrope"])
def test_a_factor_of_zero_is_no_scaling(kind: str) -> None:
    config = _read(scaling__type=kind, scaling__factor=0.0)
    assert config.frequencies() == pytest.approx(_plain())
    assert config.total_magnitude == 1.0


def test_linear_divides() -> None:
    assert _read(scaling__factor=4.0).frequencies() == pytest.approx([f / 4 for f in _plain()])
    assert _read(scale_linear=4.0).frequencies() == pytest.approx([f / 4 for f in _plain()])


def test_none_ignores_the_factor() -> None:
    assert _read(scaling__type="none", scaling__factor=4.0).frequencies() == pytest.approx(_plain())


def test_yarn_mixes_by_the_turns_of_each_pair() -> None:
    config = _read(scaling__type="yarn", scaling__factor=8.0, scaling__original_context_length=2048)
    # Pairs that turn 32 times or more over the original context keep their frequency, those that turn
    # once or less are divided by the factor; between the two, rounded outwards, the share falls linearly.
    low = math.floor(64 * math.log(2048 / (32 * 2 * math.pi)) / (2 * math.log(10000)))
    high = math.ceil(64 * math.log(2048 / (1 * 2 * math.pi)) / (2 * math.log(10000)))
    assert (low, high) == (8, 21)
    for i, (found, plain) in enumerate(zip(config.frequencies(), _plain(), strict=True)):
        kept = 1 if i <= low else 0 if i >= high else (high - i) / (high - low)
        assert found == pytest.approx(plain * kept + plain / 8 * (1 - kept))
    assert config.total_magnitude == pytest.approx(1 + 0.1 * math.log(8))


def test_yarn_grows_the_files_own_magnitude() -> None:
    config = _read(scaling__type="yarn", scaling__factor=8.0, scaling__attn_factor=1.25)
    assert config.total_magnitude == pytest.approx(1.25 * (1 + 0.1 * math.log(8)))


def test_the_files_divisors_divide() -> None:
    g = GraphBuilder(_file({}, {"rope_freqs.weight": [2.0, 4.0]}))
    config = RopeConfig(4, 100.0)
    divisors = file_divisors(g, config, 0)
    assert config.frequencies(divisors) == pytest.approx([1 / 2, 0.1 / 4])


@pytest.mark.parametrize(("n_context", "divisor"), [(2048, 1.0), (2049, 3.0)])
def test_longrope_takes_the_long_set_beyond_the_original_context(n_context: int, divisor: float) -> None:
    g = GraphBuilder(
        _file({}, {"rope_factors_long.weight": [3.0, 3.0], "rope_factors_short.weight": [1.0, 1.0]})
    )
    config = RopeConfig(4, 100.0, "longrope", n_original=2048, magnitude=1.19)
    assert file_divisors(g, config, n_context) == (divisor, divisor)
    assert config.total_magnitude == 1.19


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dimension_count", 7),
        ("dimension_count", 66),
        ("dimension_count", 0),
        ("freq_base", 0.0),
        ("freq_base", 1.0),
        ("freq_base", float("nan")),
        ("freq_base", float("inf")),
        ("scaling__type", "spiral"),
        ("scaling__factor", -2.0),
        ("scaling__attn_factor", 0.0),
        ("scaling__yarn_beta_fast", float("nan")),
    ],
)
def test_values_that_cannot_rotate_are_refused(key: str, value: object) -> None:
    with pytest.raises(HyperparameterError, match=key.replace("__", r"\.")):
        _read(**{key: value})


def test_a_divisor_of_zero_is_refused() -> None:
    with pytest.raises(HyperparameterError, match="divisor 1"):
        RopeConfig(4, 100.0).frequencies((1.0, 0.0))
