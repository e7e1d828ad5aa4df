"""The OpenAPI document, made of the request bodies and one table of operations."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from minfer.serve.wire.body import NEUTRAL, sampling_schema
from minfer.serve.wire.requests import (
    ApplyTemplateBody,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    EmbeddingsBody,
    TokenizeBody,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. body: the request's; kind: the answer's media type."""

    method: str
    path: str
    summary: str
    body: type[BaseModel] | None = None
    kind: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    is_public: bool = False


_POST: Final = (200, 400, 401, 403, 404, 408, 413, 415, 429, 503)
_GET: Final = (200, 401, 403, 503)

OPERATIONS: Final = (
    Operation("post", "/v1/chat/completions", "Answer a conversation", ChatBody, statuses=_POST),
    Operation("post", "/v1/completions", "Continue text or token ids", CompletionBody, statuses=_POST),
    Operation("post", "/v1/embeddings", "One vector for each text", EmbeddingsBody, statuses=_POST),
    Operation("get", "/v1/models", "The model that is served", statuses=_GET),
    Operation("get", "/v1/models/{name}", "The model of that name", statuses=(*_GET, 404)),
    Operation(
        "get", "/health", "Whether requests are answered now", statuses=(200, 403, 503), is_public=True
    ),
    Operation("get", "/metrics", "Counters for Prometheus", kind="text/plain", statuses=_GET),
    Operation("get", "/props", "Defaults, sizes and the chat template", statuses=_GET),
    Operation("get", "/slots", "What is being generated now", statuses=_GET),
    Operation("post", "/slots", "Save or restore the prefix cache", statuses=(200, 400, 401, 403, 409, 503)),
    Operation("post", "/tokenize", "Token ids of a text", TokenizeBody, statuses=_POST),
    Operation("post", "/detokenize", "Text of token ids", DetokenizeBody, statuses=_POST),
    Operation(
        "post", "/apply-template", "The prompt a conversation becomes", ApplyTemplateBody, statuses=_POST
    ),
)
"""Every operation that clients use; the application's routes are compared with it in a test."""


def openapi_document() -> Json:
    """OpenAPI 3.1."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    schemes = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "minfer-serve",
            "version": version("minfer-serve"),
            "description": "OpenAI's API for a model on this machine. A key is needed if the server has one.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": schemes},
        "security": [{"key": []}, {}],
    }


def _operation(operation: Operation) -> Json:
    answers: dict[str, Json] = {}
    for status in operation.statuses:
        if status == 200:
            content: Json = {operation.kind: {"schema": {}}}
            if operation.path in ("/v1/chat/completions", "/v1/completions"):
                content["text/event-stream"] = {"schema": {"type": "string"}}
            answers["200"] = {"description": "the answer", "content": content}
        else:
            reference = {"$ref": "#/components/schemas/Error"}
            answers[str(status)] = {
                "description": "an error",
                "content": {"application/json": {"schema": reference}},
            }
    described: Json = {"summary": operation.summary, "operationId": _name(operation), "responses": answers}
    if operation.body is not None:
        reference = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    if operation.path == "/slots" and operation.method == "post":
        described["parameters"] = [
            {
                "name": "action", "in": "query", "required": True,
                "schema": {"type": "string", "enum": ["save", "restore"]},
            }
        ]  # fmt: skip
    if "{name}" in operation.path:
        described["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if operation.is_public:
        described["security"] = []
    return described


def _name(operation: Operation) -> str:
    return f"{operation.method}_{operation.path.strip('/').replace('/', '_').replace('-', '_').strip('{}')}"


def _schemas() -> dict[str, Json]:
    bodies = [operation.body for operation in OPERATIONS if operation.body is not None]
    _, document = models_json_schema(
        [(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Json] = document["$defs"]
    for body in (ChatBody, CompletionBody):
        properties: dict[str, Json] = schemas[body.__name__]["properties"]
        schemas[body.__name__]["properties"] = {
            **sampling_schema(),
            **{name: {"description": "not supported: only values that ask for nothing"} for name in NEUTRAL},
            **properties,
        }
    schemas["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    }
    return schemas
