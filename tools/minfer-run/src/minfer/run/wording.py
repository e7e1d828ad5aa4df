"""From what the user wrote to the ids that the model reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.chat import ChatTemplate, Message
    from minfer.engine.model import OpenedModel
    from minfer.run.settings import RunSettings
    from minfer.run.status import Status


class SystemWithoutTemplateError(UsageError):
    """A system message needs a chat template to be put into."""

    code = "system-without-template"


def find_template(opened: OpenedModel, settings: RunSettings) -> ChatTemplate | None:
    """The chat template of this run: the one asked for, else the model's; None with --no-template."""
    if not settings.use_template:
        return None
    if settings.chat_template is not None:
        from minfer.engine.chat import ChatTemplate

        return ChatTemplate.named(settings.chat_template, opened.tokenizer)
    return opened.chat_template


def encode_prompt(opened: OpenedModel, settings: RunSettings, prompt: str, status: Status) -> list[int]:
    """The prompt's ids: through the chat template, or as raw text when there is none or none is wanted."""
    template = find_template(opened, settings)
    if template is None:
        if settings.use_template:
            status.say("Note: the model has no chat template; completing the raw text")
        if settings.system is not None:
            raise SystemWithoutTemplateError(
                "--system needs a chat template, and there is none",
                hint="put the instruction into the prompt, or name a template with --chat-template",
            )
        return opened.tokenizer.encode(prompt, add_special=True, parse_special=False)
    messages: list[Message] = [{"role": "user", "content": prompt}]
    if settings.system is not None:
        messages.insert(0, {"role": "system", "content": settings.system})
    return template.encode(messages, opened.tokenizer, extra=thinking_variables(template, settings, status))


def thinking_variables(
    template: ChatTemplate, settings: RunSettings, status: Status
) -> dict[str, bool] | None:
    """The template's own switch, when thinking shall be off."""
    if settings.think != "off" or template.thinking is None:
        return None
    if template.thinking.switch is None:
        status.say("Note: this model's template has no switch for thinking")
        return None
    return {template.thinking.switch: False}
