"""Conversations as a script on stdin: what comes out, what is said about it, what is kept."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]


@pytest.fixture
def tiny(minfer_run: Program) -> str:
    """The spelling of a tiny model, in the working directory."""
    (minfer_run.here / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama", n_context=1024)))
    return "./tiny.gguf"


def _prefilled(err: str) -> list[int]:
    return [int(n) for n in re.findall(r"prefill (\d+) tokens", err)]


def test_the_first_turn_is_what_one_shot_says(minfer_run: Program, tiny: str) -> None:
    for flags in (("-n", "20"), ("-n", "20", "--seed", "7", "--system", "be brief"), ("-n", "9", "--greedy")):
        alone = minfer_run(tiny, "why", "is it", *flags)
        talked = minfer_run(tiny, "why", "is it", *flags, "--cnv", "-st")
        assert (talked.status, talked.out) == (0, alone.out)
        piped = minfer_run(tiny, *flags, "--cnv", "-st", stdin="why is it\nmore\n")
        assert (piped.status, piped.out) == (0, alone.out)
    assert alone.out != ""


def test_a_script_is_read_line_by_line_and_ends(minfer_run: Program, tiny: str) -> None:
    script = "one\n\n/regen\n//two\nthree \\\nfour\n/undo\n/undo\n/show\n/exit\nnever read\n"
    outcome = minfer_run(tiny, "--cnv", "-n", "5", stdin=script)
    assert outcome.status == 0
    assert "[turn 1] prefill" in outcome.err
    assert "[turn 1] regen: prefill 1 token, generated 5 tokens in" in outcome.err
    assert "[turn 3] prefill" in outcome.err
    assert "[took back: three four]" in outcome.err
    assert "[took back: /two]" in outcome.err
    assert "  1 user      one" in outcome.err
    assert "never read" not in outcome.err
    assert "[conversation] 1 turn\n" in outcome.err
    # A byte is a token; three control tokens come on top.
    assert _prefilled(outcome.err)[0] == len("user\none\nassistant\n") + 3


def test_mistakes_are_told_and_the_script_goes_on(minfer_run: Program, tiny: str) -> None:
    script = (
        "/regne\n/regen\n/undo\n/edit 3\n/edit\n/set temp hot\n/set tepm 1\n/load nowhere\n/exit now\nhi\n"
    )
    outcome = minfer_run(tiny, "--cnv", "-n", "3", stdin=script)
    assert outcome.status == 2
    for line in (
        "Error: there is no command /regne",
        "Hint: did you mean /regen? /help lists the commands; // stands for a literal slash",
        "Error: there is no answer to make again",
        "Error: there is nothing to undo",
        "Error: there is no question 3",
        "Error: which message is to be changed?",
        "Error: temp must be a number, got 'hot'",
        "Error: there is no generation parameter 'tepm'",
        "Error: 'nowhere' cannot be read: No such file or directory",
        "Error: /exit takes nothing, got 'now'",
        "[turn 1] prefill",
    ):
        assert line in outcome.err


def test_lists_are_emptied_and_biases_are_checked_when_they_are_set(minfer_run: Program, tiny: str) -> None:
    script = (
        "/set logit_bias 99999+1\n/set logit_bias 5+1 6-2\n/set stop x\n/set logit_bias -\n/set stop -\nhi\n"
    )
    outcome = minfer_run(tiny, "--cnv", "-n", "3", stdin=script)
    told = [
        line for line in outcome.err.splitlines() if line.startswith(("[logit", "[stop", "Error", "[turn"))
    ]
    assert told[:-1] == [
        "Error: logit_bias names token 99999, and the model's tokens are 0 to 258",
        "[logit_bias = ((5, 1.0), (6, -2.0))]",
        "[stop_strings = ('x',)]",
        "[logit_bias = ()]",
        "[stop_strings = ()]",
    ]
    assert told[-1].startswith("[turn 1]")


def test_flags_that_would_do_nothing_are_refused(minfer_run: Program) -> None:
    for flags, text in (
        (("--cnv", "--no-template"), "--cnv and --no-template exclude each other"),
        (("-st",), "-st needs --cnv: it is about conversations"),
        (("--session", "x.json"), "--session needs --cnv: it is about conversations"),
        (("--cnv", "--explain"), "--cnv and --explain exclude each other"),
    ):
        outcome = minfer_run("there is no such model", *flags)
        assert (outcome.status, outcome.out) == (2, "")
        assert outcome.err.endswith(f"Error: {text}\n")


def test_a_model_without_a_template(minfer_run: Program) -> None:
    (minfer_run.here / "bare.gguf").write_bytes(tiny_model(TinyModel("llama", has_template=False)))
    outcome = minfer_run("./bare.gguf", "hi", "--cnv")
    assert (outcome.status, outcome.out) == (5, "")
    assert "--chat-template NAME|FILE" in outcome.err
    named = minfer_run("./bare.gguf", "hi", "--cnv", "-st", "-n", "3", "--chat-template", "chatml")
    assert named.status == 0


def test_branches_edits_settings_and_files(minfer_run: Program, tiny: str) -> None:
    (minfer_run.here / "notes.txt").write_text("some notes\n")
    script = (
        "one\n/branch other\n/edit 1 uno\n/branch main\n/branch\n/system be brief\n/system\n"
        "/set temp 0\n/set\n/read notes.txt\nwhat?\n/save kept.json\n/clear\n/load kept.json\n/why\n/help\n"
    )
    outcome = minfer_run(tiny, "--cnv", "-n", "4", stdin=script)
    assert outcome.status == 0, outcome.err
    for text in (
        "[new branch other: 2 messages]",
        "[branch main: 2 messages]",
        "* main: 2 messages\n  other: 2 messages",
        "[system] be brief",
        "[temp = 0.0]",
        "[notes.txt: 10 tokens, in front of your next message]",
        "[history cleared]",
        "[session] loaded 4 messages",
        "  drawn ",
        "/branch [NAME]",
    ):
        assert text in outcome.err
    kept = json.loads((minfer_run.here / "kept.json").read_text())
    assert [one["role"] for one in kept["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert kept["messages"][3]["content"] == "some notes\n\nwhat?"
    assert kept["branches"]["other"]["messages"][0]["content"] == "uno"
    assert kept["settings"]["temp"] == 0


def test_a_session_goes_on_where_it_was(minfer_run: Program, tiny: str) -> None:
    flags = ("--cnv", "-n", "6", "--session", "s.json")
    whole = minfer_run(tiny, "--cnv", "-n", "6", stdin="one\ntwo\n")
    first = minfer_run(tiny, *flags, stdin="one\n")
    second = minfer_run(tiny, *flags, stdin="two\n")
    assert first.out + second.out == whole.out
    assert "[session] loaded 2 messages" in second.err
    assert "[session] KV cache of " in second.err
    assert _prefilled(second.err) == _prefilled(whole.err)[1:]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("checksum", "its checksum is wrong"),
        ("version", "it is of another version"),
        ("type", "cache type is f32 and was f16"),
        ("model", "model is"),
    ],
)
def test_a_saved_cache_that_does_not_fit_is_ignored(
    minfer_run: Program, tiny: str, damage: str, reason: str
) -> None:
    flags = ["--cnv", "-n", "6", "--session", "s.json"]
    minfer_run(tiny, *flags, stdin="one\n")
    companion = minfer_run.here / "s.json.kv"
    data = bytearray(companion.read_bytes())
    if damage == "checksum":
        data[len(data) // 2] ^= 1
    elif damage == "version":
        data[10] += 1
    elif damage == "type":
        flags += ["--kv-type", "f32"]
    else:
        (minfer_run.here / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama", n_context=1024, seed=5)))
    companion.write_bytes(data)
    outcome = minfer_run(tiny, *flags, stdin="two\n")
    assert outcome.status == 0
    assert f"[session] KV cache ignored: {reason}" in outcome.err
    assert "[turn 2] prefill" in outcome.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("{}", "it is JSON of something else"),
        ("[]]", "Extra data"),
        ('{"format": "minfer-conversation", "version": 9}', "its version 9 is not known here"),
        ('{"format": "minfer-conversation", "version": 1}', "messages is missing"),
        ('[{"role": "tool"}]', "a message has the role 'tool'"),
        ("[3]", ""),
    ],
)
def test_a_broken_session_file_is_an_error(minfer_run: Program, tiny: str, text: str, reason: str) -> None:
    (minfer_run.here / "s.json").write_text(text)
    outcome = minfer_run(tiny, "--cnv", "--session", "s.json", stdin="hi\n")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith(f"Error: 's.json' is no conversation: {reason}")
    assert (minfer_run.here / "s.json").read_text() == text


def test_a_list_of_messages_is_a_session(minfer_run: Program, tiny: str) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    (minfer_run.here / "s.json").write_text(json.dumps(messages))
    outcome = minfer_run(tiny, "--cnv", "--session", "s.json", "-n", "3", stdin="more\n")
    assert outcome.status == 0
    assert "[turn 2] prefill" in outcome.err


def test_killing_loses_the_running_answer_alone(minfer_run: Program, tiny: str) -> None:
    process = subprocess.Popen(
        minfer_run.command(tiny, "--cnv", "--session", "s.json", "-n", "-1", "--n-ctx", "1024"),
        env=minfer_run.environment(),
        cwd=minfer_run.here,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"/set n_predict 4\nfirst\n/set n_predict -1\n/set logit_bias 258-inf\nsecond\n")
    process.stdin.flush()
    session = minfer_run.here / "s.json"
    while not session.exists() or b"second" not in session.read_bytes():
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    kept = json.loads(Path(session).read_text())
    assert [one["content"] for one in kept["messages"] if one["role"] == "user"] == ["first", "second"]
    assert kept["messages"][1]["role"] == "assistant"


def test_json_lines_tell_of_every_turn(minfer_run: Program, tiny: str) -> None:
    outcome = minfer_run(tiny, "--cnv", "-n", "3", "-o", "jsonl", "-q", stdin="one\ntwo\n")
    events = [json.loads(line) for line in outcome.out.splitlines()]
    assert [event["type"] for event in events].count("stopped") == 2
    assert outcome.err == ""


def test_hidden_thinking_is_hidden_in_both(minfer_run: Program, tiny: str) -> None:
    (minfer_run.here / "thinks.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    for flags in ((), ("--cnv", "-st")):
        words = (tiny, "hi", "-n", "9", "--chat-template", "thinks.jinja", *flags)
        assert minfer_run(*words, "--think", "hide").out == ""
        assert minfer_run(*words).out != ""


def test_guessing_ahead_changes_no_text(minfer_run: Program, tiny: str) -> None:
    script = "one two one two one two\n/regen\nagain\n"
    plain = minfer_run(tiny, "--cnv", "-n", "30", stdin=script)
    guessed = minfer_run(tiny, "--cnv", "-n", "30", "--spec", "ngram", stdin=script)
    assert guessed.out == plain.out
    assert guessed.err.count("drafted tokens were right") == 3


def test_a_session_needs_its_directory(minfer_run: Program) -> None:
    outcome = minfer_run("no model", "--cnv", "--session", "not/there.json", "hi")
    assert (outcome.status, outcome.out) == (2, "")
    assert "there is no directory 'not' for the session" in outcome.err
