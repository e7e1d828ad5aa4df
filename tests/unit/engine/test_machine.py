"""CPU and memory budgets read from made-up /proc and /sys trees of both cgroup versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minfer.engine.machine import CpuBudget, available_memory, cpu_budget

_GIB = 1 << 30


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
)
def test_quota_is_read_from_either_version(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    budget = cpu_budget(_write(tmp_path, files))
    assert budget.quota == quota
    assert budget.n_affinity == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("n_affinity", "quota", "n_threads"), [(8, None, 8), (8, 2.0, 2), (8, 1.5, 2), (1, 4.0, 1), (4, 0.3, 1)]
)
def test_threads_are_the_smaller_of_affinity_and_quota(
    n_affinity: int, quota: float | None, n_threads: int
) -> None:
    assert CpuBudget(n_affinity, quota).n_threads == n_threads


def test_memory_is_what_the_machine_has_without_limits(tmp_path: Path) -> None:
    root = _write(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"})
    assert available_memory(root) == 2048 * 1024


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_limit_counts_file_cache_as_free(tmp_path: Path, version: int) -> None:
    folder, limit, used, line = {
        1: ("sys/fs/cgroup/memory/x", "memory.limit_in_bytes", "memory.usage_in_bytes", "5:memory:/x\n"),
        2: ("sys/fs/cgroup/x", "memory.max", "memory.current", "0::/x\n"),
    }[version]
    root = _write(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable: 99999999 kB\n",
            "proc/self/cgroup": line,
            f"{folder}/{limit}": str(4 * _GIB),
            f"{folder}/{used}": str(3 * _GIB),
            f"{folder}/memory.stat": f"anon 7\nactive_file {_GIB}\ninactive_file {_GIB}\n",
        },
    )
    assert available_memory(root) == 3 * _GIB


@pytest.mark.parametrize(("limit", "room"), [(str(_GIB), (_GIB >> 1) - (128 << 20)), ("unlimited", 8 * _GIB)])
def test_a_limit_of_address_space_counts_what_is_mapped(tmp_path: Path, limit: str, room: int) -> None:
    pages = (_GIB >> 1) // os.sysconf("SC_PAGE_SIZE")
    root = _write(
        tmp_path,
        {
            "proc/meminfo": f"MemAvailable: {8 * _GIB // 1024} kB\n",
            "proc/self/limits": f"Max address space         {limit}        unlimited        bytes\n",
            "proc/self/statm": f"{pages} 10 10 1 0 10 0\n",
        },
    )
    assert available_memory(root) == room


def test_an_unlimited_group_does_not_matter(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            "proc/meminfo": "MemAvailable: 1000 kB\n",
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/memory.current": "5\n",
        },
    )
    assert available_memory(root) == 1000 * 1024
