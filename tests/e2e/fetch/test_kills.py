"""kill -9 at random moments of a pull: of the daemon, of its client, of the child that works without one.

Each time the next run completes, asks the server for what had not reached the disk (almost: 2 MB may be asked
again), and no file but the right one ever has a final name.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from e2e.fetch import servers
from e2e.fetch.daemons import Place, place, wait_until
from e2e.fetch.hub import Hub, Repository

BODY = b"GGUF" + random.Random(3).randbytes(16_000_000)
MODEL = "hf:acme/tiny-GGUF:q4_0"
PATH = "hf/acme/tiny-GGUF/tiny-Q4_0.gguf"
N_KILLS: Final = 50 if os.environ.get("MINFER_PROVE") else 2
MAX_AGAIN: Final = 2_000_000  # bytes
LIBRARY = "import sys, minfer.store; print(minfer.store.resolve(sys.argv[1]).path)"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with servers.serving({}) as server:
        server.bytes_per_s = 16_000_000
        yield Hub(server, {"acme/tiny-GGUF": Repository({"tiny-Q4_0.gguf": BODY})})


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_fetching(pid: int) -> bool:
    """True for `python -m minfer.fetch`, and not yet for the fork that becomes it."""
    try:
        return b"minfer.fetch" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Pull:
    """One pull by a program that uses the library, in a cache that is empty before."""

    def __init__(self, here: Place, hub: Hub) -> None:
        shutil.rmtree(here.cache, ignore_errors=True)
        hub.server.n_sent = 0
        hub.server.seen.clear()
        self.here, self.hub = here, hub
        self.n_verified = self.n_asked_before = 0
        self.client = self.start()

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", LIBRARY, MODEL]
        return subprocess.Popen(
            command, env=self.here.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def victims(self, role: str) -> list[int]:
        if role == "client":
            return [self.client.pid] if self.client.poll() is None else []
        if role == "daemon":
            return self.here.pids()
        return [pid for pid in children_of(self.client.pid) if is_fetching(pid)]

    def killed(self, role: str, fraction: float, delay_s: float) -> bool:
        """Kill once that much of the file was sent and the delay is over; False when there is none left."""
        wait_until(lambda: self.victims(role) or self.client.poll() is not None, 60)
        wait_until(
            lambda: self.hub.server.n_sent >= fraction * len(BODY) or self.client.poll() is not None, 60
        )
        time.sleep(delay_s)
        was_waited_for = self.client.poll() is None
        victims = self.victims(role)
        for victim in victims:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not set(victims).intersection(self.victims(role)))
        self.n_asked_before = len(self.asked)
        partials = self.here.cache.glob(".minfer/partial/*.partial")
        self.n_verified = sum(partial.stat().st_size for partial in partials)
        return bool(victims) and was_waited_for

    def complete(self, role: str) -> None:
        """The run that is next: the client's own second attempt where the daemon died, else a new one."""
        output, words = self.client.communicate(timeout=240)
        if role != "daemon":
            self.check_finals()
            output, words = self.start().communicate(timeout=240)
        assert output == f"{self.here.cache / PATH}\n", words

    @property
    def asked(self) -> list[int]:
        """The first byte of each request for the file that the server saw."""
        ranges = [seen.range for seen in list(self.hub.server.seen) if seen.path.startswith("/storage/")]
        return [int(text.removeprefix("bytes=").removesuffix("-") or 0) for text in ranges]

    @property
    def was_cut(self) -> bool:
        """True when the kill fell between two bytes of the file."""
        return 0 < self.n_asked_before < len(self.asked)

    @property
    def n_again(self) -> int:
        """How many of the bytes that had reached the disk the server was asked for again."""
        after = self.asked[self.n_asked_before :]
        return max(0, self.n_verified - after[0]) if after else 0

    def check_finals(self) -> None:
        for final in self.here.cache.rglob("*.gguf"):
            assert final.relative_to(self.here.cache) == Path(PATH)
            assert final.read_bytes() == BODY


def moment(chance: random.Random) -> tuple[float, float]:
    """(fraction of the file, seconds after that): before the first byte, between any two, after the last."""
    return chance.choice((-1, chance.uniform(0, 1), chance.uniform(0, 1), 1)), chance.uniform(0, 0.15)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("role", ["daemon", "client", "child"])
def test_killed_at_random_moments_a_pull_is_finished_by_the_next_run(role: str, hub: Hub) -> None:
    chance = random.Random(f"{role} 5")
    n_killed = n_cut = most_again = most_twice = 0
    extra = {"MINFER_STORE_SOCKET": "off"} if role == "child" else {}
    with place(HF_ENDPOINT=hub.server.url, **extra) as here:
        while n_killed < N_KILLS:
            pull = Pull(here, hub)
            is_killed = pull.killed(role, *moment(chance))
            n_killed += is_killed
            pull.complete(role if is_killed else "daemon")
            pull.check_finals()
            assert (here.cache / PATH).read_bytes() == BODY
            assert not list((here.cache / ".minfer/partial").glob("*.partial"))
            assert pull.n_again < MAX_AGAIN, f"kill {n_killed}: {pull.n_again} bytes of {pull.n_verified}"
            n_cut += pull.was_cut
            most_again = max(most_again, pull.n_again)
            most_twice = max(most_twice, hub.server.n_sent - len(BODY))
    print(
        f"{role}: {n_killed} kills, {n_cut} between two bytes of the file; at most {most_again} bytes of the "
        f"disk's were asked for again, {most_twice} sent twice (with those on their way to the dead)"
    )
    assert n_cut >= N_KILLS // 4


@pytest.mark.parametrize("way", ["daemon", "child"])
def test_nobody_downloads_for_a_client_that_was_killed(way: str, hub: Hub) -> None:
    hub.server.bytes_per_s = 1_000_000
    extra = {"MINFER_STORE_SOCKET": "off"} if way == "child" else {}
    with place(HF_ENDPOINT=hub.server.url, **extra) as here:
        pull = Pull(here, hub)
        assert pull.killed("client", 0.05, 0)
        sent: list[int] = []

        def has_stopped() -> bool:
            sent.append(hub.server.n_sent)
            time.sleep(0.3)
            return hub.server.n_sent == sent[-1]

        wait_until(has_stopped, 10)
        pull.client.communicate()
        assert sent[-1] < len(BODY)
