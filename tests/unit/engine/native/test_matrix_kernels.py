"""Every kernel against float64 arithmetic on decoded weights, and every instruction set against scalar."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from matrix_kernels import Bytes, Floats, Library, Matrix, compile_c
from minfer.gguf import FORMATS, QuantType

HERE = Path(__file__).resolve().parent
FLOAT_TYPES = (QuantType.F32, QuantType.F16, QuantType.BF16)
K_TYPES = (QuantType.Q4_K, QuantType.Q5_K, QuantType.Q6_K)
BLOCK_TYPES = (QuantType.Q8_0, QuantType.Q4_0, QuantType.Q4_1, QuantType.Q5_0, QuantType.Q5_1)
TYPES = (*BLOCK_TYPES, *K_TYPES, *FLOAT_TYPES)
SCALES = {"scale": 0.02, "minimum": 0.01}  # magnitudes as in real files
F32_STEP = 2.0**-24  # relative error of one rounding

Doubles = npt.NDArray[np.float64]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("kernels") / "kernels.so", ["-O2", "-shared", "-fPIC"])


@pytest.fixture(params=["scalar", "avx2", "avx512", "amx", "neon"])
def library(request: pytest.FixtureRequest, built: Path) -> Library:
    loaded = Library(built, request.param)
    if not loaded.available:
        pytest.skip(f"this CPU does not run {request.param}")
    return loaded


def weights(quant: QuantType, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Bytes, Floats]:
    """GGUF rows with random quants and ordinary scales, and what they decode to."""
    form = FORMATS[quant]
    blocks = np.zeros(shape[0] * shape[1] // form.block_weights, form.dtype)
    raw = blocks.view(np.uint8)
    raw[:] = rng.integers(0, 256, raw.size, dtype=np.uint8)
    if quant is QuantType.BF16:
        floats = rng.standard_normal(blocks.size).astype(np.float32).view(np.uint32)
        raw.view(np.uint16)[:] = (floats >> 16).astype(np.uint16)
    elif quant in FLOAT_TYPES:
        name = form.layout[0].name
        blocks[name] = rng.standard_normal(blocks.size).reshape(blocks[name].shape)
    for name, scale in SCALES.items():
        if name in (blocks.dtype.names or ()) and quant not in FLOAT_TYPES:
            blocks[name] = scale * rng.uniform(0.5, 1.5, blocks.size)
    return raw, form.decoder(blocks).reshape(shape)


def scales_of(quant: QuantType, columns: Bytes, k: int) -> tuple[Doubles, Doubles]:
    """The quantized activations [n, k] and their scales, spread over k."""
    block = 256 if quant in K_TYPES else 32
    q = columns[:, :k].view(np.int8).astype(np.float64)
    d = np.ascontiguousarray(columns[:, k : k + k // block * 4]).view(np.float32).astype(np.float64)
    return q, np.repeat(d, block, axis=1)


def magnitude(quant: QuantType, shape: tuple[int, int], decoded: Floats, x: Doubles) -> Doubles:
    """A bound on the sum of the magnitudes that a kernel adds up, minima and offsets apart, per result."""
    parts = np.abs(decoded).astype(np.float64)
    if quant not in FLOAT_TYPES:
        parts += 2 * np.abs(decoded).max()
    return np.asarray(np.abs(x) @ parts.T)


def check(matrix: Matrix, quant: QuantType, decoded: Floats, x: Floats) -> None:
    columns = matrix.quantize(x)
    exact = x.astype(np.float64)
    if quant not in FLOAT_TYPES:
        q, d = scales_of(quant, columns, x.shape[1])
        assert (np.abs(q) <= 127).all()
        assert (np.abs(q * d - exact) <= d * (0.5 + 1e-4)).all()
        exact = q * d
    roundings = x.shape[1] if quant in FLOAT_TYPES else 2 * x.shape[1] // (256 if quant in K_TYPES else 32)
    bound = (roundings + 8) * F32_STEP * magnitude(quant, matrix.shape, decoded, exact)
    result = matrix.times(columns)
    assert (np.abs(result - exact @ decoded.astype(np.float64).T) <= bound + 1e-30).all()


@pytest.mark.parametrize("quant", TYPES, ids=lambda quant: quant.name)
def test_products_are_those_of_the_decoded_weights(library: Library, quant: QuantType) -> None:
    rng = np.random.default_rng(quant)
    block = FORMATS[quant].block_weights
    for rows, blocks in ((1, 1), (9, 3), (40, 5), (23, 50 if block < 256 else 9)):
        k = blocks * block if block > 1 else blocks * 13
        raw, decoded = weights(quant, (rows, k), rng)
        matrix = library.matrix(quant, raw, (rows, k))
        for n in range(1, 18, 1 if rows == 9 else 5):
            check(matrix, quant, decoded, rng.standard_normal((n, k)).astype(np.float32))


@pytest.mark.parametrize("quant", TYPES, ids=lambda quant: quant.name)
def test_a_row_comes_back_as_its_decoded_weights(library: Library, quant: QuantType) -> None:
    k = 256 * 3
    raw, decoded = weights(quant, (11, k), np.random.default_rng(7))
    matrix = library.matrix(quant, raw, (11, k))
    for index in (0, 7, 8, 10):
        np.testing.assert_allclose(matrix.row(index), decoded[index], rtol=3e-7, atol=1e-6)


def test_activations_that_are_no_numbers_poison_their_block_only(library: Library) -> None:
    raw, _ = weights(QuantType.Q4_0, (8, 96), np.random.default_rng(1))
    matrix = library.matrix(QuantType.Q4_0, raw, (8, 96))
    x = np.ones((3, 96), np.float32)
    x[0, 40], x[1, 40], x[2, 32:64] = np.nan, np.inf, 1e-38
    _, d = scales_of(QuantType.Q4_0, matrix.quantize(x), 96)
    assert np.isnan(d[:2, 32:64]).all()
    assert (d[2, 32:64] == 0).all()
    assert np.isfinite(np.delete(d, np.s_[32:64], axis=1)).all()


@pytest.mark.timeout(900)
def test_results_repeat_bit_by_bit_across_instruction_sets(tmp_path: Path) -> None:
    source = str(HERE / "kernel_suite.c")
    program = compile_c(tmp_path / "suite", ["-O2", source])
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "scalar: 99 cases" in ran.stdout


@pytest.mark.timeout(900)
def test_an_arm_machine_computes_the_same_bits(tmp_path: Path) -> None:
    if not os.environ.get("MINFER_PROVE"):
        pytest.skip("emulation takes a while: make prove")
    if not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"):
        pytest.skip("needs qemu-user and gcc-aarch64-linux-gnu")
    source = str(HERE / "kernel_suite.c")
    arm = compile_c(tmp_path / "arm", ["-O2", "-static", source], "aarch64-linux-gnu-gcc")
    here = compile_c(tmp_path / "here", ["-O2", source])
    there = subprocess.run(["qemu-aarch64", arm, "3"], capture_output=True, text=True, check=False)
    assert there.returncode == 0, there.stdout
    assert there.stdout.startswith("neon: 297 cases, digest ")
    own = subprocess.run([here, "3"], capture_output=True, text=True, check=True).stdout
    # Random numbers go on from one instruction set to the next: the first of each machine have the same ones.
    first = _digests(own)[:2]
    assert first
    assert _digests(there.stdout)[: len(first)] == first


def _digests(report: str) -> list[str]:
    return [line.partition(": ")[2] for line in report.splitlines()]


@pytest.mark.timeout(900)
def test_the_suite_is_clean_under_sanitizers(tmp_path: Path) -> None:
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    program = compile_c(tmp_path / "suite", [*flags, str(HERE / "kernel_suite.c")])
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
