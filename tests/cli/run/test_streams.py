"""Streams that are closed, full or left by their reader cost no answer, and say so when they do."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]


@pytest.fixture
def tiny(minfer_run: Program) -> Program:
    """A world with `tiny.gguf` in the cache."""
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama", has_template=False)))
    return minfer_run


def _shell(program: Program, redirections: str, *words: str) -> tuple[int, bytes, bytes]:
    """Run a tool with `redirections` as bash understands them: status, stdout, stderr."""
    line = f"{shlex.join(program.command(*words))} {redirections}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        env=program.environment(),
        cwd=program.here,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


ANSWER = ("tiny", "hello", "-n", "8")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&-", "2> >(exit)"])
def test_the_answer_comes_whatever_happens_to_stderr_and_stdin(tiny: Program, redirection: str) -> None:
    status, out, _ = _shell(tiny, "2>/dev/null", *ANSWER)
    assert (status, out != b"") == (0, True)
    assert _shell(tiny, redirection, *ANSWER)[:2] == (0, out)


def test_stdout_closed_from_the_start_is_nobody_listening(tiny: Program) -> None:
    assert _shell(tiny, ">&-", "-q", *ANSWER) == (0, b"", b"")
    assert _shell(tiny, ">&-", "--version") == (0, b"", b"")
    assert _shell(tiny, ">&- 2>&- <&-", *ANSWER) == (0, b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("words", [("-q", *ANSWER), ("--help",), ("tokenize", "-q", "tiny", "a")])
def test_a_full_disk_under_stdout_is_an_error(tiny: Program, words: tuple[str, ...]) -> None:
    assert _shell(tiny, ">/dev/full", *words) == (
        1,
        b"",
        b"Error: stdout cannot be written: No space left on device\nHint: make room where stdout goes\n",
    )


def test_words_are_the_bytes_that_were_typed(tiny: Program) -> None:
    typed = tiny("-q", *ANSWER, "日本")
    assert typed.status == 0
    assert tiny("-q", *ANSWER, "日本", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") == typed
    assert _shell(tiny, "2>&1", "-q", "tiny", os.fsdecode(b"a\xff")) == (
        2,
        b"Error: the prompt is not UTF-8 text: byte 0xff at offset 1\nHint: convert it to UTF-8 first\n",
        b"",
    )


@pytest.mark.parametrize("flag", ["--system", "--stop", "--dry-sequence-breaker"])
def test_text_of_a_flag_that_is_not_utf_8_is_refused(tiny: Program, flag: str) -> None:
    status, out, err = _shell(tiny, "", "tiny", "hi", flag, os.fsdecode(b"ab\xff"))
    assert (status, out) == (2, b"")
    assert f"Invalid value for '{flag}': not UTF-8 text: byte 0xff at offset 2".encode() in err
