"""The process edge: errors, interrupts and closed pipes become text and exit status."""

from __future__ import annotations

import click
import pytest

from minfer.cli import CommandRow, LazyGroup, TolerantCommand, main
from minfer.cli.streams import ReaderLeftError
from minfer.core.errors import ModelNotFoundError


def _status(command: click.Command, *arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_info:
        main(command, "tool", arguments)
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code


def _failing(error: BaseException) -> click.Command:
    @click.command()
    @click.option("--verbose", is_flag=True)
    def command(verbose: bool) -> None:
        raise error

    return command


def test_an_error_of_ours_prints_fact_candidates_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModelNotFoundError("no model 'x'", hint="minfer-fetch list", candidates=("a", "b"))
    assert _status(_failing(error)) == 3
    assert capsys.readouterr() == ("", "Error: no model 'x'\n  a\n  b\nHint: minfer-fetch list\n")


def test_interrupts_and_closed_pipes(capfd: pytest.CaptureFixture[str]) -> None:
    assert _status(_failing(KeyboardInterrupt())) == 130
    assert _status(_failing(ReaderLeftError())) == 0
    assert capfd.readouterr() == ("", "")


def test_a_socket_that_breaks_is_no_reader_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(_failing(BrokenPipeError("the peer is gone"))) == 1
    assert "BrokenPipeError: the peer is gone" in capsys.readouterr().err


def test_the_unexpected_has_no_traceback_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(_failing(ZeroDivisionError("oops"))) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert _status(_failing(ZeroDivisionError("oops")), "--verbose") == 1
    assert "Traceback" in capsys.readouterr().err


def test_usage_errors_exit_2_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert _status(_failing(ValueError()), "--verbos") == 2
    assert "--verbose" in capsys.readouterr().err


def test_foreign_flags_get_the_right_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    class Command(TolerantCommand):
        habits = {"-m": "the model is the first word"}  # noqa: RUF012

    assert _status(Command("run", callback=lambda: None), "-m", "x") == 2
    assert "Hint: the model is the first word" in capsys.readouterr().err


def test_the_group_lists_rows_without_importing_them(capsys: pytest.CaptureFixture[str]) -> None:
    group = LazyGroup((CommandRow("pull", "no.such.module:x", "fetch a model"),), name="tool")
    assert _status(group, "--help") == 0
    assert "fetch a model" in capsys.readouterr().out
