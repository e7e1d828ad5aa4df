"""One prompt, one answer: resolve, open, plan, load, generate. Each stage's facts go to stderr."""

from __future__ import annotations

import shlex
import signal
from contextlib import nullcontext
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from minfer.core.units import counted
from minfer.engine import LoadOptions
from minfer.engine.events import Event, Prefilled, Stopped
from minfer.engine.generate import GenerationLoop, PromptTooLongError
from minfer.engine.generation import Generation, Request
from minfer.engine.params import GenerationParams, check_biases, with_seed
from minfer.run.drafting import drafting
from minfer.run.opening import find_model, open_path
from minfer.run.output import SINKS, Sink
from minfer.run.prompt import read_prompt
from minfer.run.status import Status
from minfer.run.wording import encode_prompt, find_template
from minfer.store import hold

if TYPE_CHECKING:
    from minfer.engine.model import OpenedModel
    from minfer.run.settings import RunSettings


def run(settings: RunSettings) -> int:
    """Answer and return the exit status: 0, or 130 when Ctrl-C ended the answer."""
    status = Status(quiet=settings.quiet)
    prompt = read_prompt(settings.words, settings.prompt_file)
    resolved = find_model(settings.reference, status)
    options = LoadOptions(n_threads=settings.n_threads, kv_type=settings.kv_type)
    held = hold(resolved) or nullcontext()
    with held, open_path(resolved.path, options, after=shlex.join(settings.words)) as opened:
        if settings.show_meta:
            status.metadata(opened.file)
        if settings.dump_graph is not None:
            opened.dump_graph(settings.dump_graph)
            status.say(f"Graph: {settings.dump_graph}")
        ids = encode_prompt(opened, settings, prompt, status)
        check_biases(settings.params, opened.tokenizer.n_vocab)
        params = with_seed(settings.params)
        n_ctx = settle_n_ctx(params, len(ids), opened.n_ctx_train)
        if settings.explain:
            from minfer.run.explain import explain

            explain(settings, resolved, opened, len(ids), n_ctx)
            return 0
        opened.plan(n_ctx).check()
        return _answer(opened, Request(tuple(ids), replace(params, n_ctx=n_ctx)), settings, status)


def settle_n_ctx(params: GenerationParams, n_prompt: int, n_ctx_train: int) -> int:
    """The context of this run: what was asked for, raised to what the request needs, at most the model's.

    Raises PromptTooLongError when the model's own length leaves no room for one token.
    """
    wanted = params.n_ctx or n_ctx_train
    needed = n_prompt + params.n_predict if params.n_predict >= 0 else max(n_prompt + 1, wanted)
    n_ctx = min(max(wanted, needed), n_ctx_train)
    if n_prompt >= n_ctx:
        raise PromptTooLongError(n_prompt, n_ctx)
    return n_ctx


def _answer(opened: OpenedModel, request: Request, settings: RunSettings, status: Status) -> int:
    with opened.load() as model:
        n_ctx = request.params.n_ctx
        status.loaded(model, n_ctx)
        status.say(f"Prompt: {counted(len(request.prompt), 'token')}")
        with drafting(settings, model, n_ctx, status) as new_drafter:
            loop = GenerationLoop(model, model.new_cache(n_ctx), n_ctx)
            generation = loop.add(replace(request, drafter=new_drafter()))
            restore = _stop_on_interrupt(generation)
            try:
                _stream(loop, generation, _sink(opened, settings, request), status, n_ctx)
            finally:
                signal.signal(signal.SIGINT, restore)
        if settings.spec is not None and generation.stopped is not None:
            status.speculated(generation.stopped)
    return 130 if generation.is_cancelled else 0


def _sink(opened: OpenedModel, settings: RunSettings, request: Request) -> Sink:
    template = find_template(opened, settings) if settings.think == "hide" else None
    if template is None or template.thinking is None or settings.output != "text":
        return SINKS[settings.output]()
    from minfer.run.conversation.display import AnswerSink

    end = opened.tokenizer.decode(request.prompt[-16:], special=True)
    is_begun = end.rstrip().endswith(template.thinking.begin)
    return AnswerSink(template.thinking, begins_thinking=is_begun, hides_thinking=True, color=False)


def _stop_on_interrupt(generation: Generation) -> signal.Handlers | int | None:
    """Let the first Ctrl-C end the answer between two layers; the second one is Python's own."""
    previous = signal.getsignal(signal.SIGINT)

    def stop(_number: int, _frame: FrameType | None) -> None:
        generation.is_cancelled = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, stop)
    return previous if isinstance(previous, signal.Handlers | int) else signal.SIG_DFL


def _stream(loop: GenerationLoop, generation: Generation, sink: Sink, status: Status, n_ctx: int) -> None:
    while generation.stopped is None:
        for _, event in loop.step():
            _show(event, sink, status, n_ctx)


def _show(event: Event, sink: Sink, status: Status, n_ctx: int) -> None:
    sink.take(event)
    match event:
        case Prefilled():
            status.prefilled(event)
        case Stopped():
            status.stopped(event, n_ctx)
