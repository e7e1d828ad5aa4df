"""The prefix cache outlives the process; files that are damaged or of another model do not get in."""

from __future__ import annotations

from pathlib import Path

import httpx

from minfer.engine.testing import TinyModel
from serving import serving, write_tiny

PROMPT = "A system prompt that every request of this application begins with, word for word. "


def _ask(client: httpx.Client) -> tuple[str, int]:
    body = {"prompt": PROMPT + "Hello", "max_tokens": 12, "seed": 4}
    answer = client.post("/v1/completions", json=body).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_saved_and_restored(tmp_path: Path) -> None:
    model, file = write_tiny(tmp_path), tmp_path / "slots"
    flags = ("--slots-file", str(file), "--api-key", "a", "--api-key", "b")
    with serving(model, *flags) as server, server.client(key="a") as client:
        text, n_cached = _ask(client)
        assert n_cached == 0
        saved = client.post("/slots?action=save").json()
        assert saved["n_tokens"] >= len(PROMPT) // 16 * 16
    with serving(model, *flags) as server, server.client(key="a") as client:
        assert client.post("/slots?action=restore").json()["n_blocks"] == saved["n_blocks"]
        with server.client(key="b") as stranger:
            assert _ask(stranger)[1] == 0  # another key finds nothing
        assert _ask(client) == (text, (len(PROMPT) + 4) // 16 * 16)
        assert client.post("/slots?action=restore").json()["n_blocks"] == 0  # known already
        assert client.post("/slots?action=burn").status_code == 400
    with (
        serving(
            write_tiny(tmp_path, TinyModel("llama", seed=1, n_context=4096), "other.gguf"), *flags
        ) as server,
        server.client(key="a") as client,
    ):
        refused = client.post("/slots?action=restore")
        assert refused.status_code == 409
        assert "another model" in refused.json()["error"]["message"]
        whole = file.read_bytes()
        for broken in (b"", b"GGUF", whole[:-1], whole[:100], whole[:200] + b"x" + whole[201:]):
            file.write_bytes(broken)
            assert client.post("/slots?action=restore").status_code == 409
        assert _ask(client)[1] == 0


def test_without_a_file(tmp_path: Path) -> None:
    with serving(write_tiny(tmp_path)) as server, server.client() as client:
        assert client.post("/slots?action=save").status_code == 400
