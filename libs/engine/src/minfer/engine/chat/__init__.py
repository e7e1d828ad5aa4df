"""Messages to prompts: chat templates in one sandbox, the caller's text kept apart from the template's."""

from minfer.engine.chat.builtin import BUILTIN
from minfer.engine.chat.messages import Message, fold_system
from minfer.engine.chat.segments import Segment, encode_segments, text_of
from minfer.engine.chat.template import ChatTemplate, Thinking

__all__ = [
    "BUILTIN",
    "ChatTemplate",
    "Message",
    "Segment",
    "Thinking",
    "encode_segments",
    "fold_system",
    "text_of",
]
