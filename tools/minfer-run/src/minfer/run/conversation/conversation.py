"""The state of a conversation, and what can be done to it. Commands and turns come in, answers go out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from minfer.core.errors import MinferError
from minfer.core.units import counted
from minfer.engine.events import StopReason
from minfer.run.conversation.chat import Answer, Asking
from minfer.run.conversation.dialogue import Dialogue, Turn
from minfer.run.conversation.display import AnswerSink, tell, uses_color
from minfer.run.conversation.interrupts import stopping
from minfer.run.conversation.kv_companion import (
    CompanionIgnoredError,
    companion,
    restore_cache,
    save_cache,
)
from minfer.run.conversation.session import Session, read_session, write_session
from minfer.run.output import JsonLinesSink, Sink

if TYPE_CHECKING:
    from minfer.engine.params import GenerationParams
    from minfer.run.conversation.loading import LoadedChat
    from minfer.run.settings import ConversationSettings, RunSettings
    from minfer.run.status import Status


class Conversation:
    """One conversation. `params` have a settled seed."""

    def __init__(
        self, settings: RunSettings, options: ConversationSettings, dialogue: Dialogue, status: Status
    ) -> None:
        """`use` gives it its model before anything is asked."""
        self.settings = settings
        self.options = options
        self.dialogue = dialogue
        self.params: GenerationParams = settings.params
        self.overflow = options.overflow
        self.attached = ""  # text that goes in front of the next message
        self.edited: int | None = None  # the number of the message that the next one replaces
        self.is_over = False
        self.last_reason: StopReason | None = None
        self._status = status
        self._color = uses_color(options.color)

    loaded: LoadedChat

    @property
    def think(self) -> str:
        """show, hide or off."""
        return self.settings.think

    def use(self, loaded: LoadedChat) -> None:
        """Go on with this model."""
        self.loaded = loaded

    def say(self, text: str) -> None:
        """Send a message and show the answer. What fails leaves the conversation as it was.

        Raises MinferError; KeyboardInterrupt when the user wants to leave, after all was kept.
        """
        with self._undone_on_error():
            if self.edited is not None:
                self.dialogue.rewind(self.edited)
            self.dialogue.add(Turn("user", self.attached + text))
            self._answer(0, "")
        self.attached, self.edited = "", None

    def regenerate(self) -> None:
        """Make the last answer again, by the next draw. Raises as `say`."""
        with self._undone_on_error():
            old = self.dialogue.take_answer()
            self._answer(0 if old is None else old.choice + 1, "" if old is None else "regen: ")

    def save(self, path: Path | None = None) -> None:
        """Write the conversation to a file, or to that of --session if there is one."""
        target = path or self.options.session
        if target is not None:
            session = Session(self.dialogue, self.params, self.loaded.fingerprint, self.loaded.reference)
            write_session(target, session)

    def load(self, path: Path) -> None:
        """Go on with the conversation in a file. Raises SessionFileError."""
        session = read_session(path)
        self.adopt(session)
        self.params = session.params.updated({"n_ctx": self.params.n_ctx})

    def adopt(self, session: Session) -> None:
        """Take over the turns of a session; ids only where they are of this model."""
        self.dialogue = session.dialogue
        if session.fingerprint != self.loaded.fingerprint:
            self.dialogue.forget_ids()
            if session.fingerprint:
                tell(f"[session] it was had with another model ({session.reference}): answers are read again")
        tell(f"[session] loaded {counted(len(self.dialogue.turns), 'message')}")
        if self.dialogue.waits_for_answer:
            tell("[session] the last message has no answer; /regen answers it")

    def resume_cache(self) -> None:
        """Read the KV companion of the session, or say why not."""
        if self.options.session is None or not companion(self.options.session).exists():
            return
        try:
            n_tokens = restore_cache(
                self.loaded.chat, companion(self.options.session), self.loaded.fingerprint
            )
        except CompanionIgnoredError as reason:
            self._status.say(f"[session] KV cache ignored: {reason.fact}")
        else:
            self._status.say(f"[session] KV cache of {counted(n_tokens, 'token')} restored")

    def close(self) -> None:
        """Save what is to be saved and say so."""
        session = self.options.session
        if session is not None:
            self.save()
            if self.loaded.chat.sequence.length:
                save_cache(self.loaded.chat, companion(session), self.loaded.fingerprint)
            self._status.say(f"[session] saved {counted(len(self.dialogue.turns), 'message')}")
        self._status.say(f"[conversation] {counted(self.dialogue.n_questions, 'turn')}")

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        branch = self.dialogue.branch
        turns, n_dropped = list(branch.turns), branch.n_dropped
        try:
            yield
        except MinferError:
            branch.turns[:], branch.n_dropped = turns, n_dropped
            self.save()
            raise

    def _answer(self, choice: int, label: str) -> None:
        chat = self.loaded.chat
        sink = self._sink()
        try:
            with stopping(chat.stop):
                self.save()
                answer = chat.answer(self.dialogue, Asking(self.params, choice, self.overflow, sink.take))
                self.dialogue.add(answer.turn)
                self.last_reason = answer.reason
                self.save()
                self._report(answer, label)
        finally:
            if isinstance(sink, AnswerSink):
                sink.finish()

    def _sink(self) -> Sink:
        if self.settings.output == "jsonl":
            return JsonLinesSink()
        chat = self.loaded.chat
        begins_thinking = chat.template.thinking is not None and chat.prompt(self.dialogue).begins_thinking
        return AnswerSink(
            chat.template.thinking,
            begins_thinking=begins_thinking,
            hides_thinking=self.think == "hide",
            color=self._color,
        )

    def _report(self, answer: Answer, label: str) -> None:
        again = ""
        if answer.n_again:
            again = f" ({answer.n_again} of them again: the template rewrote earlier turns)"
        n_read, n_made = counted(answer.n_prefilled, "token"), counted(answer.n_generated, "token")
        self._status.say(
            f"[turn {self.dialogue.n_questions}] {label}prefill {n_read}{again}, "
            f"generated {n_made} in {answer.seconds:.2f}s{self._drafted(answer)}"
        )
        if answer.n_dropped:
            dropped = counted(answer.n_dropped, "message")
            tell(f"<<context full: dropped the oldest {dropped}; the rest was read again>>")
        match answer.reason:
            case StopReason.LENGTH:
                self._status.say(f"Note: stopped after {n_made}; -n allows more")
            case StopReason.CONTEXT:
                self._status.say(f"Note: the context of {self.loaded.chat.n_ctx} tokens is full")
            case StopReason.CANCELLED:
                self._status.say("Note: stopped; what there is of the answer is kept")

    def _drafted(self, answer: Answer) -> str:
        if self.settings.spec is None:
            return ""
        return f", {answer.n_accepted} of {answer.n_drafted} drafted tokens were right"

    def set_think(self, value: str) -> None:
        """Show or hide thinking, or ask the model not to think."""
        from minfer.run.wording import thinking_variables

        self.settings = replace(self.settings, think=value)
        chat = self.loaded.chat
        chat.extra = thinking_variables(chat.template, self.settings, self._status)
