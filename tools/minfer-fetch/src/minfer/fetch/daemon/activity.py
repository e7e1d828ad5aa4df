"""What a daemon is doing, which decides when it may go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from minfer.store.rpc import grpc

Context: TypeAlias = Any  # gRPC has no types
Handler: TypeAlias = Any


class Activity:
    """Counts calls and work; `leave` wins against new calls or loses against running ones, never both."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._n_calls = 0
        self._n_works = 0
        self._last = time.monotonic()
        self.leaving = threading.Event()

    @property
    def n_calls(self) -> int:
        """Calls in progress."""
        return self._n_calls

    @property
    def n_works(self) -> int:
        """Downloads and checks in progress; one that was cancelled counts until it has put its work away."""
        return self._n_works

    @property
    def idle_s(self) -> float:
        """Seconds since the last call or work; 0 while there is some."""
        with self._guard:
            return 0.0 if self._n_calls or self._n_works else time.monotonic() - self._last

    def begin_call(self) -> bool:
        """Count a call; False when the daemon is leaving."""
        with self._guard:
            if self.leaving.is_set():
                return False
            self._n_calls += 1
            return True

    def end_call(self) -> None:
        """Count it no more."""
        with self._guard:
            self._n_calls -= 1
            self._last = time.monotonic()

    def begin_work(self) -> None:
        """Count a piece of work, which may outlive the call that began it."""
        with self._guard:
            self._n_works += 1

    def end_work(self) -> None:
        """Count it no more."""
        with self._guard:
            self._n_works -= 1
            self._last = time.monotonic()

    def leave(self, *, n_calls: int, even_if_busy: bool = False) -> bool:
        """Refuse calls from now on, if there is no work and there are at most `n_calls`; True if so."""
        with self._guard:
            if not even_if_busy and (self._n_calls > n_calls or self._n_works):
                return False
            self.leaving.set()
            return True


class Counting(grpc.ServerInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Counts every call, health and reflection too, and refuses those that come too late."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def intercept_service(self, continuation: Callable[..., Any], details: object) -> Handler:
        """gRPC's hook: the handler of the call, wrapped."""
        handler = continuation(details)
        if handler is None:
            return None
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        return handler._replace(**{kind: self._counted(getattr(handler, kind))})

    def _counted(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        def answer(request: object, context: Context) -> object:
            if not self._activity.begin_call():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the daemon is leaving")
            if not context.add_callback(self._activity.end_call):
                self._activity.end_call()
            result: object = behaviour(request, context)
            return result

        return answer


_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
