"""What one answer has come to so far: text, tokens and numbers, taken from the engine's events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minfer.engine.events import Prefilled, PromptToken, Stopped, StopReason, Token
from minfer.engine.tokenizer.stream import Utf8Stream
from minfer.serve.scheduling.jobs import Broken, Item, Started

if TYPE_CHECKING:
    from minfer.core.errors import MinferError
    from minfer.engine.tokenizer import Tokenizer

FINISH_REASONS = {
    StopReason.END_OF_GENERATION: "stop",
    StopReason.STOP_STRING: "stop",
    StopReason.LENGTH: "length",
    StopReason.CONTEXT: "length",
    StopReason.CANCELLED: "length",  # by a deadline: a client that went away reads nothing
}


@dataclass(frozen=True, slots=True)
class Scored:
    """A token with its log probability; None for the first token of a prompt."""

    id: int
    logprob: float | None
    alternatives: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class Delta:
    """What events added to an answer; `finish` is the reason when it ended with them."""

    text: str = ""
    tokens: list[Scored] = field(default_factory=list)
    finish: str | None = None

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens or self.finish)


class Transcript:
    """One choice. Times are perf_counter seconds; `gaps` are those between its tokens."""

    def __init__(self, tokenizer: Tokenizer, submitted: float, *, keeps_tokens: bool) -> None:
        """keeps_tokens: whether tokens are wanted besides the text."""
        self._tokenizer = tokenizer
        self._keeps_tokens = keeps_tokens
        self._utf8 = Utf8Stream()
        self._n_decoded = 0  # characters that the tokens so far completed
        self._n_shown = 0  # characters of the answer
        self._held: list[tuple[int, Scored]] = []  # the character a token begins in, and the token
        self.submitted = submitted
        self.started = self.first_token = self.last_token = self.ended = 0.0
        self.gaps: list[float] = []
        self.prefilled: Prefilled | None = None
        self.stopped: Stopped | None = None
        self.error: MinferError | None = None
        self.prompt_tokens: list[Scored] = []
        self.text: list[str] = []
        self.tokens: list[Scored] = []

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.stopped is not None or self.error is not None

    @property
    def n_generated(self) -> int:
        """Tokens drawn."""
        return self.stopped.n_generated if self.stopped else 0

    def take(self, item: Item) -> Delta:
        """Add what happened; returns what a reader may be shown."""
        match item.event:
            case Token() as token:
                return self._take_token(token, item.at)
            case Prefilled() as prefilled:
                self.prefilled = prefilled
            case PromptToken(id_, logprob, alternatives):
                self.prompt_tokens.append(Scored(id_, logprob, alternatives))
            case Started():
                self.started = item.at
            case Broken(error):
                self.error, self.ended = error, item.at
            case Stopped() as stopped:
                self.stopped, self.ended = stopped, item.at
                return self._shown(stopped.text, is_last=True)
        return Delta()

    def _take_token(self, token: Token, at: float) -> Delta:
        if self.last_token:
            self.gaps.append(at - self.last_token)
        else:
            self.first_token = at
        self.last_token = at
        if self._keeps_tokens:
            begins = self._n_decoded
            self._n_decoded += len(self._utf8.push(self._tokenizer.piece(token.id)))
            self._held.append((begins, Scored(token.id, token.logprob, token.alternatives)))
        return self._shown(token.text)

    def _shown(self, text: str, *, is_last: bool = False) -> Delta:
        """Release the tokens of which at least a part is shown: none of a stop string's own."""
        self._n_shown += len(text)
        stopped = self.stopped
        shows_all = is_last and stopped is not None and stopped.reason is not StopReason.STOP_STRING
        tokens = []
        while self._held and (shows_all or self._held[0][0] < self._n_shown):
            tokens.append(self._held.pop(0)[1])
        self.text.append(text)
        self.tokens += tokens
        finish = FINISH_REASONS[stopped.reason] if is_last and stopped is not None else None
        return Delta(text, tokens, finish)
