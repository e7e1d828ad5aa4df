"""What a benchmark ran on, and what disturbed it: other programs, stolen time, throttling.

Linux says it in /proc and /sys; elsewhere the facts are fewer.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path("/")
_LOADED: Final = 0.5  # of the CPUs busy with something else
_STOLEN: Final = 0.01  # of all CPU time


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Counters before a measurement; `warnings` compares them with those after it."""

    root: Path
    load: float | None
    stolen: int
    total: int
    throttled: int

    @classmethod
    def now(cls, root: Path = _ROOT) -> Disturbance:
        """The counters as they stand. root: where /proc and /sys are looked for."""
        words = _text(root / "proc/loadavg").split()
        stat = [
            int(one) for one in _text(root / "proc/stat").partition("\n")[0].split()[1:] if one.isdecimal()
        ]
        throttled = _field(_text(root / "sys/fs/cgroup/cpu.stat"), "nr_throttled")
        load = float(words[0]) if words else None
        return cls(root, load, stat[7] if len(stat) > 7 else 0, sum(stat[:8]), throttled)

    def warnings(self) -> tuple[str, ...]:
        """Why the figures since then may be wrong."""
        after = Disturbance.now(self.root)
        found = []
        n_cpus = os.cpu_count() or 1
        if self.load is not None and self.load > _LOADED * n_cpus:
            found.append(f"other programs were running: load average {self.load:g} on {n_cpus} CPUs")
        total = after.total - self.total
        if total > 0 and (after.stolen - self.stolen) / total > _STOLEN:
            share = 100 * (after.stolen - self.stolen) / total
            found.append(f"{share:.0f} % of the CPU time was taken by other virtual machines")
        if after.throttled > self.throttled:
            found.append(f"the CPU quota stopped the process {after.throttled - self.throttled} times")
        return tuple(found)


def fingerprint(root: Path = _ROOT) -> dict[str, Any]:
    """Machine and software, as facts for a file."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "minfer": version("minfer-run"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu_name(root),
        "n_cpus": os.cpu_count() or 1,
        "load_average": Disturbance.now(root).load,
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "kernels_variable": os.environ.get("MINFER_KERNELS") or None,
        "implementation": sys.implementation.name,
    }


def _cpu_name(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _field(text: str, name: str) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return 0


def _text(path: Path) -> str:
    """The content of a small file; empty when it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
