"""Downloads in processes that die, wait for each other, or run out of disk."""

from __future__ import annotations

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fetch import servers
from e2e.fetch.servers import FileServer

CHILD = Path(__file__).with_name("pull_child.py")
N_BYTES = 24_000_000
BODY = b"GGUF" + random.Random(1).randbytes(N_BYTES - 4)
HEX = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with servers.serving({"/tiny.gguf": BODY}) as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "models"


def start(server: FileServer, cache: Path, n_processes: int = 1) -> subprocess.Popen[str]:
    words = [f"{server.url}/tiny.gguf", str(N_BYTES), HEX, str(cache), str(n_processes)]
    return subprocess.Popen([sys.executable, str(CHILD), *words], stdout=subprocess.PIPE, text=True)


def partial_size(cache: Path) -> int:
    try:
        return (cache / ".minfer/partial" / f"{HEX}.partial").stat().st_size
    except OSError:
        return 0


def finals(cache: Path) -> list[Path]:
    return list(cache.rglob("*.gguf"))


def wait_for_bytes(cache: Path, n_bytes: int) -> None:
    for _ in range(2000):
        if partial_size(cache) >= n_bytes:
            return
        time.sleep(0.01)
    pytest.fail(f"the download does not reach {n_bytes} bytes")


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


def test_death_at_any_moment_loses_nothing(server: FileServer, cache: Path) -> None:
    """Killed over and over at random moments, the download still only goes forward."""
    chance = random.Random(7)
    server.bytes_per_s = 20_000_000
    for _ in range(12):
        before = partial_size(cache)
        server.seen.clear()
        process = start(server, cache)
        wait_for_bytes(cache, min(before + chance.randrange(1, 2_000_000), N_BYTES))
        time.sleep(chance.random() / 20)
        process.kill()
        process.communicate()
        assert not finals(cache) or finals(cache)[0].read_bytes() == BODY
        if finals(cache):
            break
        asked = [seen.range for seen in server.seen]
        assert asked == ([f"bytes={before}-"] if before else [""])
        assert partial_size(cache) >= before
    server.bytes_per_s = 0
    assert finish(start(server, cache)).strip() == str(finals(cache)[0])
    assert finals(cache)[0].read_bytes() == BODY


def test_the_second_process_takes_over_when_the_first_dies(server: FileServer, cache: Path) -> None:
    server.bytes_per_s = 4_000_000
    first = start(server, cache)
    wait_for_bytes(cache, 1_000_000)
    second = start(server, cache)
    assert second.stdout is not None
    assert second.stdout.readline() == "waiting\n"
    first.kill()
    first.communicate()
    server.bytes_per_s = 0
    server.seen.clear()
    finish(second)
    assert finals(cache)[0].read_bytes() == BODY
    assert len(server.seen) == 1
    assert int(server.seen[0].range.removeprefix("bytes=").rstrip("-")) >= 1_000_000


def test_twenty_processes_make_one_download(server: FileServer, cache: Path) -> None:
    server.bytes_per_s = 40_000_000
    output = finish(start(server, cache, n_processes=20)).splitlines()
    assert output.count("waiting") == 19
    assert output.count(str(finals(cache)[0])) == 20
    assert finals(cache)[0].read_bytes() == BODY
    assert len(server.seen) == 1


def test_ctrl_c_ends_soon_and_keeps_what_came(server: FileServer, cache: Path) -> None:
    server.bytes_per_s = 4_000_000
    process = start(server, cache)
    wait_for_bytes(cache, 2_000_000)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert not finals(cache)
    kept = partial_size(cache)
    server.bytes_per_s = 0
    server.seen.clear()
    finish(start(server, cache))
    assert [seen.range for seen in server.seen] == [f"bytes={kept}-"]
    assert kept >= 2_000_000


def test_ctrl_c_ends_soon_on_a_silent_server(server: FileServer, cache: Path) -> None:
    server.faults.append(servers.hang(30, n_bytes=1_000_000))
    process = start(server, cache)
    wait_for_bytes(cache, 500_000)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert time.monotonic() - began < 3
    assert process.returncode == 130


def test_a_disk_that_really_fills_up(server: FileServer, tmp_path: Path) -> None:
    """On a file system of 8 MB whose free space another process takes in the middle."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    words = f"'{server.url}/tiny.gguf' {N_BYTES} {HEX}"
    pull = f"'{sys.executable}' '{CHILD}' {words}"
    script = f"""
        mkdir {tmp_path}/small && mount -t tmpfs -o size=32m none {tmp_path}/small || exit 99
        ({pull} {tmp_path}/small/models 1; echo "exit $?") &
        until ls {tmp_path}/small/models/.minfer/partial/*.partial >/dev/null 2>&1; do sleep 0.05; done
        head -c 20000000 /dev/zero > {tmp_path}/small/ballast
        wait
        find {tmp_path}/small -name '*.gguf'
        rm {tmp_path}/small/ballast
        {pull} {tmp_path}/small/models 1; echo "exit $?"
        sha256sum {tmp_path}/small/models/hf/acme/tiny/tiny.gguf | cut -c -64
    """
    server.bytes_per_s = 30_000_000
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("this system lets no user mount a file system of their own")
    path = f"{tmp_path}/small/models/hf/acme/tiny/tiny.gguf"
    assert done.stdout.splitlines() == ["no-space", "exit 7", path, "exit 0", HEX]
