"""Multiply-adds per cycle and bytes per second of every matrix kernel, beside the measured read bandwidth.

python -m bench.kernels [avx2|scalar|neon] [--seconds 1] [--huge]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_CSRC = _ROOT / "libs/engine/csrc"


def main() -> None:
    """Compile the program with the flags of the extension, and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("isa", nargs="?", default="", help="default: the fastest that this CPU runs")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each line of one column")
    parser.add_argument("--huge", action="store_true", help="put weights into huge pages")
    options = parser.parse_args()
    sources = [*sorted(_CSRC.glob("matmul_*.c")), Path(__file__).with_name("kernel_bench.c")]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kernel_bench"
        flags = ["-O3", "-std=gnu11", "-ffp-contract=off", f"-I{_CSRC}"]
        subprocess.run(["cc", *flags, *map(str, sources), "-lm", "-lpthread", "-o", str(program)], check=True)
        arguments = [options.isa, str(options.seconds), *(["huge"] if options.huge else [])]
        subprocess.run([str(program), *arguments], check=False)


if __name__ == "__main__":
    main()
