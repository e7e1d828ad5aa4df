"""Row kernels, attention and the pool: one C program, in the long runs under the sanitizers too.

AMX is run in software tiles where the CPU has everything else that its kernels use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from paths import ROOT

SUITE = Path(__file__).resolve().parent / "row_suite.c"
CSRC = ROOT / "libs/engine/csrc"
SOURCES = ("pool.c", "pages.c", "kernels_scalar.c", "kernels_avx2.c", "kernels_avx512.c", "kernels_amx.c")
NO_TILES = 2
PROVES = os.environ.get("MINFER_PROVE") == "1"


@pytest.mark.timeout(1800 if PROVES else 300)
@pytest.mark.parametrize("sanitizer", ["", "address,undefined", "thread"])
def test_rows_attention_and_pool_are_right_and_clean(sanitizer: str, tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    if sanitizer and not PROVES:
        pytest.skip("the long runs sanitize, which takes a minute to compile: MINFER_PROVE=1")
    features = Path("/proc/cpuinfo").read_text().split()
    programs = {"hardware": build(compiler, tmp_path / "suite", sanitizer)}
    if "amx_int8" not in features and "avx512_vnni" in features:
        tiles = ["-include", str(SUITE.with_name("software_tiles.h"))]
        programs["software"] = build(compiler, tmp_path / "tiles", sanitizer, *tiles)
    for isa, feature in (("avx2", "avx2"), ("avx512", "avx512_vnni"), ("amx", "amx_int8")):
        program = programs["hardware"] if feature in features else programs.get("software")
        if program is None or (feature not in features and isa != "amx"):
            continue
        done = subprocess.run([program, isa], capture_output=True, text=True, timeout=400, check=False)
        if done.returncode == NO_TILES:  # the system keeps AMX to itself
            continue
        assert (done.returncode, done.stdout) == (0, "0 failures\n"), isa + done.stdout + done.stderr


def build(compiler: str, program: Path, sanitizer: str, *options: str) -> Path:
    command = [compiler, "-std=c11", "-O1", "-g", "-ffp-contract=off", "-D_GNU_SOURCE", f"-I{CSRC}", *options]
    command += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else []
    command += ["-o", str(program), str(SUITE)]
    command += [str(CSRC / name) for name in SOURCES] + ["-lm", "-lpthread"]
    subprocess.run(command, check=True, timeout=1500 if PROVES else 250)
    return program
