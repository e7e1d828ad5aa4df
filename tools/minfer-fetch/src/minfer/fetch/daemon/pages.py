"""Long answers in pages: a message may have 4 MiB."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from urllib.parse import quote, unquote

from minfer.core.errors import UsageError
from minfer.fetch.description import Description, json_value
from minfer.store.daemon_facts import ListedModel
from minfer.store.messages import model_message, text
from minfer.store.v1 import store_pb2 as pb

_N_MODELS = 500
_N_TENSORS = 1000
_MAX_ITEMS = 64
_MAX_VALUE = 32 << 10  # characters of one metadata value
_MAX_PAGE_BYTES = 2 << 20


class BadPageTokenError(UsageError):
    """A page token that this server did not give."""

    code = "bad-page-token"


def page_of_models(models: Sequence[ListedModel], size: int, token: str) -> pb.ListResponse:
    """The models whose paths come after the one in `token`: a page stays right when others come and go."""
    answer = pb.ListResponse()
    start = (
        bisect_right(models, unquote(token, errors="surrogateescape"), key=lambda m: m.path) if token else 0
    )
    n_bytes = 0
    for model in models[start : start + (min(size, _N_MODELS) or _N_MODELS)]:
        message = model_message(model)
        n_bytes += message.ByteSize()
        if n_bytes > _MAX_PAGE_BYTES and answer.models:
            break
        answer.models.append(message)
    end = start + len(answer.models)
    if end < len(models):
        answer.next_page_token = quote(os.fsencode(models[end - 1].path))
    return answer


def describe_page(described: Description, size: int, token: str) -> pb.DescribeResponse:
    """The tensors after the first `token` ones; metadata with the first page."""
    if token and not token.isdecimal():
        raise BadPageTokenError(f"{token!r} is no page token of this server")
    start = int(token[:9] or 0)
    answer = pb.DescribeResponse(
        parts=[text(part) for part in described.parts],
        n_bytes=described.n_bytes,
        gguf_version=described.version,
    )
    if start == 0:
        answer.metadata.extend(_entries(described))
    tensors = list(described.tensors.values())
    end = start + (min(size, _N_TENSORS) or _N_TENSORS)
    for tensor in tensors[start:end]:
        answer.tensors.append(
            pb.Tensor(
                name=text(tensor.name),
                shape=list(tensor.shape),
                quant=tensor.quant.name,
                n_bytes=tensor.n_bytes,
                part=tensor.part,
            )
        )
    if end < len(tensors):
        answer.next_page_token = str(end)
    return answer


def _entries(described: Description) -> list[pb.MetadataEntry]:
    entries = []
    n_left = _MAX_PAGE_BYTES
    for key, value in described.metadata.items():
        shown = json_value(value[:_MAX_VALUE] if isinstance(value, str) else value, _MAX_ITEMS)
        entry = pb.MetadataEntry(key=text(key), value=text(json.dumps(shown)))
        n_left -= entry.ByteSize()
        if n_left < 0:
            break
        entries.append(entry)
    return entries
