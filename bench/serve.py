"""minfer-serve beside llama-server over HTTP: throughput and time to first token, alternating.

LLAMA_CPP_BIN=… python -m bench.serve MODEL --streams 8 --prompt 128 --new 64 --pairs 5
python -m bench.serve MODEL --pace 100      only ours: gaps of 4 streams while a long prompt comes in

Both sides get a fresh process for each load, the same slots, context, threads and number type of the KV
cache (f16, the default of both), the same token ids, sampling parameters and number of new tokens, no
prefix cache, and a warm-up of all slots at once; who goes first changes from pair to pair.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import llama_cpp, machine
from bench.serve_load import Load, body_for, quantile, random_prompt, run, run_while_reading

_HOST = "127.0.0.1"
_THINGS = ("a lighthouse", "two brothers", "the river", "an old clock")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def started(command: list[str], port: int) -> Iterator[int]:
    """A server while the block runs; yields its port once /health is good."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{_HOST}:{port}/health", timeout=1):
                    break
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        else:
            raise RuntimeError(f"{command[0]} did not become healthy")
        yield port
    finally:
        process.terminate()
        process.wait(30)


def our_command(model: Path, options: argparse.Namespace, port: int) -> list[str]:
    """minfer-serve with the slots and the context of the load."""
    return [
        sys.executable, "-c", "from minfer.serve.cli import main; main()", str(model), "--port", str(port),
        "--n-slots", str(options.streams), "--n-ctx", str(options.n_ctx), "-t", str(options.threads),
        "--log-format", "none", "--itl-target-ms", str(options.itl),
    ]  # fmt: skip


def their_command(model: Path, options: argparse.Namespace, port: int) -> list[str]:
    """llama-server with the same, and without copies of prompts that no request of the load wants back."""
    program = llama_cpp.program("llama-server")
    if program is None:
        raise FileNotFoundError("llama-server is not in LLAMA_CPP_BIN")
    return [
        str(program), "-m", str(model), "--port", str(port), "--host", _HOST, "-np", str(options.streams),
        "-c", str(options.n_ctx), "-t", str(options.threads), "--no-webui", "--cache-ram", "0",
    ]  # fmt: skip


def measure(command: Callable[[int], list[str]], options: argparse.Namespace, seed: int) -> Load:
    """One load on a fresh process, after a small one that warms it up."""

    def bodies(n_prompt: int, n_new: int, first: int) -> list[dict[str, Any]]:
        return [
            body_for(random_prompt(n_prompt, options.vocab, first + index), n_new, index)
            for index in range(options.streams)
        ]

    port = free_port()
    with started(command(port), port):
        run(_HOST, port, bodies(16, 4, seed + 500))
        load = run(_HOST, port, bodies(options.prompt, options.new, seed))
    counts = [one.n_tokens for one in load.streams]
    if counts != [options.new] * options.streams:
        raise RuntimeError(f"{options.new} tokens were asked of each stream, and {counts} came")
    return load


def compare(model: Path, options: argparse.Namespace) -> None:
    """Alternating pairs; one row each, then the medians."""
    ours_command, theirs_command = (
        partial(command, model, options) for command in (our_command, their_command)
    )
    rows: list[tuple[Load, Load]] = []
    steal = machine.steal_seconds()
    print(f"{'':6} {'ours tok/s':>11} {'theirs':>9} {'ratio':>7} {'ours ttft p95':>14} {'theirs':>8}")
    for index in range(options.pairs):
        sides: dict[int, Load] = {}
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            sides[side] = measure((ours_command, theirs_command)[side], options, 1000 * index)
        ours, theirs = sides[0], sides[1]
        rows.append((ours, theirs))
        print(_row(f"{index + 1}", ours, theirs), flush=True)
    for name, choose in (("best", max), ("median", median)):
        print(f"{name:6} {choose(a.tokens_per_second for a, _ in rows):11.1f}"
              f" {choose(b.tokens_per_second for _, b in rows):9.1f}")  # fmt: skip
    ratio = median(a.tokens_per_second / b.tokens_per_second for a, b in rows)
    ttft = median(a.ttft(0.95) / b.ttft(0.95) for a, b in rows)
    print(f"median of ratios: {ratio:.2f}x tok/s, {ttft:.2f}x time to first token (p95)")
    if options.ledger:
        with options.ledger.open("a") as ledger:
            ledger.write(json.dumps(_ledger_line(model, options, rows, ratio, steal)) + "\n")


def _ledger_line(
    model: Path, options: argparse.Namespace, rows: list[tuple[Load, Load]], ratio: float, steal: float
) -> dict[str, object]:
    """What was measured, of what and where. steal: seconds that others had of this machine before."""
    return {
        **machine.facts(),
        "bench": "serve",
        "model": model.name,
        "sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
        "rival": llama_cpp.version("llama-server"),
        "threads": options.threads,
        "n_ctx": options.n_ctx,
        "itl_target_ms": options.itl,
        "streams": options.streams,
        "prompt": options.prompt,
        "new": options.new,
        "ours": [a.tokens_per_second for a, _ in rows],
        "theirs": [b.tokens_per_second for _, b in rows],
        "ours_ttft_p95": [a.ttft(0.95) for a, _ in rows],
        "theirs_ttft_p95": [b.ttft(0.95) for _, b in rows],
        "ratio": ratio,
        "steal_s": round(machine.steal_seconds() - steal, 2),
    }


def _row(name: str, ours: Load, theirs: Load) -> str:
    return (
        f"{name:6} {ours.tokens_per_second:11.1f} {theirs.tokens_per_second:9.1f}"
        f" {ours.tokens_per_second / theirs.tokens_per_second:6.2f}x"
        f" {ours.ttft(0.95) * 1000:11.0f} ms {theirs.ttft(0.95) * 1000:5.0f} ms"
    )


def pace(model: Path, options: argparse.Namespace) -> None:
    """Gaps of 4 running streams while a prompt of 4096 tokens comes in, and of that time alone.

    Their prompts are words: answers to random tokens have many that are no whole characters, and a token
    without text makes two gaps look like one.
    """
    options.streams, options.itl, options.n_ctx = 5, options.pace, 12288
    port = free_port()
    with started(our_command(model, options, port), port):
        run(_HOST, port, [body_for(random_prompt(600, options.vocab, 7), 4, 1)])
        bodies = [body_for(f"A long story about {thing}. Once", 1500, 1) for thing in _THINGS]
        long = body_for(random_prompt(4096, options.vocab, 5), 4, 9)
        load = asyncio.run(run_while_reading(_HOST, port, bodies, long))
    *streams, arrival = load.streams
    end = arrival.began + arrival.ttft
    print(f"the long prompt's first token came after {arrival.ttft:.2f} s")
    if any(one.n_tokens for one in streams):
        print("a stream ended before it: there are fewer gaps than there should be")
    gaps = [gap for one in streams for gap in one.gaps(arrival.began, end)]
    alone = [gap for one in streams for gap in one.gaps(until=arrival.began)]
    print(f"{len(gaps)} gaps meanwhile; before, their median was {median(alone) * 1000:.1f} ms")
    for share in (0.5, 0.9, 0.99, 1.0):
        print(f"gaps p{share * 100:g}: {quantile(gaps, share) * 1000:.1f} ms")


def main() -> None:
    """Run what the flags ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=40_000)
    parser.add_argument("--n-ctx", type=int, default=4096)
    parser.add_argument("--itl", type=float, default=200.0)
    parser.add_argument("--pace", type=float, default=0.0, metavar="MS")
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    share = options.n_ctx // options.streams  # llama-server gives each slot its part and no more
    if options.prompt + options.new > share and not options.pace:
        parser.error(f"--prompt and --new together must fit --n-ctx / --streams = {share}")
    if not options.pace and llama_cpp.program("llama-server") is None:
        parser.error("set LLAMA_CPP_BIN to the folder of a natively built llama-server, or use --pace")
    if options.pace:
        pace(options.model, options)
    else:
        compare(options.model, options)


if __name__ == "__main__":
    main()
