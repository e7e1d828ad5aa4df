"""The table of `minfer-run bench` and that of llama-bench, for the same tests of the same file.

LLAMA_CPP_BIN=… python -m bench.tables MODEL --threads 2 -p 512 -n 128 -d 0,4096 -r 5
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from bench import llama_cpp


def table(command: list[str]) -> str:
    """What the command prints on stdout."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return done.stdout.strip()


def main() -> None:
    """Print ours, then llama.cpp's when LLAMA_CPP_BIN has it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", default="2")
    parser.add_argument("-p", default="512", help="prompt lengths")
    parser.add_argument("-n", default="128", help="tokens to decode")
    parser.add_argument("-d", default="0", help="depths")
    parser.add_argument("-r", default="5", help="repetitions")
    options = parser.parse_args()
    tests = ["-p", options.p, "-n", options.n, "-d", options.d, "-r", options.r, "-t", options.threads]
    program = str(Path(sys.executable).with_name("minfer-run"))
    print(table([program, "bench", str(options.model), *tests, "-o", "md"]))
    rival = llama_cpp.program("llama-bench")
    if rival is None:
        print("\n(LLAMA_CPP_BIN has no llama-bench: nothing to compare with)")
        return
    print(f"\n{table([str(rival), '-m', str(options.model), *tests, '-o', 'md'])}")


if __name__ == "__main__":
    main()
