"""Between the messages of minfer.store.v1 and values: generated types stop here.

Paths cross as bytes, because they are bytes; what is shown to people crosses as text.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from minfer.core.errors import MinferError
from minfer.store.daemon_facts import (
    DescribedModel,
    DescribedTensor,
    DetachedPull,
    ListedModel,
    ServerFacts,
    Status,
)
from minfer.store.progress import Progress
from minfer.store.settings import Settings
from minfer.store.tcp import TOKEN
from minfer.store.v1 import store_pb2 as pb
from minfer.store.wire import error_from_json

API_MAJOR = 1
DETAILS_KEY = "grpc-status-details-bin"
ERROR_DOMAIN = "minfer"
TOKEN_KEY = "authorization"

_MAX_VALUE_BYTES = 1 << 16
# What sources and pip read, and no other secret of the caller's; see `Caller` in store.proto.
_TRAVELS = re.compile(
    r"(?:HF|HUGGING_FACE|OLLAMA|PIP|XDG|LC|SSL|MINFER|PYTHON_KEYRING)_.+|\w+_proxy"
    r"|HOME|PATH|USER|LOGNAME|LANG|TMPDIR|NETRC|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|DBUS_SESSION_BUS_ADDRESS",
    re.IGNORECASE | re.ASCII,
)
_MAX_FACT = 1000  # characters; a call's trailer is limited to 8 KiB, and the fact crosses twice
_MAX_CANDIDATE_BYTES = 4000


def token_value(token: str) -> str:
    """`token` as it travels under TOKEN_KEY."""
    return f"Bearer {token}"


def caller_message(settings: Settings) -> pb.Caller:
    """The caller's settings, to travel with a request."""
    environment = [
        pb.EnvironmentVariable(name=os.fsencode(name), value=os.fsencode(value))
        for name, value in settings.environment.items()
        if len(value) <= _MAX_VALUE_BYTES and _TRAVELS.fullmatch(name) and name != TOKEN
    ]
    cache = os.fsencode(settings.cache)
    return pb.Caller(cache=cache, offline=settings.offline, environment=environment, n_jobs=settings.n_jobs)


def settings_of(caller: pb.Caller) -> Settings:
    """The settings that arrived with a request."""
    environment = {os.fsdecode(each.name): os.fsdecode(each.value) for each in caller.environment}
    cache = Path(os.fsdecode(caller.cache))
    return Settings(cache, caller.offline, environment, min(caller.n_jobs, 64) or 4)


def text(value: str) -> str:
    """`value` without what no message can carry: undecodable bytes of file names."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def progress_message(event: Progress) -> pb.Progress:
    """`event` for the wire."""
    return pb.Progress(label=text(event.label), done=event.n_done, total=event.n_total, note=text(event.note))


def progress_of(message: pb.Progress) -> Progress:
    """The event again."""
    done = message.done if message.HasField("done") else None
    total = message.total if message.HasField("total") else None
    return Progress(message.label, done, total, message.note)


def server_facts_of(message: pb.GetServerResponse) -> ServerFacts:
    """Who answered."""
    cache = Path(os.fsdecode(message.cache))
    return ServerFacts(message.api_major, message.version, cache, message.pid)


def model_message(model: ListedModel) -> pb.Model:
    """`model` for the wire."""
    return pb.Model(
        path=os.fsencode(model.path),
        spelling=text(model.spelling),
        reference=text(model.reference or ""),
        source=model.source,
        n_bytes=model.n_bytes,
        n_parts=model.n_parts,
        missing=[text(name) for name in model.missing],
        state=model.state,
    )


def model_of(message: pb.Model) -> ListedModel:
    """The model again."""
    return ListedModel(
        path=os.fsdecode(message.path),
        spelling=message.spelling,
        reference=message.reference or None,
        source=message.source,
        n_bytes=message.n_bytes,
        n_parts=message.n_parts,
        missing=tuple(message.missing),
        state=message.state,
    )


def description_of(page: pb.DescribeResponse, before: DescribedModel | None) -> DescribedModel:
    """The pages up to `page` as one description."""
    tensors = tuple(
        DescribedTensor(each.name, tuple(each.shape), each.quant, each.n_bytes, each.part)
        for each in page.tensors
    )
    if before is not None:
        return replace(before, tensors=before.tensors + tensors)
    metadata = {entry.key: entry.value for entry in page.metadata}
    return DescribedModel(tuple(page.parts), page.n_bytes, page.gguf_version, metadata, tensors)


def pull_message(pull: DetachedPull) -> pb.DetachedPull:
    """`pull` for the wire."""
    return pb.DetachedPull(
        reference=text(pull.reference),
        progress=progress_message(pull.progress),
        state=pull.state,
        problem=text(pull.problem),
    )


def status_of(message: pb.StatusResponse) -> Status:
    """What the daemon said about itself."""
    return Status(
        server=server_facts_of(message.server),
        uptime_s=message.uptime_s,
        n_calls=message.n_calls,
        idle_s=message.idle_s,
        n_models=message.n_models,
        is_watching=message.is_watching,
        tcp_address=message.tcp_address,
        pulls=tuple(
            DetachedPull(each.reference, progress_of(each.progress), each.state, each.problem)
            for each in message.pulls
        ),
    )


def error_details(error: MinferError, status: int) -> bytes:
    """`error` as a serialized google.rpc.Status with code number `status`, cut to what a trailer holds."""
    from google.protobuf.any_pb2 import Any
    from google.rpc.error_details_pb2 import ErrorInfo
    from google.rpc.status_pb2 import Status as RpcStatus

    detail = pb.ErrorDetail(code=error.code, exit_status=error.exit_status, hint=text(error.hint)[:_MAX_FACT])
    labels = [*error.labels, *[""] * len(error.candidates)]
    for candidate, label in zip(error.candidates, labels, strict=False):
        detail.candidates.append(pb.Candidate(text=text(candidate), label=text(label)))
        if detail.ByteSize() > _MAX_CANDIDATE_BYTES:
            detail.candidates.pop()
            break
    info = ErrorInfo(reason=error.code.replace("-", "_").upper(), domain=ERROR_DOMAIN)
    answer = RpcStatus(code=status, message=short_fact(error))
    for each in (info, detail):
        packed = Any()
        packed.Pack(each)
        answer.details.append(packed)
    return bytes(answer.SerializeToString())


def short_fact(error: MinferError) -> str:
    """The fact, cut to what a trailer holds."""
    return text(error.fact)[:_MAX_FACT]


def error_of(details: bytes) -> MinferError | None:
    """The error in a serialized google.rpc.Status; None when it holds none of ours."""
    from google.protobuf.message import DecodeError
    from google.rpc.status_pb2 import Status as RpcStatus

    try:
        status = RpcStatus.FromString(details)
    except DecodeError:
        return None
    for each in status.details:
        detail = pb.ErrorDetail()
        if each.Is(pb.ErrorDetail.DESCRIPTOR) and each.Unpack(detail):
            return error_from_json(
                {
                    "code": detail.code,
                    "message": status.message,
                    "hint": detail.hint,
                    "exit_status": detail.exit_status,
                    "candidates": [candidate.text for candidate in detail.candidates],
                    "labels": [candidate.label for candidate in detail.candidates],
                }
            )
    return None
