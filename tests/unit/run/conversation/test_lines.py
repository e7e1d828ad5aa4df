"""Turns out of a script, and what Tab offers."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from minfer.run.conversation.commands import ACTIONS
from minfer.run.conversation.completion import suggestions
from minfer.run.conversation.lines import LineError, ScriptLines
from minfer.run.conversation.words import COMMANDS, UnknownCommandError, parse_line


def _turns(monkeypatch: pytest.MonkeyPatch, script: bytes, *, multiline: bool = False) -> list[str]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(script)))
    lines = ScriptLines(multiline=multiline)
    return list(iter(lines.read, None))


@pytest.mark.parametrize(
    ("script", "turns"),
    [
        (b"", []),
        (b"\n \n\n", []),
        (b"one\r\n\ntwo", ["one", "two"]),
        (b"a\\\nb\\\nc\nd\n", ["a\nb\nc", "d"]),
        (b"ends here\\\n", ["ends here"]),
        (b'"""a\nb\n\nc"""\nd\n', ["a\nb\n\nc", "d"]),
        (b'"""one line"""\n', ["one line"]),
        (b'"""never closed\nx', ["never closed\nx"]),
        ("日本語 🙂\n".encode(), ["日本語 🙂"]),
    ],
)
def test_turns_of_a_script(monkeypatch: pytest.MonkeyPatch, script: bytes, turns: list[str]) -> None:
    assert _turns(monkeypatch, script) == turns


def test_paragraphs_of_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _turns(monkeypatch, b"a\nb\n\n\n/undo\nc\nd", multiline=True) == ["a\nb", "/undo", "c\nd"]


def test_a_line_that_is_not_text_is_an_error_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff\nb\n")))
    lines = ScriptLines(multiline=False)
    with pytest.raises(LineError, match="byte 0xff at offset 1"):
        lines.read()
    assert lines.read() == "b"


def test_lines_become_commands_and_messages() -> None:
    assert parse_line("hello /undo") == (None, "hello /undo")
    assert parse_line("//undo") == (None, "/undo")
    command, argument = parse_line("/edit  2  new text ")
    assert command is not None
    assert (command.name, argument) == ("edit", "2  new text")
    with pytest.raises(UnknownCommandError) as caught:
        parse_line("/brnach")
    assert caught.value.hint.startswith("did you mean /branch?")


def test_every_command_has_an_action() -> None:
    assert {command.name for command in COMMANDS} == set(ACTIONS)


def test_what_tab_offers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "cached-model.gguf").write_bytes(b"GGUF")
    (tmp_path / "notes.txt").touch()
    assert suggestions("/re") == ("/re", ["/regen", "/read"])
    assert suggestions("/read ") == ("", ["models/", "notes.txt"])
    assert suggestions("/read models/c") == ("models/c", ["models/cached-model.gguf"])
    assert suggestions("/model ca") == ("ca", ["cached-model"])
    assert suggestions("/set repeat-l") == ("repeat-l", ["repeat_last_n"])
    assert suggestions("/load ~nobody-of-that-name/") == ("~nobody-of-that-name/", [])
    for line in ("", "hello", "//re", "/undo x", "/nonsense x"):
        assert suggestions(line)[1] == []
