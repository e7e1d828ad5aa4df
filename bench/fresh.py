"""A fresh process that answers "Hi" with one token: wall time and peak memory, side by side.

LLAMA_CPP_BIN=… python -m bench.fresh MODEL --threads 2 --pairs 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench import llama_cpp, machine


def run(command: list[str]) -> tuple[float, float]:
    """Seconds from start to exit, and peak resident MiB."""
    # A machine that forbids Python to keep compiled modules would measure the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    nothing = subprocess.DEVNULL
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"exit status {process.returncode}: {command}")
    return seconds, usage.ru_maxrss / 1024


def commands(model: Path, n_threads: int) -> tuple[list[str], list[str] | None]:
    """Our command line and llama.cpp's."""
    ours = [
        str(Path(sys.executable).with_name("minfer-run")), "-q", "--no-template", "-n", "1",
        "--n-ctx", "4096", "-t", str(n_threads), str(model), "Hi",
    ]  # fmt: skip
    rival = llama_cpp.program("llama-completion")
    if rival is None:
        return ours, None
    theirs = [
        str(rival), "-m", str(model), "-p", "Hi", "-n", "1", "-c", "4096", "-t", str(n_threads), "-no-cnv",
        "--no-warmup",
    ]  # fmt: skip
    return ours, theirs


def main() -> None:
    """Print medians and the median of pairwise ratios; append to the ledger when told."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    ours, theirs = commands(options.model, options.threads)
    run(ours)  # the file cache is warm from here on
    a, b = [], []
    for _ in range(options.pairs):
        a.append(run(ours))
        if theirs:
            b.append(run(theirs))
    figures: dict[str, object] = {"ours": a, "theirs": b}
    print(f"{options.model.name}: minfer {median(s for s, _ in a):.3f} s, {median(m for _, m in a):.0f} MiB")
    if b:
        wall = median(x[0] / y[0] for x, y in zip(a, b, strict=True))
        memory = median(x[1] / y[1] for x, y in zip(a, b, strict=True))
        figures |= {"wall_ratio": wall, "memory_ratio": memory}
        print(f"llama-completion {median(s for s, _ in b):.3f} s, {median(m for _, m in b):.0f} MiB")
        print(f"ratio: wall {wall:.2f}, memory {memory:.2f}")
    if options.ledger:
        line = {**machine.facts(), "bench": "fresh", "model": options.model.name, "threads": options.threads}
        with options.ledger.open("a") as ledger:
            ledger.write(json.dumps({**line, **figures}) + "\n")


if __name__ == "__main__":
    main()
