"""The model store with 1,000 cached models: every figure that the store promises, beside its limit.

python -m bench.store --models 1000 --rounds 10 [--ledger bench/ledger.jsonl]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import minfer.store
from bench import machine
from minfer.store.address import NoDaemonError
from minfer.store.daemon import connect
from minfer.store.daemon_client import DaemonClient
from minfer.store.records import Record, write_record
from minfer.store.settings import Settings

_ORGANISATIONS = 40
_FRESH_RESOLVE = """
import sys, time
began = time.perf_counter()
import minfer.store
minfer.store.resolve(sys.argv[1])
print(time.perf_counter() - began)
"""
_FRESH_CLIENT = """
import sys
from minfer.store.daemon import with_daemon
from minfer.store.settings import Settings
print(with_daemon(Settings.of(), lambda client: client.resolve(sys.argv[1]))[0])
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, its unit, and the most that the store promises (None: nothing promised)."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    def row(self) -> str:
        """One line of the table."""
        limit = "" if self.limit is None else f"<= {self.limit:g}"
        verdict = "" if self.limit is None else ("ok" if self.value <= self.limit else "MISSED")
        return f"{self.name:<58} {self.value:9.3f} {self.unit:<3} {limit:>8}  {verdict}"


def _percentile(values: Sequence[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def fill(cache: Path, n_models: int) -> list[str]:
    """Put `n_models` small models with records into `cache`; their file names."""
    names = []
    for index in range(n_models):
        place = f"hf/org{index % _ORGANISATIONS}/repo-{index}-GGUF"
        name = f"model-{index}-Q4_K_M.gguf"
        path = cache / place / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"GGUF" + bytes(60))
        modified_ns = path.stat().st_mtime_ns
        record = Record(f"{place}/{name}", 64, "0" * 64, f"hf:{place[3:]}", "c" * 40, modified_ns=modified_ns)
        write_record(cache, record)
        names.append(name)
    return names


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Programs:
    """Fresh processes, as users have them: with compiled modules kept."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def fetch(self, *words: str) -> str:
        """What minfer-fetch prints."""
        return self._run([str(Path(sys.executable).with_name("minfer-fetch")), *words])

    def python(self, program: str, *words: str) -> str:
        """What a small program prints."""
        return self._run([sys.executable, "-c", program, *words])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True)
        return done.stdout


@contextmanager
def _environment() -> Iterator[dict[str, str]]:
    """A cache and a place for sockets of their own; a daemon that was started there is stopped."""
    with tempfile.TemporaryDirectory(prefix="mf") as name:
        run = Path(name, "run")
        run.mkdir(mode=0o700)
        dropped = ("PYTHONDONTWRITEBYTECODE", "MINFER_STORE_SOCKET")
        environment = {key: value for key, value in os.environ.items() if key not in dropped}
        environment |= {"MINFER_MODEL_DIR": f"{name}/models", "XDG_RUNTIME_DIR": str(run)}
        try:
            yield environment
        finally:
            _stop(Settings.of(environment))


def _stop(settings: Settings) -> None:
    try:
        with connect(settings, may_start=False) as client:
            pid = client.server().pid
            client.leave(even_if_busy=True)
    except NoDaemonError:
        return
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def in_process(settings: Settings, names: Sequence[str], programs: Programs, rounds: int) -> Iterator[Figure]:
    """`minfer.store.resolve` of every kind of word, in a process that did so before and in a fresh one."""
    words = {
        "file name": names,
        "name without .gguf": [name.removesuffix(".gguf") for name in names],
        "unique prefix": [name.removesuffix("Q4_K_M.gguf") for name in names],
        "other case": [name.upper() for name in names],
        "hf:ORG/REPO": [f"hf:org{i % _ORGANISATIONS}/repo-{i}-GGUF" for i in range(len(names))],
    }
    for kind, choices in words.items():
        taken = choices[:: max(1, len(choices) // (5 * rounds))]
        spent = [_seconds(partial(minfer.store.resolve, word, settings=settings)) for word in taken]
        yield Figure(f"in-process resolve, {kind}: median", median(spent) * 1e3, "ms", 30)
        yield Figure(f"in-process resolve, {kind}: p99", _percentile(spent, 99) * 1e3, "ms")
    fresh = [float(programs.python(_FRESH_RESOLVE, names[i])) for i in range(rounds)]
    yield Figure("in-process resolve, first of a process with imports", median(fresh) * 1e3, "ms")


def listing(programs: Programs, rounds: int) -> Iterator[Figure]:
    """`minfer-fetch list` as a fresh process."""
    programs.fetch("list")
    spent = [_seconds(partial(programs.fetch, "list")) for _ in range(rounds)]
    yield Figure("minfer-fetch list: median", median(spent), "s", 0.5)
    yield Figure("minfer-fetch list: slowest", max(spent), "s")


def daemon(client: DaemonClient, names: Sequence[str], rounds: int) -> Iterator[Figure]:
    """Calls in turn, so that what the machine does meanwhile hits both alike."""
    empty, answered = [], []
    for index in range(100 * rounds):
        empty.append(_seconds(client.server))
        answered.append(_seconds(partial(client.resolve, names[index % len(names)])))
    for percent in (50, 99):
        a, b = _percentile(answered, percent), _percentile(empty, percent)
        yield Figure(f"daemon, empty call: p{percent}", b * 1e3, "ms")
        yield Figure(f"daemon, resolve: p{percent}", a * 1e3, "ms")
        yield Figure(f"daemon, resolve / empty call: p{percent}", a / b, "x", 2)


def dropped(client: DaemonClient, cache: Path, programs: Programs, rounds: int) -> Iterator[Figure]:
    """From a file that appears in the cache to the first listing that has it."""
    by_call, by_program = [], []
    for index in range(rounds):
        path = cache / f"dropped-{index}.gguf"
        path.write_bytes(b"GGUF")
        began = time.perf_counter()
        while path.name not in {model.path for model in client.models()}:
            time.sleep(0.005)
        by_call.append(time.perf_counter() - began)
        again = cache / f"dropped-again-{index}.gguf"
        again.write_bytes(b"GGUF")
        began = time.perf_counter()
        while f"dropped-again-{index} " not in programs.fetch("list"):
            pass
        by_program.append(time.perf_counter() - began)
    yield Figure("dropped file until the daemon lists it: slowest", max(by_call), "s", 1)
    yield Figure("dropped file until `minfer-fetch list` shows it: slowest", max(by_program), "s", 1)


def cold_start(settings: Settings, names: Sequence[str], programs: Programs, rounds: int) -> Iterator[Figure]:
    """A fresh client without a daemon, from its start to its end with an answer."""
    spent = []
    for index in range(rounds):
        _stop(settings)
        spent.append(_seconds(partial(programs.python, _FRESH_CLIENT, names[index])))
    yield Figure("cold client and daemon until the answer: median", median(spent), "s", 1.5)
    yield Figure("cold client and daemon until the answer: slowest", max(spent), "s")


def measure(n_models: int, rounds: int) -> Iterator[Figure]:
    """All figures, one after the other."""
    with _environment() as environment:
        settings, programs = Settings.of(environment), Programs(environment)
        names = fill(settings.cache, n_models)
        yield from in_process(settings, names, programs, rounds)
        yield from listing(programs, rounds)
        yield from cold_start(settings, names, programs, rounds)
        with connect(settings) as client:
            yield from daemon(client, names, rounds)
            yield from dropped(client, settings.cache, programs, rounds)


def main() -> None:
    """Print a line for each figure; append them to the ledger when told; 1 when a limit was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    stolen = machine.steal_seconds()
    figures = []
    for figure in measure(options.models, options.rounds):
        print(figure.row(), flush=True)
        figures.append(figure)
    stolen = machine.steal_seconds() - stolen
    print(f"load {os.getloadavg()[0]:.1f}, {stolen:.1f} s of CPU time taken by others on the host")
    if options.ledger:
        line = {**machine.facts(), "bench": "store", "models": options.models, "steal_s": stolen}
        with options.ledger.open("a") as ledger:
            ledger.write(json.dumps({**line, **{each.name: each.value for each in figures}}) + "\n")
    sys.exit(any(each.limit is not None and each.value > each.limit for each in figures))


if __name__ == "__main__":
    main()
