"""What this process may use of the machine: CPUs and memory, with cgroup limits counted (v1 and v2).

Limits hold along the whole path of nested groups, so every ancestor is asked. Linux is read from /proc
and /sys; elsewhere the whole machine counts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")

_RESERVED_BYTES = 128 << 20
"""Address space that stacks and allocators of threads reserve without using it."""


@dataclass(frozen=True, slots=True)
class CpuBudget:
    """CPUs the process may run on, and how many of them its cgroups' quotas add up to (None: no quota)."""

    n_affinity: int
    quota: float | None

    @property
    def n_threads(self) -> int:
        """The thread count that fits: the smaller of the two, a broken quota rounded up."""
        if self.quota is None:
            return self.n_affinity
        return max(1, min(self.n_affinity, math.ceil(self.quota)))


def cpu_budget(root: Path = _ROOT) -> CpuBudget:
    """The CPUs this process may use now. root: where /proc and /sys are looked for."""
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return CpuBudget(max(1, len(affinity)), min(quotas, default=None))


def available_memory(root: Path = _ROOT) -> int:
    """Bytes this process can still take without pushing out anything but file cache."""
    rooms = [room for group in _groups(root, "memory") if (room := _room(group)) is not None]
    rooms.append(_machine_memory(root))
    rooms.extend(_address_space(root))
    return max(0, min(rooms))


def _machine_memory(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _address_space(root: Path) -> Iterator[int]:
    """Bytes of address space that `ulimit -v` still leaves, if it limits them."""
    for line in _text(root / "proc/self/limits").splitlines():
        if line.startswith("Max address space"):
            soft = line.split()[3]
            used = _text(root / "proc/self/statm").split()[:1]
            if soft.isdecimal() and used:
                yield int(soft) - int(used[0]) * os.sysconf("SC_PAGE_SIZE") - _RESERVED_BYTES


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the process's cgroup and its ancestors, of both versions, that exist."""
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            tops = [base]
        elif controller in controllers.split(","):
            tops = [base / controllers, base / controller]
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for top in tops:
            for depth in range(len(parts) + 1):
                folder = top.joinpath(*parts[:depth])
                if folder.is_dir():
                    yield folder


def _quota(group: Path) -> float | None:
    """CPUs a group may use: version 2's cpu.max, or version 1's quota over its period."""
    words = _text(group / "cpu.max").split()
    if not words:
        words = [_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None  # "max", -1 or no such file
    return int(words[0]) / int(words[1])


def _room(group: Path) -> int | None:
    """Bytes below a group's memory limit, its file cache counted as free."""
    limit = _text(group / "memory.max").strip() or _text(group / "memory.limit_in_bytes").strip()
    used = _text(group / "memory.current").strip() or _text(group / "memory.usage_in_bytes").strip()
    if not limit.isdecimal() or not used.isdecimal():
        return None
    cache = 0
    for line in _text(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("active_file", "inactive_file") and value.isdecimal():
            cache += int(value)
    return int(limit) - max(0, int(used) - cache)


def _text(path: Path) -> str:
    """The content of a small file; empty when it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
