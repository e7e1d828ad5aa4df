"""From the words of the command line to a model that answers, on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from minfer.cli.progress import progress_view
from minfer.core.reference import PathReference
from minfer.core.units import human_bytes
from minfer.engine.chat import ChatTemplate
from minfer.engine.generate import GenerationLoop
from minfer.engine.model import LoadOptions, OpenedModel, open_model
from minfer.engine.pace import Pace
from minfer.serve.fingerprint import fingerprint
from minfer.serve.scheduling.engine_thread import Capacity, Delivery, EngineThread
from minfer.serve.state import Service
from minfer.store import hold, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from minfer.serve.log import Log
    from minfer.serve.settings import ServeSettings


def load_service(settings: ServeSettings, events: asyncio.AbstractEventLoop, log: Log) -> Service:
    """Resolve (downloading if need be), check the memory, load, and start the engine thread.

    Raises the errors of each stage. `events`: where the engine's deliveries are handed out.
    """
    with progress_view("json" if log.is_json else "auto") as on_progress:
        resolved = resolve(settings.reference, on_progress=on_progress)
    if not isinstance(resolved.reference, PathReference):
        log.say(f"Model ready: {resolved.path}")
    hold(resolved)  # never released: nobody may remove the model while this process lives
    options = LoadOptions(
        n_threads=settings.n_threads,
        kv_type=settings.kv_type,
        max_logit_rows=max(32, settings.n_slots),
        has_states=True,
    )
    with open_model(resolved.path, options) as opened:
        return _load(opened, resolved.path, settings, _post_to(events), log)


def _load(
    opened: OpenedModel,
    path: Path,
    settings: ServeSettings,
    deliver: Callable[[Sequence[Delivery]], None],
    log: Log,
) -> Service:
    n_total = settings.params.n_ctx or opened.n_ctx_train
    n_ctx = min(n_total, opened.n_ctx_train)
    plan = opened.plan(n_total, settings.n_slots, is_shared=True)
    plan.check()
    template = (
        ChatTemplate.named(settings.chat_template, opened.tokenizer)
        if settings.chat_template is not None
        else opened.chat_template
    )
    model = opened.load()
    for notice in model.notices:
        log.say(f"Note: {notice}")
    log.say(
        f"Loaded {path.name}: backend {model.backend_name}, {model.n_threads} threads, "
        f"{human_bytes(plan.total_bytes)} of memory"
    )
    log.say(
        f"Context: {n_total} tokens for {settings.n_slots} slots together, at most {n_ctx} for one request"
    )
    cache = model.new_cache(n_total, settings.n_slots, is_shared=True)
    loop = GenerationLoop(model, cache, n_ctx, pace=Pace(settings.itl_target))
    engine = EngineThread(loop, cache, Capacity(settings.n_slots, settings.max_queue), deliver)
    engine.start()
    return Service(
        model=model,
        template=template,
        engine=engine,
        names=_names(settings, path),
        n_ctx=n_ctx,
        fingerprint=fingerprint(model, settings.kv_type),
        facts=_facts(opened, path, n_total),
    )


def _names(settings: ServeSettings, path: Path) -> tuple[str, ...]:
    """What clients may call the model: the aliases, then what the file and the command line say."""
    own = (path.name.removesuffix(".gguf"), path.name, settings.reference)
    return tuple(dict.fromkeys((*settings.aliases, *own)))


def _facts(opened: OpenedModel, path: Path, n_total: int) -> dict[str, object]:
    return {
        "file": path.name,
        "architecture": opened.architecture,
        "n_ctx_total": n_total,
        "n_ctx_train": opened.n_ctx_train,
        "n_embd": opened.file.metadata.integer(f"{opened.architecture}.embedding_length"),
        "n_vocab": opened.tokenizer.n_vocab,
        "size": opened.file.n_bytes,
    }


def _post_to(events: asyncio.AbstractEventLoop) -> Callable[[Sequence[Delivery]], None]:
    def hand_out(deliveries: Sequence[Delivery]) -> None:
        for job, items in deliveries:
            job.mailbox.put(items)

    def deliver(deliveries: Sequence[Delivery]) -> None:
        with suppress(RuntimeError):  # the event loop is closed: nobody listens any more
            events.call_soon_threadsafe(hand_out, deliveries)

    return deliver
