"""Every mistake has its text and its exit status: the contract as snapshots."""

from __future__ import annotations

import pytest

from minfer.engine.architectures import supported
from minfer.engine.testing import TinyModel, tiny_model
from program import Outcome, Program, minfer_run

__all__ = ["minfer_run"]


def _usage(text: str) -> str:
    return (
        "Usage: minfer-run [OPTIONS] MODEL [PROMPT WORDS]...\n"
        f"Try 'minfer-run --help' for help.\n\nError: {text}\n"
    )


def test_a_wrong_flag(minfer_run: Program) -> None:
    outcome = minfer_run("model", "why", "--tepm", "0")
    assert outcome == Outcome(
        2, "", _usage("No such option '--tepm'. (Did you mean one of: '--stop', '--system', '--temp'?)")
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("-m", "x.gguf", "hi"), "the model is the first word: minfer-run MODEL …"),
        (("x.gguf", "-p", "hi"), "the prompt is the words after the model: minfer-run MODEL your prompt"),
        (("x.gguf", "-ngl", "99"), "minfer runs on CPUs and has no GPU switches"),
        (("x.gguf", "-c", "4096"), "the context is set with --n-ctx N"),
    ],
)
def test_flags_of_other_tools_get_the_right_spelling(
    minfer_run: Program, words: tuple[str, ...], hint: str
) -> None:
    outcome = minfer_run(*words)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.endswith(f"Hint: {hint}\n")


def test_a_value_out_of_bounds(minfer_run: Program) -> None:
    assert minfer_run("x", "hi", "--top-p", "1.5") == Outcome(
        2,
        "",
        "Error: top_p must be at most 1, got 1.5\n"
        "Hint: keep the likeliest tokens up to this total probability; 1 = all\n",
    )


def test_a_missing_model(minfer_run: Program) -> None:
    (minfer_run.cache / "smol.gguf").write_bytes(tiny_model(TinyModel("llama")))
    assert minfer_run("qwen", "hi") == Outcome(
        3,
        "",
        "Error: there is no file 'qwen' here and no cached model of that name\n"
        "Hint: see `minfer-fetch list`, or write a path, hf:ORG/REPO:QUANT or ollama:qwen\n",
    )


def test_an_ambiguous_name(minfer_run: Program) -> None:
    for name in ("smol-a.gguf", "smol-b.gguf"):
        (minfer_run.cache / name).write_bytes(tiny_model(TinyModel("llama")))
    outcome = minfer_run("smol", "hi")
    assert outcome == Outcome(
        3,
        "",
        "Error: 'smol' can mean 2 models\n  smol-a\n  smol-b\nHint: write one of them\n",
    )


def test_a_directory(minfer_run: Program) -> None:
    (minfer_run.here / "models").mkdir()
    (minfer_run.here / "models" / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama")))
    assert minfer_run("./models", "why", "so") == Outcome(
        4,
        "",
        "Error: models is a directory\n  minfer-run models/tiny.gguf why so\nHint: name one of these files\n",
    )


def test_a_truncated_file(minfer_run: Program) -> None:
    whole = tiny_model(TinyModel("llama"))
    (minfer_run.here / "cut.gguf").write_bytes(whole[: len(whole) - 1000])
    outcome = minfer_run("./cut.gguf", "hi")
    assert (outcome.status, outcome.out) == (4, "")
    assert outcome.err == (
        f"Error: cut.gguf is cut off: it has {len(whole) - 1000} bytes and its tensors need {len(whole)}\n"
        "Hint: download the file again; the copy here is not the one that was published\n"
    )


def test_a_git_lfs_pointer(minfer_run: Program) -> None:
    (minfer_run.here / "p.gguf").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 98362432\n"
    )
    assert minfer_run("./p.gguf", "hi") == Outcome(
        4,
        "",
        "Error: p.gguf is a Git LFS pointer, not the model itself\n"
        "Hint: run `git lfs pull` in its repository, or download the file again\n",
    )


def test_an_unsupported_architecture(minfer_run: Program) -> None:
    data = tiny_model(TinyModel("llama")).replace(b"llama", b"lamma")
    (minfer_run.here / "x.gguf").write_bytes(data)
    known = ", ".join(supported())
    assert minfer_run("./x.gguf", "hi") == Outcome(
        4,
        "",
        "Error: architecture 'lamma' is not supported\n"
        f"Hint: choose a model of one of these architectures: {known}\n",
    )


def test_a_prompt_longer_than_the_context(minfer_run: Program) -> None:
    (minfer_run.here / "x.gguf").write_bytes(tiny_model(TinyModel("llama")))
    assert minfer_run("-q", "./x.gguf", "--no-template", stdin="words " * 2000) == Outcome(
        6,
        "",
        "Error: the prompt has 12000 tokens and the context 256: there is no room for an answer\n"
        "Hint: shorten the prompt, or raise --n-ctx if the model allows more\n",
    )


@pytest.mark.parametrize("mode", [(), ("--cnv",)])
def test_a_bias_for_a_token_that_is_not_there(minfer_run: Program, mode: tuple[str, ...]) -> None:
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(TinyModel("llama")))
    outcome = minfer_run("tiny", "hi", "--logit-bias", "99999+1", *mode)
    assert outcome == Outcome(
        2,
        "",
        "Model ready: CACHE/tiny.gguf\n"
        "Error: logit_bias names token 99999, and the model's tokens are 0 to 258\n"
        "Hint: `minfer-run tokenize MODEL TEXT` shows the tokens of a text with their ids\n",
    )


def test_an_empty_prompt(minfer_run: Program) -> None:
    assert minfer_run("x", stdin="\n") == Outcome(
        2,
        "",
        "Error: stdin is empty: there is nothing to answer\n"
        "Hint: write the prompt after the model, or pipe it in\n",
    )


def test_a_template_that_refuses(minfer_run: Program) -> None:
    (minfer_run.here / "x.gguf").write_bytes(tiny_model(TinyModel("llama")))
    assert minfer_run("./x.gguf", "--chat-template", "gemma", "--system", "be brief", "hi") == Outcome(
        5,
        "",
        'Error: the chat template refuses the messages: "System role not supported"\n'
        "Hint: this template takes no system message: put its text into the first user message\n",
    )


def test_words_that_other_tools_have_commands_for(minfer_run: Program) -> None:
    assert minfer_run("run", "llama3.2") == Outcome(
        3,
        "",
        "Error: there is no file 'run' here, and the model cache 'CACHE' is empty\n"
        "Hint: leave `run` out: minfer-run MODEL your prompt\n",
    )


def test_a_command_that_is_nearly_right(minfer_run: Program) -> None:
    outcome = minfer_run("tokenise", "some", "text")
    assert outcome.status == 3
    assert outcome.err.endswith("Hint: did you mean the command: minfer-run tokenize MODEL\n")
