"""Prefill, decode, decode at depth and many streams, side by side with llama.cpp, alternating.

LLAMA_CPP_BIN=… python -m bench.end_to_end MODEL --threads 2 --pairs 5 --ledger bench/ledger.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median

from bench import llama_cpp, machine
from bench.pairs import alternate

TESTS = ("pp512", "pp4096", "tg128", "tg128@4096", "streams8")


def ours(model: Path, n_threads: int, test: str) -> float:
    """Tokens per second of a fresh process of ours."""
    streams = ["--streams", test.removeprefix("streams")] if test.startswith("streams") else []
    name = "tg64" if streams else test
    command = [
        sys.executable,
        "-m",
        "bench.minfer_side",
        str(model),
        name,
        "--threads",
        str(n_threads),
        *streams,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["tokens_per_second"])


def theirs(model: Path, n_threads: int, test: str) -> float:
    """Tokens per second of llama.cpp's own benchmark programs."""
    if test.startswith("streams"):
        return llama_cpp.streams(model, n_threads, int(test.removeprefix("streams")), 128, 64)
    return llama_cpp.bench(model, n_threads, test)


def main() -> None:
    """Print one row a test; append all figures to the ledger when told."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tests", default=",".join(TESTS))
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    print(f"{options.model.name}, {options.threads} threads, {options.pairs} alternating pairs")
    print(f"{'test':12} {'ours med':>9} {'max':>9} {'llama.cpp':>9} {'max':>9} {'ratio':>7}")
    for test in options.tests.split(","):
        steal = machine.steal_seconds()
        pairs = alternate(
            options.pairs,
            partial(ours, options.model, options.threads, test),
            partial(theirs, options.model, options.threads, test),
        )
        print(f"{test:12} {pairs.row()}", flush=True)
        if options.ledger:
            line = {
                **machine.facts(),
                "bench": "end_to_end",
                "model": options.model.name,
                "sha256": hashlib.sha256(options.model.read_bytes()).hexdigest(),
                "threads": options.threads,
                "test": test,
                "ours": pairs.ours,
                "theirs": pairs.theirs,
                "median": [median(pairs.ours), median(pairs.theirs)],
                "ratio": pairs.ratio,
                "steal_s": round(machine.steal_seconds() - steal, 2),
            }
            with options.ledger.open("a") as ledger:
                ledger.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
