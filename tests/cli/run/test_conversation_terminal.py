"""Conversations as a person has them: at a terminal, with editing keys, Ctrl-C and a window that changes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run
from terminal import Terminal

__all__ = ["minfer_run"]

CTRL_A, CTRL_C, CTRL_D, CTRL_U, UP, LEFT, BACKSPACE = (
    "\x01",
    "\x03",
    "\x04",
    "\x15",
    "\x1b[A",
    "\x1b[D",
    "\x7f",
)
ENTER = "\r"


class Talk:
    """A conversation at a terminal, kept in session.json."""

    def __init__(self, program: Program, *flags: str) -> None:
        (program.here / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama", n_context=8192)))
        self._session = program.here / "session.json"
        words = ("./tiny.gguf", "--cnv", "--session", "session.json", "-n", "6", "--n-ctx", "8192", *flags)
        state = {"XDG_STATE_HOME": str(program.here / "state")}
        self.history = program.here / "state" / "minfer" / "run-history"
        self.terminal = Terminal(program.command(*words), program.environment(**state), program.here)

    def messages(self) -> list[dict[str, Any]]:
        """What was said, as the session file has it."""
        return list(json.loads(self._session.read_text())["messages"])

    def questions(self) -> list[str]:
        return [one["content"] for one in self.messages() if one["role"] == "user"]

    def ask(self, keys: str, shows: str) -> None:
        self.terminal.type(keys + ENTER)
        self.terminal.wait_for(shows)
        self.terminal.wait_for("> ")


@pytest.fixture
def talk(minfer_run: Program) -> Iterator[Talk]:
    talk = Talk(minfer_run)
    talk.terminal.wait_for("> ")
    yield talk
    talk.terminal.close()


def test_five_turns(talk: Talk) -> None:
    talk.ask("one" + LEFT * 3 + "the " + CTRL_A + "X" + BACKSPACE, "[turn 1] prefill")
    talk.ask("日本語 と 🙂👩‍👩‍👧", "[turn 2] prefill")
    talk.terminal.resize(40, 60)
    talk.ask("/regen", "[turn 2] regen: prefill 1 token,")
    talk.ask("x" * 150 + " wraps", "[turn 3] prefill")
    talk.ask("/undo", "[took back: xxx")
    talk.ask(UP + UP + UP, "[turn 2] regen")
    talk.ask("\x1b[200~pasted\nlines\x1b[201~", "[turn 3] prefill")
    talk.ask("four \\" + ENTER + "more", "[turn 4] prefill")
    talk.ask("half a thought" + CTRL_C + "five", "[turn 5] prefill")
    talk.terminal.type(CTRL_D)
    assert talk.terminal.end() == 0
    assert talk.questions() == ["the one", "日本語 と 🙂👩‍👩‍👧", "pasted\nlines", "four \nmore", "five"]
    choices = [one["choice"] for one in talk.messages() if one["role"] == "assistant"]
    assert choices == [0, 2, 0, 0, 0]
    assert "+日本語 と 🙂👩‍👩‍👧" in talk.history.read_text()


def test_interrupting_keeps_the_answer(talk: Talk) -> None:
    talk.ask("/set n_predict 8000", "n_predict = 8000")
    talk.ask("/set logit_bias 256-inf 258-inf", "logit_bias = ((256, -inf), (258, -inf))")
    talk.terminal.type("go" + ENTER)
    talk.terminal.wait_for_more(1000)  # far more than the editing of the line shows: the answer runs
    talk.terminal.type(CTRL_C)
    talk.terminal.wait_for("Note: stopped; what there is of the answer is kept")
    talk.terminal.wait_for("> ")
    answer = talk.messages()[-1]
    assert answer["role"] == "assistant"
    assert 0 < len(answer["ids"]) < 8000
    talk.ask("/set n_predict 5", "n_predict = 5")
    talk.ask("and then", "[turn 2] prefill")


def test_leaving_by_interrupts(talk: Talk) -> None:
    talk.ask("one", "[turn 1] prefill")
    talk.terminal.type("half" + CTRL_C)
    talk.terminal.type(CTRL_C)
    talk.terminal.wait_for("/exit or Ctrl-D leaves")
    talk.terminal.type(CTRL_C)
    assert talk.terminal.end() == 130
    assert talk.questions() == ["one"]
    assert "[session] saved 2 messages" in talk.terminal.shown


def test_an_interrupt_long_ago_does_not_count(talk: Talk) -> None:
    talk.terminal.type(CTRL_C)
    talk.terminal.wait_for("/exit or Ctrl-D leaves")
    time.sleep(2.1)
    talk.terminal.type(CTRL_C)
    talk.terminal.wait_for("/exit or Ctrl-D leaves")
    talk.ask("still here", "[turn 1] prefill")


def test_editing_an_earlier_message(talk: Talk) -> None:
    talk.ask("first", "[turn 1] prefill")
    talk.ask("second", "[turn 2] prefill")
    talk.terminal.type("/edit 1" + ENTER)
    talk.terminal.wait_for("first")
    talk.terminal.wait_for("first")  # the prompt comes with the old text
    talk.ask(" and last", "[turn 1] prefill")
    assert talk.questions() == ["first and last"]


def test_tab_completes(talk: Talk, minfer_run: Program) -> None:
    (minfer_run.here / "a long name.txt").write_text("content")
    for typed, completed, rest, answer in (
        ("/bra", "nch", " other", "[new branch other"),
        ("/read a lo", "ng name.txt", "", "[a long name.txt: 7 tokens"),
        ("/set repeat_p", "enalty", " 1.5", "repeat_penalty = 1.5"),
        ("/model ./ti", "ny.gguf", "", "[model tiny.gguf]"),
    ):
        talk.terminal.type(typed + "\t")
        talk.terminal.wait_for(completed)
        talk.ask(rest, answer)


def test_several_lines(minfer_run: Program) -> None:
    talk = Talk(minfer_run, "-mli", "--color", "on")
    try:
        talk.terminal.wait_for("> ")
        talk.ask("a" + ENTER + "b" + ENTER, "[turn 1] prefill")
        talk.ask("/show", "1 user")
        talk.terminal.type(CTRL_D)
        assert talk.terminal.end() == 0
        assert talk.questions() == ["a\nb"]
    finally:
        talk.terminal.close()


def test_history_outlives_the_conversation(minfer_run: Program) -> None:
    for keys, expected in (("hello there" + ENTER, ["hello there"]), (UP + ENTER, ["hello there"] * 2)):
        talk = Talk(minfer_run)
        try:
            talk.terminal.wait_for("> ")
            talk.terminal.type(keys)
            talk.terminal.wait_for("prefill")
            talk.terminal.wait_for("> ")
            talk.terminal.type("/exit" + ENTER)
            assert talk.terminal.end() == 0
            assert talk.questions() == expected
        finally:
            talk.terminal.close()
        if expected == ["hello there"]:
            # /exit is the latest line of the history now
            _forget_last(talk.history)


def _forget_last(history: Path) -> None:
    text = history.read_text()
    history.write_text(text[: text.rindex("\n#")])
