"""`--prompts FILE --out FILE`: many prompts, in order, and going on where a run was cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]

PROMPTS = [f"prompt number {n} " * (n % 4 + 1) for n in range(11)]
FLAGS = ("-q", "tiny", "-n", "12", "--temp", "1.5", "--no-template")


@pytest.fixture
def tiny(minfer_run: Program) -> Program:
    """A world with `tiny.gguf` in the cache and eleven prompts."""
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama")))
    _write(
        minfer_run, [{"prompt": prompt, "n_predict": 30 if n == 2 else 6} for n, prompt in enumerate(PROMPTS)]
    )
    return minfer_run


def _write(program: Program, rows: list[dict[str, Any]]) -> None:
    (program.here / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _answers(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (program.here / "out.jsonl").read_text().splitlines()]


FILES = ("--prompts", "in.jsonl", "--out", "out.jsonl")


def test_answers_come_in_order_and_are_those_of_single_runs(tiny: Program) -> None:
    outcome = tiny(*FLAGS, *FILES)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    answers = _answers(tiny)
    assert [row["index"] for row in answers] == list(range(11))
    for index, n in ((0, "6"), (2, "30"), (10, "6")):
        alone = tiny(*FLAGS, "-n", n, PROMPTS[index].rstrip(" ") + " ").out
        assert answers[index]["text"].removesuffix("\n") == alone.removesuffix("\n")
    tiny(*FLAGS, "--prompts", "in.jsonl", "--out", "drafted.jsonl", "--spec", "ngram")
    assert (tiny.here / "drafted.jsonl").read_text() == (tiny.here / "out.jsonl").read_text()


def test_a_run_that_was_cut_off_goes_on(tiny: Program) -> None:
    tiny(*FLAGS, *FILES)
    out = tiny.here / "out.jsonl"
    whole = out.read_bytes()
    lines = whole.splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    again = tiny("tiny", *FLAGS[2:], *FILES)
    assert "Prompts: 11, 4 of them answered already" in again.err
    assert out.read_bytes() == whole
    assert "11 of them answered already" in tiny("tiny", *FLAGS[2:], *FILES).err


def test_an_output_of_something_else_is_left_alone(tiny: Program) -> None:
    tiny(*FLAGS, *FILES)
    before = (tiny.here / "out.jsonl").read_bytes()
    outcome = tiny(*FLAGS, "--seed", "5", *FILES)
    assert outcome.status == 2
    assert outcome.err.startswith("Error: line 1 of out.jsonl is no answer to prompt 1 with these settings")
    assert (tiny.here / "out.jsonl").read_bytes() == before


def test_a_row_that_fails_concerns_no_other(tiny: Program) -> None:
    _write(tiny, [{"prompt": "x" * 300, "id": "long"}, {"messages": [{"role": "user", "content": "hi"}]}])
    assert tiny("-q", "tiny", "-n", "4", *FILES).status == 0
    first, second = _answers(tiny)
    assert (first["id"], first["reason"], first["error"]) == ("long", "failed", "prompt-too-long")
    assert second["n_prompt"] == len("user\nhi\nassistant\n") + 3  # and the three control tokens around


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "in.jsonl, prompt 1 is no JSON object"),
        ("{", "in.jsonl, prompt 1 is no JSON object"),
        ('{"prompt": "a", "top": 1}', "has an unknown field 'top'"),
        ('{"prompt": 5}', "needs either a prompt or messages"),
        ('{"prompt": "a", "messages": [{}]}', "needs either a prompt or messages"),
        ('{"prompt": "a", "seed": -7}', "in.jsonl, prompt 1: "),
        ("", "in.jsonl has 0 prompts"),
    ],
)
def test_broken_rows_are_named(tiny: Program, line: str, message: str) -> None:
    (tiny.here / "in.jsonl").write_text(line + "\n")
    outcome = tiny(*FLAGS, *FILES)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--prompts", "in.jsonl"), "belong together"),
        ((*FILES, "words"), "takes the place of a prompt"),
        ((*FILES, "--spec", "tiny"), "use --spec ngram"),
        ((*FILES, "--cnv"), "--prompts and --cnv exclude each other"),
    ],
)
def test_flags_that_do_not_go_together(tiny: Program, flags: tuple[str, ...], message: str) -> None:
    outcome = tiny("tiny", *flags)
    assert outcome.status == 2
    assert message in outcome.err
