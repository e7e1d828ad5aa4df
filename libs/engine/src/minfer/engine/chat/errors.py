"""Ways in which a chat template fails."""

from __future__ import annotations

from minfer.core.errors import TemplateError, UsageError


class TemplateSyntaxError(TemplateError):
    """The template cannot be compiled."""

    code = "template-syntax"


class TemplateRefusedError(TemplateError):
    """The template raised one of its own rules; `rule` is what it said."""

    code = "template-refused"

    def __init__(self, fact: str, rule: str, *, hint: str = "") -> None:
        super().__init__(fact, hint=hint)
        self.rule = rule


class TemplateFailedError(TemplateError):
    """The template ran into an error that is not one of its rules."""

    code = "template-failed"


class TemplateLimitError(TemplateError):
    """The template takes more work or memory than is allowed."""

    code = "template-limit"


class MessageError(UsageError):
    """A message is not of the shape that chat templates take."""

    code = "bad-message"


class UnknownTemplateError(UsageError):
    """No built-in template has that name and no file is there."""

    code = "unknown-template"
