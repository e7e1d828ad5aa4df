"""What a server process is: loading, ready, draining or failed; and the model once it is there."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minfer.core.errors import MinferError
from minfer.serve.errors import LoadingError, ShuttingDownError
from minfer.serve.metrics import Metrics

if TYPE_CHECKING:
    from minfer.engine.chat import ChatTemplate
    from minfer.engine.model import Model
    from minfer.serve.log import Log
    from minfer.serve.scheduling.engine_thread import EngineThread
    from minfer.serve.settings import ServeSettings


@dataclass(slots=True, eq=False)
class Service:
    """A model that answers. names: what a request may call it, its id first. n_ctx: of one request."""

    model: Model
    template: ChatTemplate | None
    engine: EngineThread
    names: tuple[str, ...]
    n_ctx: int
    fingerprint: str
    facts: dict[str, object]
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        # A tokenizer is not for several threads; this one also keeps long prompts off the event loop.
        self.tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")

    tokenizing: ThreadPoolExecutor = field(init=False)

    def close(self) -> None:
        """End the engine and give the memory back."""
        self.engine.close()
        self.tokenizing.shutdown(wait=False, cancel_futures=True)
        self.engine.join(10)
        if not self.engine.is_alive():
            self.model.close()


class ServerState:
    """Shared by all routes; touched on the event loop only."""

    def __init__(self, settings: ServeSettings, log: Log) -> None:
        self.settings = settings
        self.log = log
        self.metrics = Metrics()
        self.service: Service | None = None
        self.failure: MinferError | None = None
        self.is_draining = False
        self.is_loaded = asyncio.Event()
        self.began = time.time()

    @property
    def status(self) -> str:
        """`loading`, `ok`, `draining` or `failed`."""
        if self.is_draining:
            return "draining"
        if self.failure is not None or (self.service and not self.service.engine.is_alive()):
            return "failed"
        return "ok" if self.service else "loading"

    def ready(self) -> Service:
        """The model. Raises LoadingError, ShuttingDownError."""
        if self.is_draining:
            raise ShuttingDownError("the server is shutting down", hint="try another one", retry_after=5)
        if self.service is None:
            raise LoadingError("the model is being loaded", hint="try again shortly", retry_after=2)
        return self.service
