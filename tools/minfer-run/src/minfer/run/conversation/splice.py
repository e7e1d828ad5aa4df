"""The ids of a conversation: the template's rendering, with answers as the ids that were sampled.

Text that a model wrote need not encode to the ids it was made of. Answers therefore stay ids: where the
rendering holds an answer's text, up to white space around it, the sampled ids stand in its place. Where a
template rewrote an answer (dropped its thinking), what it rendered is encoded as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minfer.engine.tokenizer.stream import Utf8Stream
from minfer.run.conversation.dialogue import Turn

if TYPE_CHECKING:
    from minfer.engine.chat import ChatTemplate, Segment
    from minfer.engine.tokenizer import Tokenizer
    from minfer.run.conversation.dialogue import Dialogue


@dataclass(frozen=True, slots=True)
class ConversationPrompt:
    """What the model is to continue. begins_thinking: the answer begins inside a block of reasoning."""

    ids: tuple[int, ...]
    begins_thinking: bool


def conversation_prompt(
    dialogue: Dialogue, template: ChatTemplate, tokenizer: Tokenizer, extra: Mapping[str, Any] | None
) -> ConversationPrompt:
    """The whole conversation, ready for the next answer. Raises TemplateError, MessageError."""
    segments = template.render(dialogue.messages(), extra=extra)
    ids = splice(segments, dialogue.system, dialogue.shown, tokenizer)
    return ConversationPrompt(tuple(ids), template.begins_thinking(segments))


def splice(
    segments: Sequence[Segment], system: str | None, turns: Sequence[Turn], tokenizer: Tokenizer
) -> list[int]:
    """The ids of the segments, one BOS where the model wants one."""
    waiting = _Waiting([*([] if system is None else [system]), *(turn.text for turn in turns)])
    first = waiting.n - len(turns)
    ids: list[int] = []
    pieces: list[tuple[str, bool]] = []
    for segment in segments:
        index = -1 if segment.is_template else waiting.find(segment.text) - first
        turn = turns[index] if index >= 0 else None
        if turn is None or not turn.ids:
            pieces.append((segment.text, segment.is_template))
            continue
        ids += tokenizer.encode_pieces(pieces, add_special=False, continues=bool(ids))
        ids += turn.ids
        pieces = [(turn.tail, False)] if turn.tail else []
    ids += tokenizer.encode_pieces(pieces, add_special=False, continues=bool(ids))
    if tokenizer.adds_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    return ids


def spelled(ids: Sequence[int], text: str, tokenizer: Tokenizer) -> tuple[tuple[int, ...], str]:
    """The first of the ids that spell `text` as far as they go within it, and the text they leave over."""
    stream = Utf8Stream()
    n_read = n_ids = n_chars = 0
    for index, id_ in enumerate(ids):
        piece = stream.push(tokenizer.piece(id_))
        if not text.startswith(piece, n_read):
            break
        n_read += len(piece)
        if not stream.pending:
            n_ids, n_chars = index + 1, n_read
    return tuple(ids[:n_ids]), text[n_chars:]


class _Waiting:
    """Texts in the order of the conversation, each to be found once in the rendering."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._next = 0
        self.n = len(texts)

    def find(self, rendered: str) -> int:
        """The index of the next text that this is, -1 if none: a template may leave out and move some."""
        bare = rendered.strip()
        for index in range(self._next, self.n):
            text = self._texts[index]
            if text == rendered or (bare and text.strip() == bare):
                self._next = index + 1
                return index
        return -1
