"""`/why`: the candidates of the last token, before and after each sampler stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from minfer.core.errors import UsageError
from minfer.engine.generation import Generation, Request
from minfer.engine.sampling import Candidates, SamplerChain

if TYPE_CHECKING:
    from minfer.engine.sampling import Draw
    from minfer.engine.tokenizer import Tokenizer
    from minfer.run.conversation.chat import Chat

_SHOWN = 6


class NothingDrawnError(UsageError):
    """There is no last token to explain."""

    code = "nothing-drawn"


class _Explaining(SamplerChain):
    """Draws as its base does, and keeps what each stage left."""

    draw: Draw | None = None

    def sample(
        self,
        candidates: Candidates,
        history: Sequence[int],
        position: int,
        choice: int = 0,
        *,
        explain: bool = True,
    ) -> Draw:
        """Draw, and remember the draw with its stages."""
        self.draw = super().sample(candidates, history, position, choice, explain=True)
        return self.draw


def explain_last(chat: Chat) -> str:
    """The table for the last token drawn; computes one step. Raises NothingDrawnError."""
    last = chat.last_draw
    if last is None:
        raise NothingDrawnError("no token was drawn yet", hint="ask something first")
    tokenizer = chat.model.tokenizer
    params = replace(last.params, n_predict=1)
    chain = _Explaining(params, tokenizer)

    def prepare(generation: Generation) -> None:
        generation.chain = chain

    chat.run_alone(Request(last.ids[:-1], params, last.choice), prepare)
    if chain.draw is None:
        raise NothingDrawnError("the last token could not be drawn again")
    return _table(chain.draw, len(last.ids) - 1, tokenizer)


def _table(draw: Draw, position: int, tokenizer: Tokenizer) -> str:
    lines = [f"token {_spelled(draw.id, tokenizer)} at position {position}"]
    for stage in draw.stages:
        best = zip(stage.ids[:_SHOWN], stage.probabilities, strict=False)
        shown = "  ".join(f"{_spelled(id_, tokenizer)} {100 * value:.1f}%" for id_, value in best)
        more = f"  and {len(stage.ids) - _SHOWN} more" if len(stage.ids) > _SHOWN else ""
        lines.append(f"  {stage.name:<12} {shown}{more}")
    lines.append(f"  {'drawn':<12} {_spelled(draw.id, tokenizer)} {100 * draw.probability:.1f}%")
    return "\n".join(lines)


def _spelled(id_: int, tokenizer: Tokenizer) -> str:
    text = (
        tokenizer.token_text(id_)
        if tokenizer.is_control(id_)
        else tokenizer.piece(id_).decode("utf-8", "replace")
    )
    return repr(text)
