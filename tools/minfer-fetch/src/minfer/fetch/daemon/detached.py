"""Downloads that go on when whoever asked for them is gone."""

from __future__ import annotations

import threading
from collections import OrderedDict

from minfer.core.errors import MinferError
from minfer.core.reference import RemoteReference
from minfer.fetch.daemon.activity import Activity
from minfer.fetch.daemon.work import Work
from minfer.fetch.pull import Pulled, obtain
from minfer.store.daemon_facts import DetachedPull
from minfer.store.progress import OnProgress, Progress
from minfer.store.settings import Settings

_N_KEPT = 20


class DetachedPulls:
    """The detached downloads of this daemon: those that run, and the last that ended."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._guard = threading.Lock()
        self._pulls: OrderedDict[str, DetachedPull] = OrderedDict()

    def all(self) -> tuple[DetachedPull, ...]:
        """In the order in which they were started."""
        with self._guard:
            return tuple(self._pulls.values())

    def start(self, reference: RemoteReference, settings: Settings) -> Work[Progress, Pulled] | None:
        """Start to pull `reference`; None when that is under way here already."""
        name = str(reference)
        with self._guard:
            known = self._pulls.get(name)
            if known is not None and known.state == "running":
                return None
            self._pulls.pop(name, None)
            self._pulls[name] = DetachedPull(name, Progress(name), "running")
            while len(self._pulls) > _N_KEPT:
                ended = next((key for key, pull in self._pulls.items() if pull.state != "running"), None)
                if ended is None:
                    break
                del self._pulls[ended]
        work: Work[Progress, Pulled] = Work(
            self._activity,
            lambda emit: obtain(reference, settings, self._listener(name, emit), refresh=True),
        )
        threading.Thread(target=self._wait, args=(name, work), daemon=True).start()
        return work

    def _listener(self, name: str, emit: OnProgress) -> OnProgress:
        def listen(event: Progress) -> None:
            self._set(DetachedPull(name, event, "running"))
            emit(event)

        return listen

    def _wait(self, name: str, work: Work[Progress, Pulled]) -> None:
        work.wait()
        last = self._pulls[name].progress
        try:
            work.result()
        except MinferError as error:
            self._set(DetachedPull(name, last, "failed", error.fact))
        else:
            self._set(DetachedPull(name, last, "done"))

    def _set(self, pull: DetachedPull) -> None:
        with self._guard:
            if pull.reference in self._pulls:
                self._pulls[pull.reference] = pull
