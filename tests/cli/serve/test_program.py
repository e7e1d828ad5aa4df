"""The command line of minfer-serve."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from serving import write_tiny

_START = "from minfer.serve.cli import main; main()"


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _START, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_help_imports_nothing_that_serves() -> None:
    code = (
        "import sys\nfrom minfer.serve.cli import program\n"
        "program.main(['--help'], standalone_mode=False)\n"
        "print([name for name in ('numpy', 'starlette', 'uvicorn', 'pydantic', 'jinja2', 'asyncio',"
        " 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--n-slots" in done.stdout
    assert "--top-p" in done.stdout


def test_mistakes_are_named_with_a_status() -> None:
    assert _run("--version").stdout.startswith("minfer-serve ")
    unknown = _run("x.gguf", "--nonsense")
    assert unknown.returncode == 2
    habit = _run("-m", "x.gguf")
    assert habit.returncode == 2
    assert "the model is the first word" in habit.stderr
    open_ = _run("x.gguf", "--host", "0.0.0.0")
    assert open_.returncode == 2
    assert "--api-key" in open_.stderr
    missing = _run("./missing.gguf", "--port", "0")
    assert missing.returncode == 3
    assert "Traceback" not in missing.stderr
    assert missing.stdout == ""


def test_a_key_that_is_empty_leaves_nothing_open(tmp_path: Path) -> None:
    for flags in (["--api-key", ""], ["--api-key", "one", "--api-key", " "]):
        done = _run("x.gguf", *flags)
        assert done.returncode == 2
        assert "--api-key is empty" in done.stderr
    blank = tmp_path / "keys"
    blank.write_text("\n  \n")
    done = _run("x.gguf", "--api-key-file", str(blank))
    assert done.returncode == 2
    assert "no key in it" in done.stderr


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        done = _run(str(write_tiny(tmp_path)), "--port", str(holder.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot listen" in done.stderr
    assert "--port" in done.stderr


def test_a_context_that_does_not_fit_memory_is_refused_before_loading(tmp_path: Path) -> None:
    done = _run(str(write_tiny(tmp_path)), "--port", "0", "--n-ctx", str(2**31 - 1))
    assert done.returncode == 9
    assert "would fit" in done.stderr
