"""One loaded model in a conversation: it answers, and keeps what it has read in the KV cache.

The whole conversation is the prompt of every answer; the loop finds out how much of it the cache holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from minfer.core.errors import ContextOverflowError
from minfer.engine.events import Event, Failed, Prefilled, Stopped, StopReason, Token
from minfer.engine.generate import GenerationLoop
from minfer.engine.generation import Generation, Request
from minfer.run.conversation.dialogue import Dialogue, Turn
from minfer.run.conversation.splice import ConversationPrompt, conversation_prompt, spelled

if TYPE_CHECKING:
    from minfer.engine.chat import ChatTemplate
    from minfer.engine.generation import Drafter
    from minfer.engine.model import Model
    from minfer.engine.params import GenerationParams


class ContextFullError(ContextOverflowError):
    """The conversation, or its last question alone, does not fit the context."""

    code = "context-full"


@dataclass(slots=True)
class Asking:
    """How to answer: sampling, which of the possible answers, what to do when the context is full, and
    who is told of the events.
    """

    params: GenerationParams
    choice: int
    overflow: str
    on_event: Callable[[Event], None]


@dataclass(slots=True)
class Answer:
    """An answer and what it took.

    n_again: tokens that were in the cache and had to be computed again, because the template rewrote
    earlier turns. n_dropped: turns that no longer fit and were dropped.
    """

    turn: Turn
    reason: StopReason = StopReason.CANCELLED
    n_prefilled: int = 0
    n_generated: int = 0
    seconds: float = 0.0
    n_again: int = 0
    n_dropped: int = 0
    n_drafted: int = 0
    n_accepted: int = 0


@dataclass(frozen=True, slots=True)
class LastDraw:
    """Where the last token came from: the ids before it and itself, and how it was drawn."""

    ids: tuple[int, ...]
    params: GenerationParams
    choice: int


class Chat:
    """Answers dialogues with one model. Not for several threads."""

    def __init__(
        self,
        model: Model,
        template: ChatTemplate,
        n_ctx: int,
        extra: dict[str, Any] | None,
        new_drafter: Callable[[], Drafter | None] = lambda: None,
    ) -> None:
        """extra: variables for the template. new_drafter: who guesses ahead in an answer, if anybody."""
        self.model = model
        self.template = template
        self.n_ctx = n_ctx
        self.extra = extra
        self.cache = model.new_cache(n_ctx)
        self.sequence = self.cache.new_sequence()
        self.last_draw: LastDraw | None = None
        self._new_drafter = new_drafter
        self._loop = GenerationLoop(model, self.cache, n_ctx)
        self._running: Generation | None = None
        self._is_stopped = False
        self._answered: tuple[Turn, ...] = ()

    def prompt(self, dialogue: Dialogue) -> ConversationPrompt:
        """What the model is given for this dialogue."""
        return conversation_prompt(dialogue, self.template, self.model.tokenizer, self.extra)

    def stop(self) -> None:
        """End the running answer between two layers, or the next one if none runs; it is kept."""
        self._is_stopped = True
        if self._running is not None:
            self._running.is_cancelled = True

    def answer(self, dialogue: Dialogue, asking: Asking) -> Answer:
        """Answer the last question of the dialogue, which is left as it is but for dropped turns.

        Raises ContextFullError, TemplateError, ParameterError.
        """
        shown = tuple(dialogue.shown)
        n_dropped = self._fit(dialogue, asking)
        grows = bool(self._answered) and not n_dropped and shown[: len(self._answered)] == self._answered
        n_cached = self.sequence.length
        answer = Answer(Turn("assistant", "", (), choice=asking.choice), n_dropped=n_dropped)
        while True:
            stopped = self._generate(dialogue, asking, answer)
            if grows:
                answer.n_again = max(0, n_cached - (len(self.prompt(dialogue).ids) - answer.n_prefilled))
            if stopped.reason is not StopReason.CONTEXT or asking.overflow != "shift":
                break
            grows = False
            n_dropped = self._drop(dialogue, len(answer.turn.ids or ()))
            answer.n_dropped += n_dropped
            if not n_dropped or len(self.prompt(dialogue).ids) + len(answer.turn.ids or ()) >= self.n_ctx:
                break
            self._mend(answer, stopped, asking)
        asking.on_event(stopped)
        answer.reason = stopped.reason
        self._finish(answer)
        self._answered = (*dialogue.shown, answer.turn)
        return answer

    def run_alone(self, request: Request, prepare: Callable[[Generation], None]) -> None:
        """Generate beside the conversation, in the same cache; `prepare` may change the generation."""
        generation = self._loop.add(request, self.sequence)
        prepare(generation)
        try:
            while generation.stopped is None and not generation.is_failed:
                self._loop.step()
        finally:
            self._loop.remove(generation)

    def _fit(self, dialogue: Dialogue, asking: Asking) -> int:
        """Drop the oldest exchanges when too little room is left for an answer; how many turns went."""
        n_ids = len(self.prompt(dialogue).ids)
        n_predict = asking.params.n_predict
        reserve = self.n_ctx // 8 if n_predict < 0 else min(n_predict, self.n_ctx // 8)
        n_dropped = 0
        if n_ids + reserve > self.n_ctx and asking.overflow != "stop":
            n_dropped = self._drop(dialogue, 0)
            n_ids = len(self.prompt(dialogue).ids)
        if n_ids >= self.n_ctx:
            raise ContextFullError(
                f"context full: need {n_ids + 1} tokens, have {self.n_ctx}",
                hint="raise --n-ctx, shorten the message, or make room with /undo or /clear",
            )
        return n_dropped

    def _drop(self, dialogue: Dialogue, n_more: int) -> int:
        """Drop down to half of the context, with n_more ids behind the prompt, so that the next turns
        need no dropping; how many turns went.
        """
        n_dropped = 0
        while len(self.prompt(dialogue).ids) + n_more > self.n_ctx // 2:
            n_turns = dialogue.drop_oldest()
            if not n_turns:
                break
            n_dropped += n_turns
        return n_dropped

    def _generate(self, dialogue: Dialogue, asking: Asking, answer: Answer) -> Stopped:
        """Continue the answer; all but the end is told."""
        before = answer.turn.ids or ()
        params = asking.params
        if params.n_predict >= 0:
            params = replace(params, n_predict=params.n_predict - len(before))
        prompt = self.prompt(dialogue).ids + before
        request = Request(prompt, params, asking.choice, drafter=self._new_drafter())
        generation = self._running = self._loop.add(request, self.sequence)
        generation.is_cancelled = self._is_stopped
        text = answer.turn.text
        try:
            while generation.stopped is None:
                for _, event in self._loop.step():
                    match event:
                        case Failed():
                            raise event.error
                        case Prefilled():
                            answer.n_prefilled += event.n_prompt - event.n_reused
                            answer.seconds += event.seconds
                        case Token():
                            text += event.text
                    if not isinstance(event, Stopped):
                        asking.on_event(event)
        finally:
            self._running = None
            self._is_stopped = False
            self._loop.remove(generation)
        stopped = generation.stopped
        answer.seconds += stopped.seconds
        answer.n_generated += stopped.n_generated
        answer.n_drafted += stopped.n_drafted
        answer.n_accepted += stopped.n_accepted
        drawn = generation.ids[len(request.prompt) :]
        self.last_draw = LastDraw(tuple(generation.ids), asking.params, asking.choice) if drawn else None
        if stopped.reason is StopReason.END_OF_GENERATION:
            drawn = drawn[:-1]
        answer.turn = replace(answer.turn, text=text + stopped.text, ids=before + tuple(drawn))
        return stopped

    def _mend(self, answer: Answer, stopped: Stopped, asking: Asking) -> None:
        """Make the end of one generation a place where the next can go on: half a character is taken back,
        text that was held back is told.
        """
        turn, held = answer.turn, stopped.text
        text = turn.text
        ids, tail = spelled(turn.ids or (), text, self.model.tokenizer)
        if tail:
            text, held = text.removesuffix(tail), held.removesuffix(tail)
        answer.turn = replace(turn, ids=ids, text=text)
        if held:
            asking.on_event(Token(ids[-1], held, 0.0))

    def _finish(self, answer: Answer) -> None:
        """Leave the answer only the ids that its text consists of: a stop string was not said."""
        turn = answer.turn
        if answer.reason is StopReason.STOP_STRING:
            ids, tail = spelled(turn.ids or (), turn.text, self.model.tokenizer)
            answer.turn = replace(turn, ids=ids, tail=tail)
