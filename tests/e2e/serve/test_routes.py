"""Every other route, on a tiny model: shapes, limits, refusals, documents."""

from __future__ import annotations

import base64
import json
import math
import re
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import Server, serving, write_tiny

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
OTHERS: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "a"}, "/tokenize": {"content": "a"}, "/detokenize": {"tokens": [65]},
    "/apply-template": {"messages": CHAT["messages"]},
}  # fmt: skip
"""Routes whose bodies have no sampling parameters."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = write_tiny(tmp_path_factory.mktemp("model"))
    with serving(
        model, "--alias", "tiny", "--n-ctx", "1024", "--cors-origin", "https://app.example"
    ) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as one:
        yield one


def _error(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert isinstance(error["message"], str)
    assert answer.headers["x-request-id"]
    return error


MALFORMED: list[Any] = [
    b"", b"{", b"[]", b"null", b'"x"', b"5", b"\xff",
    b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    b'{"messages": ' + b"[" * 100_000,
    {}, {"messages": None}, {"messages": []}, {"messages": {}}, {"messages": ["hi"]}, {"messages": [{}]},
    {"messages": [{"role": "user"}, 5]}, {**CHAT, "messages": [{"role": "user", "content": {"a": 1}}]},
    {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
    {**CHAT, "n": 10**9}, {**CHAT, "n": -1}, {**CHAT, "n": "2"}, {**CHAT, "stream": 1}, {**CHAT, "stop": {}},
    {**CHAT, "temperature": "hot"}, {**CHAT, "temperature": 1e300}, {**CHAT, "max_tokens": 2**70},
    {**CHAT, "seed": 1.5}, {**CHAT, "logit_bias": {"999999": 1}}, {**CHAT, "logit_bias": [[1]]},
    {**CHAT, "logit_bias": {str(n): 1 for n in range(5000)}}, {**CHAT, "stop": ["x"] * 5000},
    {**CHAT, "top_logprobs": 5}, {**CHAT, "logprobs": True, "top_logprobs": 100}, {**CHAT, "model": 5},
    {**CHAT, "stream_options": []}, {**CHAT, "tools": [{}]}, {**CHAT, "response_format": {"type": "what"}},
    {**CHAT, "chat_template_kwargs": {"messages": []}}, {**CHAT, "timeout": 0}, {**CHAT, "top_k": []},
    {**CHAT, "messages": [{"role": "user", "content": "x" * 2000}]},
]  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("stream", [False, True])
def test_malformed_bodies_are_the_client_s_fault(client: httpx.Client, body: Any, stream: bool) -> None:  # noqa: ANN401
    if stream and isinstance(body, dict) and "stream" not in body:
        body = {**body, "stream": True}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(
        "/v1/chat/completions", content=content, headers={"content-type": "application/json"}
    )
    assert 400 <= answer.status_code < 500, answer.text
    assert _error(answer)["type"] == "invalid_request_error"


def test_the_server_still_answers(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] <= 2
    assert re.search(r"queue;dur=[\d.]+", answer.headers["server-timing"])


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_only_json_triggers_work(client: httpx.Client, kind: str) -> None:
    answer = client.post("/v1/chat/completions", content=json.dumps(CHAT), headers={"content-type": kind})
    assert answer.status_code == 415
    assert _error(answer)["code"] == "unsupported_media_type"


def test_unknown_paths_and_methods(client: httpx.Client) -> None:
    assert _error(client.get("/v2/nothing"))["code"] == "unknown_url"
    wrong = client.get("/v1/chat/completions")
    assert wrong.status_code == 405
    assert _error(wrong)["code"] == "method_not_allowed"
    assert client.delete("/v1/models").status_code == 405


def test_limits_of_size(client: httpx.Client) -> None:
    large = client.post("/v1/completions", json={"prompt": "x" * (17 << 20)})
    assert large.status_code == 413
    assert _error(large)["code"] == "body_too_large"

    def parts() -> Iterator[bytes]:
        for _ in range(18):
            yield b"x" * (1 << 20)

    try:  # the length was not announced: the connection may be cut while sending
        unannounced = client.post(
            "/v1/completions", content=parts(), headers={"content-type": "application/json"}
        )
        assert unannounced.status_code == 413
    except (httpx.WriteError, httpx.ReadError):
        pass
    assert client.get("/health", headers={"x-large": "x" * (1 << 20)}).status_code in (400, 431)


def test_a_text_that_cannot_fit_is_not_tokenized_first(client: httpx.Client) -> None:
    text = "x" * (12 << 20)  # minutes of tokenizing
    bodies = {
        "/v1/completions": {"prompt": text},
        "/v1/embeddings": {"input": ["a", text]},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
    }
    for path, body in bodies.items():
        began = time.monotonic()
        answer = client.post(path, json=body)
        assert answer.status_code == 400
        error = _error(answer)
        assert error["code"] == "context_length_exceeded"
        assert 1024 < error["n_prompt_tokens"] < len(text)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]", 200),
        ("evil.com", 403),
        ("localhost.evil.com", 403),
    ],
)
def test_hosts(client: httpx.Client, host: str, status: int) -> None:
    assert client.get("/v1/models", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True), ("http://localhost:3000", True), ("https://127.0.0.1:8443", True),
        ("http://[::1]:5173", True), ("https://app.example", True), ("https://evil.com", False),
        ("http://localhost.evil.com", False), ("null", False), ("https://app.example.evil.com", False),
    ],
)  # fmt: skip
def test_origins(client: httpx.Client, origin: str, allowed: bool) -> None:
    preflight = client.options(
        "/v1/chat/completions",
        headers={"origin": origin, "access-control-request-method": "POST",
                 "access-control-request-headers": "content-type"},
    )  # fmt: skip
    assert preflight.headers.get("access-control-allow-origin") == (origin if allowed else None)
    assert "access-control-allow-credentials" not in preflight.headers
    asked = client.post("/v1/chat/completions", json=CHAT, headers={"origin": origin})
    assert asked.status_code == (200 if allowed else 403)
    assert asked.headers.get("access-control-allow-origin") == (origin if allowed else None)


def test_pages_may_send_the_headers_of_openai_s_client(client: httpx.Client) -> None:
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    wanted = "authorization,content-type,x-stainless-lang,x-stainless-retry-count"
    answer = client.options("/v1/models", headers={**asked, "access-control-request-headers": wanted})
    assert answer.headers["access-control-allow-headers"] == wanted
    odd = client.options("/v1/models", headers={**asked, "access-control-request-headers": "a b: c"})
    assert odd.headers["access-control-allow-headers"] == ""
    evil = {**asked, "origin": "https://evil.com", "access-control-request-headers": wanted}
    assert "access-control-allow-headers" not in client.options("/v1/models", headers=evil).headers


def test_request_ids(client: httpx.Client) -> None:
    assert client.get("/health", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    odd = client.get("/health", headers={"x-request-id": "a b\tc"}).headers["x-request-id"]
    assert re.fullmatch(r"req_[0-9a-f]{32}", odd)


def test_unknown_fields_are_told(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json={**CHAT, "temprature": 1}).json()
    assert answer["warnings"] == ["unknown field 'temprature' was ignored"]
    assert "warnings" not in client.post("/v1/chat/completions", json={**CHAT, "user": "me"}).json()
    for path, body in OTHERS.items():
        assert "warnings" not in client.post(path, json=body).json()
        told = client.post(path, json={**body, "temperature": 1}).json()
        assert told["warnings"] == ["unknown field 'temperature' was ignored"], path


def test_tokens_there_and_back(client: httpx.Client) -> None:
    ids = client.post("/tokenize", json={"content": "héllo <|im_end|>"}).json()["tokens"]
    assert ids == [*"héllo ".encode(), 258]
    plain = client.post("/tokenize", json={"content": "<|im_end|>", "parse_special": False}).json()["tokens"]
    assert plain == list(b"<|im_end|>")
    pieces = client.post("/tokenize", json={"content": "é", "with_pieces": True}).json()["tokens"]
    assert pieces == [{"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}]
    assert client.post("/detokenize", json={"tokens": ids}).json()["content"] == "héllo <|im_end|>"
    assert client.post("/detokenize", json={"tokens": [99999]}).status_code == 400


def test_a_template_is_shown(client: httpx.Client) -> None:
    shown = client.post("/apply-template", json={"messages": CHAT["messages"]}).json()
    assert shown["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_a_user_cannot_write_control_tokens(client: httpx.Client) -> None:
    def n_tokens(content: str) -> int:
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        n: int = client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens"]
        return n

    assert n_tokens("<|im_end|>") - n_tokens("") == len("<|im_end|>")  # ten bytes, not one token


def test_embeddings(client: httpx.Client) -> None:
    texts = ["one text", "another", "one text"]
    answer = client.post("/v1/embeddings", json={"input": texts}).json()
    vectors = [row["embedding"] for row in answer["data"]]
    assert [row["index"] for row in answer["data"]] == [0, 1, 2]
    assert vectors[0] == vectors[2] != vectors[1]
    assert len(vectors[0]) == 64
    assert math.fsum(value**2 for value in vectors[0]) == pytest.approx(1)
    assert answer["usage"] == {"prompt_tokens": 23, "total_tokens": 23}
    assert answer["pooling"] == "last"
    coded = client.post("/v1/embeddings", json={"input": texts[1], "encoding_format": "base64"}).json()
    decoded = array("f", base64.b64decode(coded["data"][0]["embedding"]))
    assert list(decoded) == pytest.approx(vectors[1], abs=1e-6)
    ids = client.post("/v1/embeddings", json={"input": list(b"another")}).json()
    assert ids["data"][0]["embedding"] == pytest.approx(vectors[1], abs=1e-6)
    assert client.post("/v1/embeddings", json={"input": []}).status_code == 400
    assert client.post("/v1/embeddings", json={"input": ""}).status_code == 400
    assert client.post("/v1/embeddings", json={"input": "a", "dimensions": 8}).status_code == 400
    assert client.post("/v1/embeddings", json={"input": "a" * 2000}).status_code == 400


def test_facts(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert model["id"] == "tiny"
    assert model["meta"]["n_ctx"] == 1024
    assert client.get("/v1/models/tiny").json()["id"] == "tiny"
    assert client.get("/v1/models/other").status_code == 404
    props = client.get("/props").json()
    assert props["total_slots"] == 4
    assert "im_start" in props["chat_template"]
    assert len(client.get("/slots").json()) == 4
    assert client.get("/health").json() == {"status": "ok"}


def test_metrics_count(client: httpx.Client) -> None:
    def value(name: str) -> float:
        text = client.get("/metrics").text
        found = re.search(rf"^{name} ([\d.e+]+)$", text, re.MULTILINE)
        assert found, name
        return float(found[1])

    before = value("minfer_generated_tokens_total"), value("minfer_time_to_first_token_seconds_count")
    answer = client.post("/v1/completions", json={"prompt": "abc", "max_tokens": 3, "seed": 1}).json()
    assert value("minfer_generated_tokens_total") - before[0] == answer["usage"]["completion_tokens"]
    assert value("minfer_time_to_first_token_seconds_count") - before[1] == 1
    assert value("minfer_requests_running") == 0


def test_documents(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schema = document["components"]["schemas"]["ChatBody"]
    assert {"messages", "temperature", "max_completion_tokens", "min_p"} <= set(schema["properties"])
    page = client.get("/docs")
    assert page.status_code == 200
    assert "/v1/chat/completions" in page.text
    assert not re.search(r'(src|href)=["\']?(https?:)?//', page.text)  # nothing from elsewhere
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_strict_servers_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    with serving(write_tiny(tmp_path), "--strict") as strict, strict.client() as client:
        refused = client.post("/v1/chat/completions", json={**CHAT, "temprature": 1})
        assert refused.status_code == 400
        assert _error(refused)["param"] == "temprature"
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
        for path, body in OTHERS.items():
            assert _error(client.post(path, json={**body, "temperature": 1}))["param"] == "temperature"


def test_a_model_without_a_template_completes_text_only(tmp_path: Path) -> None:
    from minfer.engine.testing import TinyModel

    model = write_tiny(tmp_path, TinyModel("llama", has_template=False))
    with serving(model) as server, server.client() as client:
        refused = client.post("/v1/chat/completions", json=CHAT)
        assert refused.status_code == 400
        assert "template" in _error(refused)["message"]
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
