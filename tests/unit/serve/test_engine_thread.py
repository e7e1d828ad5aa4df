"""The engine's thread on a tiny model: who waits for whom, and what the end leaves behind."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from minfer.engine import LoadOptions, open_model
from minfer.engine.events import Prefilled, Stopped
from minfer.engine.generate import GenerationLoop
from minfer.engine.generation import Request
from minfer.engine.kv_cache import KVCache
from minfer.engine.model import Model
from minfer.engine.params import GenerationParams
from minfer.engine.testing import END, IM_END, TinyModel, tiny_model
from minfer.serve.errors import QueueFullError, ShuttingDownError
from minfer.serve.scheduling.engine_thread import Capacity, Delivery, EngineThread
from minfer.serve.scheduling.jobs import Broken, Item, Job, Started

N_CTX = 2048
ENDLESS = GenerationParams(
    n_predict=-1, seed=1, temp=1.0, logit_bias=((END, float("-inf")), (IM_END, float("-inf")))
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(tiny_model(TinyModel("llama", n_context=N_CTX)))
    with open_model(path, LoadOptions(n_threads=1, max_logit_rows=8)) as opened, opened.load() as loaded:
        yield loaded


class Running:
    """An engine with its deliveries in a queue."""

    def __init__(self, model: Model, capacity: Capacity) -> None:
        cache = model.new_cache(N_CTX, capacity.n_slots, is_shared=True)
        self._items: queue.Queue[tuple[Job, Item]] = queue.Queue()
        self.engine = EngineThread(GenerationLoop(model, cache, N_CTX), cache, capacity, self._deliver)
        self.engine.start()

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        for job, items in deliveries:
            for item in items:
                self._items.put((job, item))

    def submit(self, *, owner: bytes = b"", params: GenerationParams = ENDLESS, text: str = "Hello",
               n: int = 1, deadline: float = 0.0, cached: bool = True) -> Job:  # fmt: skip
        requests = [Request(tuple(text.encode()), params, choice) for choice in range(n)]
        job = Job("one", owner, requests, deadline)
        job.use_prefix_cache = cached
        self.engine.submit(job)
        return job

    def until(self, wanted: Callable[[Job, Item], bool], timeout: float = 10.0) -> Item:
        """The next item that is wanted; others are dropped."""
        end = time.monotonic() + timeout
        while True:
            job, item = self._items.get(timeout=max(0.01, end - time.monotonic()))
            if wanted(job, item):
                return item

    def until_started(self, job: Job) -> None:
        self.until(lambda one, item: one is job and isinstance(item.event, Started))


@pytest.fixture
def start(model: Model) -> Iterator[Callable[..., Running]]:
    begun: list[Running] = []

    def begin(n_slots: int = 1, max_queue: int = 1) -> Running:
        begun.append(Running(model, Capacity(n_slots, max_queue)))
        return begun[-1]

    yield begin
    for one in begun:
        one.engine.close()
        one.engine.join(10)
        assert not one.engine.is_alive()


def test_one_key_does_not_take_the_places_of_another(start: Callable[..., Running]) -> None:
    running = start(n_slots=1, max_queue=2)
    running.until_started(running.submit(owner=b"a"))
    for _ in range(2):
        running.submit(owner=b"a")
    with pytest.raises(QueueFullError, match="2 of your requests"):
        running.submit(owner=b"a")
    for _ in range(2):
        running.submit(owner=b"b")
    with pytest.raises(QueueFullError):
        running.submit(owner=b"b")


def test_an_errand_holds_up_nobody_who_asks(start: Callable[..., Running]) -> None:
    running = start()
    release, began = threading.Event(), threading.Event()

    def errand(_: KVCache) -> None:
        began.set()
        release.wait(20)

    running.engine.run_errand(errand)
    assert began.wait(10)
    done: list[object] = []

    def ask() -> None:
        done.append(running.engine.is_idle)
        running.engine.cancel(running.submit())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(5)
    release.set()
    assert done == [True]


def test_the_end_drops_what_waits_and_does_not_begin_it(start: Callable[..., Running]) -> None:
    running = start()
    running.until_started(running.submit())
    waiting = running.submit()
    running.engine.close()
    item = running.until(lambda job, _: job is waiting)
    assert isinstance(item.event, Broken)
    assert isinstance(item.event.error, ShuttingDownError)
    running.engine.join(10)
    assert not running.engine.is_alive()
    with pytest.raises(ShuttingDownError):
        running.submit()
    with pytest.raises(ShuttingDownError):
        running.engine.run_errand(lambda _: None)


def test_a_deadline_ends_an_answer_that_nobody_reads(start: Callable[..., Running]) -> None:
    running = start()

    async def fill() -> Job:
        """A mailbox belongs to an event loop; this one has more in it than its reader takes."""
        job = running.submit(deadline=time.perf_counter() + 0.5)
        job.mailbox.put([Item(0, Started(), 0.0)] * 1000)
        return job

    job = asyncio.run(fill())
    assert job.mailbox.is_paused
    running.until(lambda one, item: one is job and isinstance(item.event, Stopped))
    assert job.is_late


def test_choices_share_their_prompt_also_without_the_cache(start: Callable[..., Running]) -> None:
    running = start(n_slots=2, max_queue=4)
    params = GenerationParams(n_predict=1, seed=1)
    text = "A prompt of several blocks of the cache, as long as it takes. " * 2
    for _ in range(2):
        running.submit(params=params, text=text, n=2, cached=False)
        reused = []
        for _ in range(2):
            item = running.until(lambda _, item: isinstance(item.event, Prefilled))
            assert isinstance(item.event, Prefilled)
            reused.append(item.event.n_reused)
        assert reused[0] == 0  # of nobody else
        assert reused[1] > 64
