"""`--spec` and `specverify` as users meet them, on a tiny model."""

from __future__ import annotations

import json

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]

REPEATING = "one two three four one two three four one two three"


@pytest.fixture
def tiny(minfer_run: Program) -> Program:
    """A world with `tiny.gguf` in the cache."""
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama", has_template=False)))
    return minfer_run


@pytest.mark.parametrize("sampling", [("--greedy",), ("--temp", "0.2", "--seed", "3")])
def test_the_text_is_the_same_and_statistics_go_to_stderr(tiny: Program, sampling: tuple[str, ...]) -> None:
    flags = ("tiny", *sampling, "--repeat-penalty", "1", "-n", "60", REPEATING)
    plain = tiny(*flags)
    drafted = tiny(*flags, "--spec", "ngram", "--spec-n", "4")
    assert drafted.out == plain.out
    assert "Speculation:" not in plain.err
    assert drafted.err.splitlines()[-1].startswith("Speculation: ")


def test_a_draft_model_needs_the_same_vocabulary(tiny: Program) -> None:
    plain = tiny("-q", "tiny", "--greedy", "-n", "20", REPEATING)
    assert tiny("-q", "tiny", "--greedy", "-n", "20", "--spec", "tiny", REPEATING) == plain
    other = tiny_model(TinyModel("llama", has_template=False)).replace(b"<|im_end|>", b"<|im_fin|>")
    (tiny.here / "other.gguf").write_bytes(other)
    outcome = tiny("-q", "tiny", "--spec", "./other.gguf", "hi")
    assert (outcome.status, outcome.out) == (4, "")
    assert outcome.err.startswith("Error: token 258 is '<|im_fin|>' in the draft model and '<|im_end|>'")


def test_a_flag_that_would_do_nothing_is_refused(tiny: Program) -> None:
    outcome = tiny("tiny", "--spec-n", "3", "hi")
    assert outcome.status == 2
    assert outcome.err.startswith("Error: --spec-n 3 does nothing without --spec")


def test_specverify_is_json_and_progress_is_on_stderr(tiny: Program) -> None:
    outcome = tiny("specverify", "tiny", "-p", "40", "-r", "5", "--nt", "2,4")
    assert outcome.status == 0
    facts = json.loads(outcome.out)
    assert [phase["nt"] for phase in facts["pass1"]] == [2, 4]
    assert [phase["nt"] for phase in facts["pass2_drift_check"]] == [4, 2]
    assert facts["gate_pass"] is None
    assert len(facts["pass1"][0]["samples_ms"]) == 5
    assert "pass 2 of 2: 2 tokens at depth 40" in outcome.err
    table = tiny("specverify", "-q", "tiny", "-p", "40", "-r", "5", "-o", "md")
    assert table.err == ""
    assert "| tokens | median ms |" in table.out


def test_specverify_beyond_the_context(tiny: Program) -> None:
    outcome = tiny("specverify", "tiny", "-p", "1000")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.endswith(
        "Error: 1000 tokens are to be measured and the model's context has 256\nHint: lower -p\n"
    )
