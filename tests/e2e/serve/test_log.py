"""stderr with --log-format: every line of it, whoever wrote it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from minfer.engine.testing import TinyModel
from serving import write_tiny

Json = dict[str, Any]
# The engine's thread fails at its third step, the way a mistake of ours would look.
_FAILING = """
import warnings
from minfer.engine.generate import GenerationLoop
step, calls = GenerationLoop.step, []
def failing(self):
    calls.append(1)
    if len(calls) == 3:
        warnings.warn("something is old", DeprecationWarning, stacklevel=1)
        raise ZeroDivisionError("on purpose")
    return step(self)
GenerationLoop.step = failing
warnings.simplefilter("always")
"""


@contextmanager
def _start(model: Path | str, *flags: str, before: str = "") -> Iterator[subprocess.Popen[str]]:
    code = f"{before}\nfrom minfer.serve.cli import main; main()"
    command = [sys.executable, "-c", code, str(model), "--port", "0", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _until(process: subprocess.Popen[str], beginning: str, seen: list[Json]) -> Json:
    assert process.stderr is not None
    for line in process.stderr:
        seen.append(json.loads(line))
        if seen[-1]["message"].startswith(beginning):
            return seen[-1]
    raise AssertionError(f"no line {beginning!r} among {seen}")


def _rest(process: subprocess.Popen[str]) -> list[Json]:
    out, rest = process.communicate(timeout=30)
    assert out == ""
    return [json.loads(line) for line in rest.splitlines()]


def test_every_line_is_json(tmp_path: Path) -> None:
    seen: list[Json] = []
    with _start(write_tiny(tmp_path), "--log-format", "json") as process:
        url = _until(process, "Listening", seen)["message"].split()[2]
        _until(process, "Ready", seen)
        with httpx.Client(base_url=url, trust_env=False) as client:
            client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, "temperature": "x"})
            client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, "seed": 1})
            client.get('/no"thing%0A', headers={"x-request-id": "mine"})
        process.send_signal(signal.SIGTERM)
        seen += _rest(process)
    assert process.returncode == 0
    assert all({"time", "level", "message"} <= set(line) for line in seen)
    requests = [line for line in seen if line["message"] == "request"]
    assert [line["status"] for line in requests] == [400, 200, 404]
    assert requests[2]["request_id"] == "mine"
    assert any(line["message"].startswith("Loaded") for line in seen)


def test_what_ends_the_process_is_json_too(tmp_path: Path) -> None:
    with _start("./missing.gguf", "--log-format", "json") as process:
        *_, last = _rest(process)
    assert process.returncode == 3
    assert last["level"] == "error"
    assert "missing.gguf" in last["message"]
    assert last["code"]


def test_failures_of_our_own_are_json_too(tmp_path: Path) -> None:
    seen: list[Json] = []
    body = {"prompt": "a", "max_tokens": 20, "temperature": 0}
    model = write_tiny(tmp_path, TinyModel("llama"))
    with _start(model, "--log-format", "json", before=_FAILING) as process:
        url = _until(process, "Listening", seen)["message"].split()[2]
        _until(process, "Ready", seen)
        answer = httpx.post(f"{url}/v1/completions", json=body, trust_env=False)
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"
        seen += _rest(process)
    assert process.returncode == 1
    ended = [line for line in seen if "ZeroDivisionError" in line["message"]]
    assert "on purpose" in ended[0]["traceback"]
    assert any("something is old" in line["message"] for line in seen)
    assert seen[-1]["level"] == "error"


@pytest.mark.parametrize(("form", "is_logged"), [("text", True), ("none", False)])
def test_people_read_lines(tmp_path: Path, form: str, is_logged: bool) -> None:
    with _start(write_tiny(tmp_path), "--log-format", form) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        url = next(lines).split()[2]
        assert next(line for line in lines if line.startswith("Ready"))
        assert httpx.get(f"{url}/v1/models", trust_env=False).status_code == 200
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
    assert ("GET /v1/models 200" in rest) == is_logged
