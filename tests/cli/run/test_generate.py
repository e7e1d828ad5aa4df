"""minfer-run as a user meets it, on a tiny model: streams, formats, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
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


def test_the_answer_alone_is_on_stdout_and_quiet_is_quiet(tiny: Program) -> None:
    spoken = tiny("tiny", "-n", "8", "hello")
    quiet = tiny("-q", "tiny", "hello", "-n", "8")
    assert (spoken.status, quiet.status) == (0, 0)
    assert spoken.out == quiet.out
    assert quiet.err == ""
    lines = spoken.err.splitlines()
    assert lines[0] == "Model ready: CACHE/tiny.gguf"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "Note", "Model", "Engine", "Prompt", "Prefill", "Generated", "Note",
    ]  # fmt: skip
    assert "no chat template" in lines[1]


def test_the_same_flags_give_the_same_bytes_and_another_seed_others(tiny: Program) -> None:
    first = tiny("-q", "tiny", "-n", "24", "--temp", "2", "tell me").out
    assert tiny("-q", "tiny", "-n", "24", "--temp", "2", "tell me").out == first
    assert tiny("-q", "tiny", "-n", "24", "--temp", "2", "--seed", "7", "tell me").out != first


def test_flags_may_stand_among_the_words_and_not_after_two_dashes(tiny: Program) -> None:
    plain = tiny("-q", "tiny", "-n", "8", "why is it").out
    assert tiny("tiny", "why", "-n", "8", "is", "-q", "it").out == plain
    dashed = tiny("tiny", "-q", "-n", "8", "--", "why", "-n").out
    assert dashed == tiny("-q", "tiny", "-n", "8", stdin="why -n").out


def test_all_of_stdin_is_the_prompt(tiny: Program) -> None:
    piped = tiny("-q", "tiny", "-n", "8", stdin="one\ntwo\n").out
    assert piped == tiny("-q", "tiny", "-n", "8", "one\ntwo").out
    assert piped == tiny("-q", "tiny", "-n", "8", "-", stdin="one\ntwo\n").out


def test_json_lines_tell_every_event(tiny: Program) -> None:
    lines = [json.loads(line) for line in tiny("-q", "tiny", "-n", "5", "-o", "jsonl", "hi").out.splitlines()]
    assert [line["type"] for line in lines] == ["prefilled", *["token"] * (len(lines) - 2), "stopped"]
    text = "".join(line.get("text", "") for line in lines)
    assert text.rstrip("\n") == tiny("-q", "tiny", "-n", "5", "hi").out.rstrip("\n")
    assert lines[-1]["n_generated"] <= 5


def test_stop_strings(tiny: Program) -> None:
    text = tiny("-q", "tiny", "-n", "30", "--temp", "2", "x").out
    stop = text[10:12]
    cut = tiny("-q", "tiny", "-n", "30", "--temp", "2", "--stop", stop, "x").out
    assert cut.removesuffix("\n") == text[: text.index(stop)].removesuffix("\n")


def test_explain_runs_nothing_and_says_where_settings_come_from(tiny: Program) -> None:
    outcome = tiny("tiny", "--explain", "--temp", "0.5", "hi", "-q")
    assert outcome.status == 0
    rows = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert rows["temp"].split()[1:] == ["0.5", "flag"]
    assert rows["top_k"].split()[1:] == ["40", "profile", "minfer"]
    assert rows["model:"].split()[1] == "CACHE/tiny.gguf"
    facts = json.loads(tiny("tiny", "--explain", "-o", "jsonl", "hi", "-q").out)
    assert facts["prompt"] == "2 tokens"


@pytest.mark.parametrize("suffix", [".dot", ".json"])
def test_the_graph_is_written(tiny: Program, suffix: str) -> None:
    outcome = tiny("-q", "tiny", "-n", "1", "--dump-graph", f"graph{suffix}", "hi")
    assert outcome.status == 0
    text = (tiny.here / f"graph{suffix}").read_text()
    assert "attn_q" in text
    if suffix == ".json":
        assert json.loads(text)["nodes"]


def test_metadata_goes_to_stderr(tiny: Program) -> None:
    outcome = tiny("tiny", "-n", "1", "--meta", "hi")
    assert "general.architecture = 'llama'" in outcome.err
    assert "general.architecture" not in outcome.out


def test_a_reader_that_goes_away_ends_it_quietly(tiny: Program) -> None:
    command = [*tiny.command("-q", "tiny", "-n", "-1", "--temp", "2", "hi")]
    process = subprocess.Popen(
        command, env=tiny.environment(), cwd=tiny.here, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0
    process.stderr.close()


def test_ctrl_c_ends_the_answer_with_130(tiny: Program, tmp_path: Path) -> None:
    big = TinyModel("llama", n_layers=8, width=256, n_context=1 << 16, has_template=False)
    (tiny.cache / "slow.gguf").write_bytes(tiny_model(big))
    endless = [word for token in (256, 257, 258) for word in ("--logit-bias", f"{token}-inf")]
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [*tiny.command("slow", "-n", "-1", "--n-ctx", "0", *endless, "hi")],
            env=tiny.environment(MINFER_KERNELS="numpy"), cwd=tiny.here, stdout=out, stderr=subprocess.PIPE,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while (tmp_path / "out").stat().st_size < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"Generated:" in err
