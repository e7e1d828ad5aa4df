"""The typed client of the daemon: messages go in and out as values, errors as their own types.

Calls raise the daemon's errors as they were raised there, and NoDaemonError when it went away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from minfer.core.errors import TransferError
from minfer.store import messages
from minfer.store.address import DaemonGoneError, NoDaemonError
from minfer.store.daemon_facts import DescribedModel, ListedModel, ServerFacts, Status, VerifiedModel
from minfer.store.progress import OnProgress, ignore_progress
from minfer.store.rpc import CHANNEL_OPTIONS, grpc, services
from minfer.store.settings import Settings
from minfer.store.tcp import TOKEN_FILE, TcpAddress
from minfer.store.v1 import store_pb2 as pb

_BRIEF_S = 10.0  # for answers that need no work; generous, because machines are busy
_LONG_S = 60.0  # for those that read a disk or ask a source
_OF_NO_USE = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)


T = TypeVar("T")


class DaemonFailedError(TransferError):
    """The daemon broke in the middle of a call."""

    code = "daemon-failed"


class TokenRefusedError(TransferError):
    """The daemon at a TCP address does not take the caller's token."""

    code = "token-refused"


class DaemonClient:
    """A connection to the daemon that listens at `address`; `settings` travel with every request.

    `token` is for a TCP address, '' for a socket.
    """

    def __init__(self, address: Path | TcpAddress, settings: Settings, token: str = "") -> None:
        target = address.target if isinstance(address, TcpAddress) else f"unix:{address}"
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._metadata = ((messages.TOKEN_KEY, messages.token_value(token)),) if token else ()
        self._stub = services.ModelStoreServiceStub(self._channel)
        self._caller = messages.caller_message(settings)

    def close(self) -> None:
        """End the connection, and calls that still run."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def server(self) -> ServerFacts:
        """Who serves which cache."""
        return messages.server_facts_of(self._unary(self._stub.GetServer, pb.GetServerRequest()))

    def status(self) -> Status:
        """What the daemon is doing."""
        return messages.status_of(self._unary(self._stub.Status, pb.StatusRequest()))

    def leave(self, *, even_if_busy: bool = False) -> bool:
        """Ask the daemon to end; False when it is at work and stays."""
        request = pb.LeaveRequest(even_if_busy=even_if_busy)
        return bool(self._unary(self._stub.Leave, request).is_leaving)

    def resolve(self, reference: str, on_progress: OnProgress = ignore_progress) -> tuple[Path, bool]:
        """The file that `reference` means, fetched if need be; and whether it was there already."""
        request = pb.ResolveRequest(caller=self._caller, reference=reference)
        with self._stream(self._stub.Resolve, request) as events:
            for event in events:
                if event.HasField("resolved"):
                    return Path(os.fsdecode(event.resolved.path)), event.resolved.was_cached
                on_progress(messages.progress_of(event.progress))
        raise DaemonFailedError(f"the daemon gave no answer for {reference!r}")

    def pull(self, reference: str, on_progress: OnProgress = ignore_progress) -> tuple[Path, bool]:
        """As `resolve`, but the source is asked even when the model is here."""
        request = pb.PullRequest(caller=self._caller, reference=reference)
        with self._stream(self._stub.Pull, request) as events:
            for event in events:
                if event.HasField("pulled"):
                    return Path(os.fsdecode(event.pulled.path)), event.pulled.was_cached
                on_progress(messages.progress_of(event.progress))
        raise DaemonFailedError(f"the daemon gave no answer for {reference!r}")

    def pull_detached(self, reference: str, on_progress: OnProgress = ignore_progress) -> Path | None:
        """Start a download that goes on without this process; a path when there was nothing to download."""
        request = pb.PullRequest(caller=self._caller, reference=reference, detach=True)
        with self._stream(self._stub.Pull, request) as events:
            for event in events:
                if event.HasField("pulled"):
                    return Path(os.fsdecode(event.pulled.path))
                if event.HasField("detached"):
                    return None
                on_progress(messages.progress_of(event.progress))
        raise DaemonFailedError(f"the daemon gave no answer for {reference!r}")

    def models(self) -> Iterator[ListedModel]:
        """The models of the cache, ordered by path; asked for page by page."""
        token = ""
        while True:
            page = self._unary(self._stub.List, pb.ListRequest(caller=self._caller, page_token=token))
            yield from map(messages.model_of, page.models)
            token = page.next_page_token
            if not token:
                return

    def describe(self, reference: str) -> DescribedModel:
        """What the file of `reference` says about itself; asked for page by page."""
        found: DescribedModel | None = None
        token = ""
        while found is None or token:
            request = pb.DescribeRequest(caller=self._caller, reference=reference, page_token=token)
            page = self._unary(self._stub.Describe, request, _LONG_S)
            found = messages.description_of(page, found)
            token = page.next_page_token
        return found

    def remove(self, references: Sequence[str], *, force: bool = False) -> list[Path]:
        """Take models out of the cache; the files that were to open, absolute."""
        request = pb.RemoveRequest(caller=self._caller, references=references, force=force)
        answer = self._unary(self._stub.Remove, request, _LONG_S)
        return [Path(os.fsdecode(each.path)) for each in answer.removed]

    def verify(
        self, references: Sequence[str] = (), on_progress: OnProgress = ignore_progress
    ) -> Iterator[VerifiedModel]:
        """Compare models (all without `references`) with their recorded digests, one after the other."""
        request = pb.VerifyRequest(caller=self._caller, references=references)
        with self._stream(self._stub.Verify, request) as events:
            for event in events:
                if event.HasField("finding"):
                    finding = event.finding
                    yield VerifiedModel(os.fsdecode(finding.path), finding.state, finding.problem)
                else:
                    on_progress(messages.progress_of(event.progress))

    def watch(self) -> Iterator[tuple[str, ListedModel | None]]:
        """What is in the cache, then what changes, as it happens: never ends by itself.

        ('present' | 'changed' | 'removed', model), and once ('settled', None) after all that was there.
        """
        with self._stream(self._stub.Watch, pb.WatchRequest(caller=self._caller)) as events:
            for event in events:
                kind = pb.WatchResponse.Kind.Name(event.kind).removeprefix("KIND_").lower()
                yield kind, messages.model_of(event.model) if event.HasField("model") else None

    @contextmanager
    def hold(self, reference: str) -> Iterator[Path]:
        """Keep a model from being removed inside the block. `minfer.store.hold` does so without a daemon."""
        request = pb.HoldRequest(caller=self._caller, reference=reference)
        with self._stream(self._stub.Hold, request) as events:
            yield Path(os.fsdecode(next(events).path))

    def _unary(self, method: Callable[..., T], request: object, timeout_s: float = _BRIEF_S) -> T:
        with _errors():
            return method(request, timeout=timeout_s, metadata=self._metadata, wait_for_ready=False)

    @contextmanager
    def _stream(self, method: Callable[..., Any], request: object) -> Iterator[Iterator[Any]]:
        """The answers of a call that is cancelled when the block is left, by Ctrl-C too."""
        call = method(request, metadata=self._metadata)
        try:
            with _errors():
                yield call
        finally:
            call.cancel()


@contextmanager
def _errors() -> Iterator[None]:
    """Raise what the daemon raised; for failures of the call itself NoDaemonError or DaemonFailedError."""
    try:
        yield
    except grpc.RpcError as failure:
        trailer = dict(failure.trailing_metadata() or ())
        error = messages.error_of(trailer.get(messages.DETAILS_KEY, b""))
        if error is not None:
            raise error from None
        status = failure.code()
        if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):  # it died, or was told to go
            raise DaemonGoneError(f"the daemon does not answer ({failure.details()})") from None
        if status is grpc.StatusCode.UNAUTHENTICATED:
            raise TokenRefusedError(
                "the daemon does not take this token", hint=f"{TOKEN_FILE} must name the daemon's own"
            ) from None
        if status in _OF_NO_USE:
            raise NoDaemonError(f"the daemon is of no use ({status.name})") from None
        raise DaemonFailedError(f"the daemon failed: {status.name}, {failure.details()}") from None
