"""Bodies made from the server's own OpenAPI document, right and wrong: never a failure of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minfer.serve.wire.openapi import OPERATIONS, Operation, openapi_document
from serving import serving, write_tiny

_DOCUMENT = openapi_document()
_POSTS = [operation for operation in OPERATIONS if operation.body is not None]
_EXAMPLES = 1000 if os.environ.get("MINFER_PROVE") else 40

_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text("abc_", max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "messages": st.lists(
        st.fixed_dictionaries({
            "role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
            "content": st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.none(),
        }), min_size=1, max_size=4,
    ),
    "prompt": st.text("abc é\n", max_size=30) | st.lists(st.integers(0, 258), max_size=20),
    "input": st.text("abc é\n", max_size=30) | st.lists(st.text("ab", max_size=5), max_size=3),
    "content": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "tokens": st.lists(st.integers(0, 400), max_size=20),
    "n": st.integers(1, 3),
    "stream": st.booleans(),
    "logprobs": st.booleans() | st.integers(0, 5),
    "stop": st.text("ab", max_size=3) | st.lists(st.text("ab", max_size=3), max_size=3),
    "temperature": st.floats(-1, 3),
    "logit_bias": st.dictionaries(st.integers(0, 300).map(str), st.floats(-100, 100), max_size=3),
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    model = write_tiny(tmp_path_factory.mktemp("model"))
    with serving(model, "--timeout", "5") as server, server.client() as one:
        yield one


@pytest.mark.parametrize("operation", _POSTS, ids=lambda operation: operation.path)
@settings(max_examples=_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_body_is_answered_with_a_failure(
    client: httpx.Client, operation: Operation, data: st.DataObject
) -> None:
    assert operation.body is not None
    schema = _DOCUMENT["components"]["schemas"][operation.body.__name__]
    names = data.draw(st.sets(st.sampled_from(sorted(schema["properties"])), max_size=5))
    body: dict[str, Any] = {}
    for name in [*schema.get("required", []), *sorted(names)]:
        right = _RIGHT.get(name, _ODD)
        body[name] = data.draw(right if data.draw(st.integers(0, 9)) else _ODD, label=name)
    if not isinstance(body.get("max_tokens"), int) and operation.path.endswith("completions"):
        body["max_tokens"] = data.draw(st.integers(0, 4))
    answer = client.post(operation.path, json=body)
    assert answer.status_code < 500, (body, answer.text)
    if answer.status_code == 200 and not answer.headers["content-type"].startswith("text/event-stream"):
        assert isinstance(answer.json(), dict)
    elif answer.status_code != 200:
        assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}
