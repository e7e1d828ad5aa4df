"""What a figure was measured on, and how much of the machine was really there."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def facts() -> dict[str, object]:
    """CPU, cores, kernel, commit: what a ledger line needs to be compared at all."""
    return {
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
    }


def steal_seconds() -> float:
    """Seconds that the hypervisor gave to others since boot, over all CPUs."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def _cpu_name() -> str:
    """A virtual machine is often told no more than "AMD EPYC": family and model tell its generation."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    known = {name.strip(): value.strip() for name, _, value in pairs}
    if "model name" not in known:
        return platform.machine()
    return f"{known['model name']}, family {known.get('cpu family')} model {known.get('model')}"


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
