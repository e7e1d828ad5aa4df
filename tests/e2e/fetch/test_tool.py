"""minfer-fetch itself, in processes of its own, against a Hub on loopback."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fetch import servers
from e2e.fetch.hub import Hub, Repository

BODY = b"GGUF" + random.Random(1).randbytes(8_000_000)
PATH = "hf/acme/tiny-GGUF/tiny-Q4_0.gguf"
MODEL = "hf:acme/tiny-GGUF:q4_0"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with servers.serving({}) as server:
        files = {"tiny-Q4_0.gguf": BODY, "tiny-Q8_0.gguf": BODY + b"x"}
        yield Hub(server, {"acme/tiny-GGUF": Repository(files)})


def start(hub: Hub, tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "MINFER_MODEL_DIR": str(tmp_path / "models"),
        "HOME": str(tmp_path),
        "HF_ENDPOINT": hub.server.url,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "minfer.fetch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(hub: Hub, tmp_path: Path, *words: str) -> tuple[int, str, str]:
    process = start(hub, tmp_path, *words)
    stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout, stderr


def storage_requests(hub: Hub) -> list[str]:
    return [seen.range for seen in hub.server.seen if seen.path.startswith("/storage/")]


def wait_for_bytes(tmp_path: Path, n_bytes: int) -> None:
    for _ in range(2000):
        if any(p.stat().st_size >= n_bytes for p in (tmp_path / "models").glob(".minfer/partial/*.partial")):
            return
        time.sleep(0.01)
    pytest.fail(f"the download does not reach {n_bytes} bytes")


def test_pull_prints_the_path_and_nothing_else_on_stdout(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "models" / PATH
    code, stdout, stderr = run(hub, tmp_path, "pull", MODEL)
    assert (code, stdout) == (0, f"{path}\n")
    assert f"Model ready: {path}" in stderr
    assert path.read_bytes() == BODY
    code, stdout, stderr = run(hub, tmp_path, "pull", MODEL)
    assert (code, stdout, stderr) == (0, f"{path}\n", f"Already cached: {path}\n")
    assert len(storage_requests(hub)) == 1


def test_quiet_is_quiet(hub: Hub, tmp_path: Path) -> None:
    code, stdout, stderr = run(hub, tmp_path, "pull", "-q", MODEL)
    assert (code, stdout, stderr) == (0, f"{tmp_path / 'models' / PATH}\n", "")


def test_a_dry_run_fetches_and_makes_nothing(hub: Hub, tmp_path: Path) -> None:
    code, stdout, _ = run(hub, tmp_path, "pull", "--dry-run", "--json", MODEL)
    assert code == 0
    assert [file["bytes"] for file in json.loads(stdout)["files"]] == [len(BODY)]
    assert not (tmp_path / "models").exists()
    assert storage_requests(hub) == []


def test_a_second_process_waits_and_says_how_far_the_first_is(hub: Hub, tmp_path: Path) -> None:
    hub.server.bytes_per_s = 2_000_000
    first = start(hub, tmp_path, "pull", MODEL)
    wait_for_bytes(tmp_path, 500_000)
    code, stdout, stderr = run(hub, tmp_path, "resolve", MODEL)
    assert (code, stdout) == (0, f"{tmp_path / 'models' / PATH}\n")
    assert "another process is downloading it" in stderr
    assert "tiny-Q4_0.gguf: " in stderr
    first.communicate(timeout=30)
    assert first.returncode == 0
    assert len(storage_requests(hub)) == 1


def test_ctrl_c_keeps_what_came(hub: Hub, tmp_path: Path) -> None:
    hub.server.bytes_per_s = 2_000_000
    process = start(hub, tmp_path, "pull", MODEL)
    wait_for_bytes(tmp_path, 2_000_000)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    hub.server.bytes_per_s = 0
    code, _, stderr = run(hub, tmp_path, "pull", MODEL)
    assert code == 0
    assert "going on from" in stderr
    assert int(storage_requests(hub)[1].removeprefix("bytes=").rstrip("-")) >= 2_000_000


def test_a_changed_upstream_leaves_a_working_file_alone(hub: Hub, tmp_path: Path) -> None:
    assert run(hub, tmp_path, "pull", MODEL)[0] == 0
    hub.repositories["acme/tiny-GGUF"].files["tiny-Q4_0.gguf"] = BODY[:-1]
    code, stdout, stderr = run(hub, tmp_path, "pull", MODEL)
    assert (code, stdout) == (7, "")
    assert "is another file than" in stderr
    assert (tmp_path / "models" / PATH).read_bytes() == BODY


def test_every_failure_is_two_lines_and_a_code(hub: Hub, tmp_path: Path) -> None:
    for model, expected in {
        "hf:acme/none": 3,
        "hf:acme/tiny-GGUF:q2_k": 3,
        "hf:acme/tiny-GGUF@nowhere": 3,
        "ollama:127.0.0.1:1/library/x": 7,
    }.items():
        code, stdout, stderr = run(hub, tmp_path, "pull", model)
        assert (code, stdout) == (expected, ""), model
        assert stderr.startswith("Error: ")
        assert "Hint: " in stderr
        assert "Traceback" not in stderr
