"""`minfer-fetch info` on models that are not here: headers by range requests, no download."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fetch import servers
from e2e.fetch.hub import Hub, Repository
from gguf_bytes import Q8_0, File, Tensor, pair, text, texts, whole_file
from gguf_bytes import STRING as STRING_TYPE
from gguf_bytes import UINT16 as UINT16_TYPE

WORDS = [f"word number {number}, and some more of it" for number in range(60_000)]  # a header of 3 MB
BIG = File(
    pairs=[
        pair("general.architecture", STRING_TYPE, text("llama")),
        pair("tokenizer.ggml.tokens", 9, texts(WORDS)),
    ],
    tensors=[Tensor("weights", (1 << 20,), Q8_0, 0)],
    data=bytes((1 << 20) // 32 * 34),
).build()


def part(number: int) -> bytes:
    """One of two files of a split set, with a tensor of its own."""
    pairs = [
        pair("split.no", UINT16_TYPE, struct.pack("<H", number)),
        pair("split.count", UINT16_TYPE, struct.pack("<H", 2)),
    ]
    return File(pairs=pairs, tensors=[Tensor(f"t{number}", (32,), Q8_0, 0)], data=bytes(34)).build()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with servers.serving({}) as server:
        files = {
            "small-Q8_0.gguf": whole_file().build(),
            "big-Q4_0.gguf": BIG,
            "two-F16-00001-of-00002.gguf": part(0),
            "two-F16-00002-of-00002.gguf": part(1),
            "page-Q2_K.gguf": b"<!DOCTYPE html><html>",
            "cut-Q6_K.gguf": whole_file().build()[:200],
        }
        yield Hub(server, {"acme/x": Repository(files)})


def info(hub: Hub, tmp_path: Path, reference: str) -> tuple[int, str, str]:
    environment = {**os.environ, "MINFER_MODEL_DIR": str(tmp_path / "models"), "HF_ENDPOINT": hub.server.url}
    environment |= {"NO_PROXY": "*", "no_proxy": "*"}
    command = [sys.executable, "-m", "minfer.fetch", "info", "--json", reference]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not list((tmp_path / "models").rglob("*.gguf"))
    return done.returncode, done.stdout, done.stderr


def test_a_small_file(hub: Hub, tmp_path: Path) -> None:
    status, out, err = info(hub, tmp_path, "hf:acme/x:Q8_0")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert (facts["version"], facts["n_tensors"], facts["metadata"]["string"]) == (3, 2, "naïve")
    assert facts["tensors"][1] == {
        "name": "b",
        "shape": [32],
        "type": "Q8_0",
        "bytes": 34,
        "part": 0,
        "offset": facts["tensors"][0]["offset"] + 32,
    }


def test_only_as_much_as_the_header_needs_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    status, out, _ = info(hub, tmp_path, "hf:acme/x:Q4_0")
    assert status == 0
    facts = json.loads(out)
    assert facts["metadata"]["tokenizer.ggml.tokens"]["n_items"] == len(WORDS)
    assert facts["bytes"] == len(BIG)
    ranges = [seen.range for seen in hub.server.seen if seen.path.startswith("/storage/")]
    assert ranges == ["bytes=0-1048575", "bytes=0-4194303"]


def test_every_part_of_a_split_set_is_looked_at(hub: Hub, tmp_path: Path) -> None:
    status, out, _ = info(hub, tmp_path, "hf:acme/x:F16")
    assert status == 0
    facts = json.loads(out)
    assert [(tensor["name"], tensor["part"]) for tensor in facts["tensors"]] == [("t0", 0), ("t1", 1)]
    assert len(facts["parts"]) == 2


@pytest.mark.parametrize("quant", ["Q2_K", "Q6_K"])
def test_what_is_no_model_is_told_without_downloading_it(hub: Hub, tmp_path: Path, quant: str) -> None:
    status, out, err = info(hub, tmp_path, f"hf:acme/x:{quant}")
    assert (status, "error" in json.loads(out), err.startswith("Error: ")) == (4, True, True)
