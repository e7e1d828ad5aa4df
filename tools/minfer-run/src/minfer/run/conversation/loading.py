"""From a model's reference to a chat that can answer."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minfer.core.errors import TemplateError
from minfer.engine.model import LoadOptions
from minfer.engine.params import check_biases
from minfer.run.conversation.chat import Chat
from minfer.run.conversation.dialogue import Dialogue, Turn
from minfer.run.conversation.session import fingerprint
from minfer.run.conversation.splice import conversation_prompt
from minfer.run.drafting import drafting
from minfer.run.oneshot import settle_n_ctx
from minfer.run.opening import find_model, open_path
from minfer.run.wording import find_template, thinking_variables
from minfer.store import hold

if TYPE_CHECKING:
    from minfer.engine.chat import ChatTemplate
    from minfer.engine.model import OpenedModel
    from minfer.run.settings import RunSettings
    from minfer.run.status import Status


class ConversationTemplateError(TemplateError):
    """A conversation needs a chat template, and there is none."""

    code = "conversation-without-template"


@dataclass(slots=True)
class LoadedChat:
    """A chat, what tells its model from others, and what closes it."""

    chat: Chat
    fingerprint: str
    reference: str
    resources: ExitStack

    def close(self) -> None:
        """Give the model's memory back."""
        self.resources.close()


def load_chat(settings: RunSettings, dialogue: Dialogue, first: str | None, status: Status) -> LoadedChat:
    """Resolve, open, plan and load. `first`: the first message, when it is known, which the context has to
    hold. Raises MinferError.
    """
    with ExitStack() as stack:
        resolved = find_model(settings.reference, status)
        held = hold(resolved)
        if held is not None:
            stack.enter_context(held)
        options = LoadOptions(n_threads=settings.n_threads, kv_type=settings.kv_type)
        opened = stack.enter_context(open_path(resolved.path, options, after=shlex.join(settings.words)))
        template = require_template(opened, settings)
        check_biases(settings.params, opened.tokenizer.n_vocab)
        if settings.show_meta:
            status.metadata(opened.file)
        if settings.dump_graph is not None:
            opened.dump_graph(settings.dump_graph)
            status.say(f"Graph: {settings.dump_graph}")
        extra = thinking_variables(template, settings, status)
        n_prompt = 1
        if first is not None and not dialogue.turns:
            trial = Dialogue(dialogue.system)
            trial.add(Turn("user", first))
            n_prompt = len(conversation_prompt(trial, template, opened.tokenizer, extra).ids)
        n_ctx = settle_n_ctx(settings.params, n_prompt, opened.n_ctx_train)
        opened.plan(n_ctx).check()
        model = stack.enter_context(opened.load())
        status.loaded(model, n_ctx)
        new_drafter = stack.enter_context(drafting(settings, model, n_ctx, status))
        chat = Chat(model, template, n_ctx, extra, new_drafter)
        return LoadedChat(chat, fingerprint(opened.file), settings.reference, stack.pop_all())
    raise AssertionError  # an ExitStack may swallow exceptions in general; this one does not


def require_template(opened: OpenedModel, settings: RunSettings) -> ChatTemplate:
    """The template of the conversation. Raises ConversationTemplateError."""
    template = find_template(opened, settings)
    if template is None:
        raise ConversationTemplateError(
            "the model has no chat template, and a conversation needs one",
            hint="name one with --chat-template NAME|FILE, or complete raw text without --cnv",
        )
    return template
