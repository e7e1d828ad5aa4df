"""The rival: programs of a natively built llama.cpp, found through LLAMA_CPP_BIN.

On a CPU with AMX a build by gcc 12 ends with an illegal instruction: its _tile_loadconfig names only 8
bytes of the configuration, and the stores to the others are dropped. An empty asm with a "memory" clobber
before that call in ggml-cpu/amx/mmq.cpp mends it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


def program(name: str) -> Path | None:
    """The path of one of its programs, or None when LLAMA_CPP_BIN does not have it."""
    folder = os.environ.get("LLAMA_CPP_BIN")
    path = Path(folder or "/nonexistent") / name
    return path if path.exists() else None


def version(name: str) -> str:
    """What one of its programs says it is: a build number and a commit."""
    done = subprocess.run([_required(name), "--version"], capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "version" in line]
    return said[0].strip() if said else "unknown"


def bench(model: Path, n_threads: int, test: str) -> float:
    """Tokens per second of llama-bench for one test: pp512, tg128, tg128@4096 (decode at that depth)."""
    name, _, depth = test.partition("@")
    kind, count = name[:2], name[2:]
    counts = ["-p", count, "-n", "0"] if kind == "pp" else ["-p", "0", "-n", count]
    command = [
        _required("llama-bench"),
        "-m",
        str(model),
        "-t",
        str(n_threads),
        "-r",
        "1",
        "-o",
        "json",
        *counts,
    ]
    if depth:
        command += ["-d", depth]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)[0]["avg_ts"])


def streams(model: Path, n_threads: int, n_streams: int, n_prompt: int, n_new: int) -> float:
    """Decoded tokens per second of n_streams sequences together (llama-batched-bench)."""
    n_ctx = n_streams * (n_prompt + n_new)
    command = [
        _required("llama-batched-bench"), "-m", str(model), "-t", str(n_threads), "-c", str(n_ctx),
        "-npp", str(n_prompt), "-ntg", str(n_new), "-npl", str(n_streams), "--output-format", "jsonl",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            return float(json.loads(line)["speed_tg"])
    raise ValueError(f"llama-batched-bench printed no result: {done.stdout[-200:]!r}")


def _required(name: str) -> str:
    path = program(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not in LLAMA_CPP_BIN={os.environ.get('LLAMA_CPP_BIN', '')!r}")
    return str(path)
