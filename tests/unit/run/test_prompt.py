"""Where the prompt comes from."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from minfer.run.prompt import EmptyPromptError, PromptFileError, read_prompt


def _stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_words_join_and_leave_stdin_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, b"unread")
    assert read_prompt(("why", "is", "it"), None) == "why is it"


def test_a_dash_among_the_words_is_all_of_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, b"one\ntwo\n")
    assert read_prompt(("sum", "up:", "-"), None) == "sum up: one\ntwo"


def test_without_words_all_of_stdin_less_one_newline(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, b"one\ntwo\n\n")
    assert read_prompt((), None) == "one\ntwo\n"


def test_a_file_and_words_after_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("first\n")
    assert read_prompt(("then",), tmp_path / "text") == "first\nthen"
    assert read_prompt((), tmp_path / "text") == "first"


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n"])
def test_nothing_to_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    _stdin(monkeypatch, data)
    with pytest.raises(EmptyPromptError, match="stdin is empty"):
        read_prompt((), None)


def test_bytes_that_are_not_text_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, b"ab\xff")
    with pytest.raises(PromptFileError, match="0xff at offset 2"):
        read_prompt((), None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptFileError, match="No such file"):
        read_prompt((), tmp_path / "absent")
