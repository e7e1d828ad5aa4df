"""How errors leave a call: canonical status codes, with google.rpc details that say what a client can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from minfer.core.errors import MinferError
from minfer.store.messages import DETAILS_KEY, error_details, short_fact
from minfer.store.rpc import grpc

Context: TypeAlias = Any  # grpc.ServicerContext, which has no types

_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    422: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    502: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class _Refusal(grpc.Status):  # type: ignore[misc]  # gRPC has no types
    def __init__(self, error: MinferError) -> None:
        self.code = _CODES.get(error.http_status, grpc.StatusCode.INTERNAL)
        self.details = short_fact(error)
        self.trailing_metadata = ((DETAILS_KEY, error_details(error, self.code.value[0])),)


@contextmanager
def answering(context: Context) -> Iterator[None]:
    """The body of a call: errors of minfer become its status."""
    try:
        yield
    except MinferError as error:
        context.abort_with_status(_Refusal(error))
