"""What starting must not import: the modules that are absent, not the time, which depends on the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minfer.engine.backends import available
from minfer.engine.testing import TinyModel, tiny_model

_HEAVY = (
    "numpy",
    "jinja2",
    "regex",
    "rich",
    "requests",
    "grpc",
    "google",
    "prompt_toolkit",
    "pydantic",
    "uvicorn",
)

# What a run of a file by its path, without a template, has no use for.
_UNUSED = (
    *_HEAVY,
    *("asyncio", "difflib", "http", "json", "logging", "shutil", "tempfile", "traceback"),
    *("minfer.engine.chat", "minfer.engine.speculation", "minfer.engine.architectures.gemma3"),
    *("minfer.engine.backends.numpy_backend", "minfer.run.explain", "minfer.run.conversation"),
    *("minfer.store.catalog", "minfer.store.resolution", "minfer.store.locks", "importlib.metadata"),
)

_REPORT = "import sys; print(*sorted(name for name in {unwanted} if name in sys.modules))"


def _imported(code: str, *arguments: str, unwanted: tuple[str, ...] = _HEAVY) -> set[str]:
    """Which unwanted modules a fresh interpreter has after running the code; its last line of output."""
    report = _REPORT.format(unwanted=unwanted)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}", *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("tool", ["run", "fetch"])
def test_help_imports_nothing_heavy(tool: str) -> None:
    code = (
        f"import sys; sys.argv = ['minfer-{tool}', '--help']\n"
        f"from minfer.{tool}.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0"
    )
    assert _imported(code) == set()


@pytest.mark.parametrize("module", ["minfer.engine", "minfer.engine.model", "minfer.gguf"])
def test_finding_out_about_a_model_imports_nothing_heavy(module: str) -> None:
    assert _imported(f"import {module}") == set()


def test_a_native_run_of_a_path_imports_what_it_uses_alone(tmp_path: Path) -> None:
    if available() == ("numpy",):
        pytest.skip("the native backend is not built here")
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model(TinyModel("llama")))
    code = (
        "import sys\nflags = ['--quiet', '--no-template', '--n-predict', '2']\n"
        "sys.argv = ['minfer-run', *flags, sys.argv[1], 'Hi']\n"
        "from minfer.run.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0"
    )
    assert _imported(code, str(path), unwanted=_UNUSED) <= {"regex"}


@pytest.mark.parametrize("command", ["list", "resolve", "info", "rm", "verify"])
def test_what_concerns_the_cache_alone_imports_no_network(command: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama")))
    words = [command, "--quiet"] + ([] if command == "list" else ["tiny"])
    code = (
        f"import os, sys; os.environ['MINFER_MODEL_DIR'] = {str(tmp_path)!r}\n"
        f"sys.argv = ['minfer-fetch', *{words!r}]\n"
        "from minfer.fetch.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0"
    )
    assert _imported(code) == set()
