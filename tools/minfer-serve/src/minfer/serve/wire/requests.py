"""The request bodies of every route."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from minfer.serve.wire.body import Body, GenerationBody

MOST_ALTERNATIVES: Final = 20
MOST_PROMPTS: Final = 256
MOST_MESSAGES: Final = 4096

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenIds = Annotated[list[TokenId], Field(min_length=1)]


class TextPart(BaseModel):
    """A part of a message's content; only text is understood."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["text", "input_text", "output_text"]
    text: str


class ChatMessage(BaseModel):
    """One message. Further keys (name, tool_calls, reasoning_content, …) reach the model's template."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[TextPart] | None = None

    def plain(self) -> dict[str, Any]:
        """What the chat template reads."""
        message: dict[str, Any] = {**(self.model_extra or {}), "role": self.role}
        if isinstance(self.content, list):
            message["content"] = [{"type": "text", "text": part.text} for part in self.content]
        else:
            message["content"] = self.content
        return message


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    logprobs: bool | None = Field(None, description="tell each token's log probability")
    top_logprobs: int | None = Field(
        None, ge=0, le=MOST_ALTERNATIVES, description="likely tokens at each place; needs logprobs"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="further variables of the model's chat template, such as enable_thinking"
    )


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MOST_PROMPTS)]
    ) = Field(description="text, token ids, or a list of either")
    logprobs: int | None = Field(
        None, ge=0, le=MOST_ALTERNATIVES, description="likely tokens at each place, the drawn one besides"
    )
    echo: bool | None = Field(None, description="put the prompt before the answer")
    best_of: int | None = Field(None, ge=1, description="not supported beyond n")


class EmbeddingsBody(Body):
    """POST /v1/embeddings."""

    input: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MOST_PROMPTS)]
    ) = Field(description="text, token ids, or a list of either")
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1, description="only the model's own width is supported")


class TokenizeBody(Body):
    """POST /tokenize."""

    content: str
    add_special: bool | None = Field(None, description="put BOS in front where the model wants it")
    parse_special: bool | None = Field(None, description="read control tokens out of the text")
    with_pieces: bool | None = Field(None, description="tell each token's text, or its bytes")


class DetokenizeBody(Body):
    """POST /detokenize."""

    tokens: list[TokenId]


class ApplyTemplateBody(Body):
    """POST /apply-template."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
