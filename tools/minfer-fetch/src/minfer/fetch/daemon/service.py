"""minfer.store.v1.ModelStoreService: one method per call, with names as gRPC wants them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from minfer.core.errors import ModelNotFoundError, UsageError
from minfer.core.reference import PathReference, parse_reference
from minfer.fetch.cached_models import cached_model, cached_models
from minfer.fetch.daemon.activity import Activity
from minfer.fetch.daemon.answering import Context, answering
from minfer.fetch.daemon.changes import changes
from minfer.fetch.daemon.detached import DetachedPulls
from minfer.fetch.daemon.live_catalog import LiveCatalog
from minfer.fetch.daemon.pages import describe_page, page_of_models
from minfer.fetch.daemon.work import Work
from minfer.fetch.description import describe_local, describe_remote
from minfer.fetch.pull import Pulled, obtain, remote_reference
from minfer.fetch.removal import remove_model
from minfer.fetch.verification import Finding, verify_model
from minfer.store.file_sets import lock_name
from minfer.store.locks import hold
from minfer.store.messages import API_MAJOR, model_message, progress_message, pull_message, settings_of, text
from minfer.store.progress import Progress
from minfer.store.resolution import Fetch, Local, decide
from minfer.store.settings import Settings
from minfer.store.v1 import store_pb2 as pb

Emit = Callable[[Any], None]
T = TypeVar("T")


class ForeignRequestError(UsageError):
    """The request is about something that only its caller can settle, or about another cache."""

    code = "foreign-request"


@dataclass
class ModelStore:
    """Answers for one cache. `cache` has no links in it, `idle_s` 0 means that the daemon stays."""

    cache: Path
    activity: Activity
    catalog: LiveCatalog
    idle_s: float
    tcp_address: str = ""
    started_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.detached = DetachedPulls(self.activity)

    def GetServer(self, request: pb.GetServerRequest, context: Context) -> pb.GetServerResponse:
        """Who is serving which cache."""
        return pb.GetServerResponse(
            api_major=API_MAJOR,
            version=version("minfer-fetch"),
            cache=os.fsencode(self.cache),
            pid=os.getpid(),
        )

    def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveResponse:
        """End, unless at work."""
        leaves = self.activity.leave(n_calls=1, even_if_busy=request.even_if_busy)
        n_active = self.activity.n_calls - 1 + self.activity.n_works
        return pb.LeaveResponse(is_leaving=leaves, n_active=0 if leaves else n_active)

    def Resolve(self, request: pb.ResolveRequest, context: Context) -> Iterator[pb.ResolveResponse]:
        """Progress, then the file."""
        with answering(context):
            settings = self._settings(request.caller)
            outcome = self._look_up(request.reference, settings)
            if isinstance(outcome, Local):
                yield pb.ResolveResponse(resolved=_resolved(self._seen_from(settings, outcome), True))
                return
            reference = outcome.reference
            work = self._work(context, lambda emit: obtain(reference, settings, emit, refresh=False))
            for event in work.events():
                yield pb.ResolveResponse(progress=progress_message(event))
            pulled = work.result()
            self.catalog.touch()
            yield pb.ResolveResponse(resolved=_resolved(pulled.path, pulled.was_cached))

    def Pull(self, request: pb.PullRequest, context: Context) -> Iterator[pb.PullResponse]:
        """Progress, then the file; detached: until the first bytes move."""
        with answering(context):
            settings = self._settings(request.caller)
            reference = remote_reference(request.reference)
            if request.detach:
                started = self.detached.start(reference, settings)
                yield from _until_under_way(started)
                return
            work = self._work(context, lambda emit: obtain(reference, settings, emit, refresh=True))
            for event in work.events():
                yield pb.PullResponse(progress=progress_message(event))
            yield pb.PullResponse(pulled=_pulled(work))
            self.catalog.touch()

    def List(self, request: pb.ListRequest, context: Context) -> pb.ListResponse:
        """A page of models."""
        with answering(context):
            self._settings(request.caller)
            catalog = self.catalog.current()
            answer = page_of_models(self.catalog.listed(), request.page_size, request.page_token)
            answer.directory = os.fsencode(self.cache)
            answer.exists = catalog.exists
            answer.unreadable.extend(os.fsencode(each) for each in catalog.unreadable)
            return answer

    def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        """A page of tensors, with the metadata on the first."""
        with answering(context):
            settings = self._settings(request.caller)
            outcome = self._look_up(request.reference, settings)
            if isinstance(outcome, Local):
                described = describe_local(outcome.path)
            else:
                described = describe_remote(outcome.reference, settings)
            return describe_page(described, request.page_size, request.page_token)

    def Remove(self, request: pb.RemoveRequest, context: Context) -> pb.RemoveResponse:
        """Remove models, in the order of the request."""
        with answering(context):
            settings = self._settings(request.caller)
            if not request.references:
                raise ForeignRequestError("no model is named")
            answer = pb.RemoveResponse()
            for model in cached_models(list(request.references), self.catalog.fresh(), settings):
                remove_model(self.cache, model, force=request.force)
                path = os.fsencode(settings.cache / model.path)
                answer.removed.append(pb.RemovedModel(path=path, n_bytes=model.files.n_bytes or 0))
            self.catalog.touch()
            return answer

    def Verify(self, request: pb.VerifyRequest, context: Context) -> Iterator[pb.VerifyResponse]:
        """Progress, and a finding for each model."""
        with answering(context):
            settings = self._settings(request.caller)
            models = cached_models(list(request.references), self.catalog.fresh(), settings)

            def check(emit: Emit) -> None:
                for model in models:
                    emit(verify_model(self.cache, model, emit))

            work = self._work(context, check)
            for event in work.events():
                yield _verified(event)
            work.result()
            self.catalog.touch()

    def Watch(self, request: pb.WatchRequest, context: Context) -> Iterator[pb.WatchResponse]:
        """What is there, then what changes."""
        with answering(context):
            self._settings(request.caller)
            for kind, model in changes(self.catalog, lambda: self._is_wanted(context)):
                message = model_message(model) if model is not None else None
                yield pb.WatchResponse(kind=kind, model=message)

    def Hold(self, request: pb.HoldRequest, context: Context) -> Iterator[pb.HoldResponse]:
        """Keep a model from removal while the call lives."""
        with answering(context):
            settings = self._settings(request.caller)
            model = cached_model(request.reference, self.catalog.fresh(), settings)
            ended = threading.Event()
            context.add_callback(ended.set)
            with hold(self.cache, lock_name(model.path)):
                yield pb.HoldResponse(path=os.fsencode(settings.cache / model.path))
                while not ended.wait(1):
                    if self.activity.leaving.is_set():
                        return

    def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        """What the daemon is doing."""
        return pb.StatusResponse(
            server=self.GetServer(pb.GetServerRequest(), context),
            uptime_s=time.monotonic() - self.started_at,
            n_calls=self.activity.n_calls - 1,
            idle_s=self.idle_s,
            n_models=len(self.catalog.current().models),
            is_watching=self.catalog.is_watching,
            tcp_address=self.tcp_address,
            pulls=[pull_message(pull) for pull in self.detached.all()],
        )

    def _is_wanted(self, context: Context) -> bool:
        return bool(context.is_active()) and not self.activity.leaving.is_set()

    def _settings(self, caller: pb.Caller) -> Settings:
        settings = settings_of(caller)
        if Path(os.path.realpath(settings.cache)) != self.cache:
            raise ForeignRequestError(
                f"this daemon serves {str(self.cache)!r}, not {str(settings.cache)!r}",
                hint="start one for that cache: minfer-fetch daemon start",
            )
        return settings

    def _look_up(self, word: str, settings: Settings) -> Local | Fetch:
        """What `word` means. Memory may be behind the disk: a miss and a missing file are looked up again."""
        reference = parse_reference(word)
        if isinstance(reference, PathReference):
            raise ForeignRequestError(f"{word!r} is a path, which its caller has to settle")
        outcome = _attempt(partial(decide, reference, None, self.catalog.current(), offline=False))
        if isinstance(outcome, Local) and outcome.path.exists():
            return outcome
        return decide(reference, None, self.catalog.fresh(), offline=settings.offline)

    def _seen_from(self, settings: Settings, local: Local) -> Path:
        """The path in the caller's own spelling of the cache's."""
        return settings.cache / local.model.path if local.model else local.path

    def _work(self, context: Context, task: Callable[[Emit], T]) -> Work[Any, T]:
        work: Work[Any, T] = Work(self.activity, task)
        if not context.add_callback(work.cancel):
            work.cancel()
        return work


def _attempt(look: Callable[[], Local | Fetch]) -> Local | Fetch | None:
    try:
        return look()
    except ModelNotFoundError:
        return None


def _resolved(path: Path, was_cached: bool) -> pb.ResolvedModel:
    return pb.ResolvedModel(path=os.fsencode(path), was_cached=was_cached)


def _pulled(work: Work[Any, Pulled]) -> pb.ResolvedModel:
    pulled = work.result()
    return _resolved(pulled.path, pulled.was_cached)


def _until_under_way(work: Work[Progress, Pulled] | None) -> Iterator[pb.PullResponse]:
    """Until bytes move, so that a wrong name is told to who wrote it; or the answer, if it is there first."""
    for event in work.events() if work else ():
        yield pb.PullResponse(progress=progress_message(event))
        if event.n_done is not None:
            break
    else:
        if work is not None:
            yield pb.PullResponse(pulled=_pulled(work))
            return
    yield pb.PullResponse(detached=pb.Detached())


def _verified(event: Progress | Finding) -> pb.VerifyResponse:
    if isinstance(event, Progress):
        return pb.VerifyResponse(progress=progress_message(event))
    path = os.fsencode(event.model.path)
    return pb.VerifyResponse(finding=pb.Finding(path=path, state=event.state, problem=text(event.problem)))
