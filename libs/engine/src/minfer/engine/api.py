"""The small public API: open a model, generate text or events, chat, count tokens.

    import minfer.engine

    with minfer.engine.load("model.gguf") as model:
        print(model.chat([{"role": "user", "content": "What is the capital of France?"}], temp=0))
        for text in model.stream("Once upon a time", n_predict=50):
            print(text, end="", flush=True)

It runs one request at a time; GenerationLoop runs many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from minfer.core.errors import TemplateError
from minfer.engine.events import Event
from minfer.engine.generate import GenerationLoop, generate, texts
from minfer.engine.generation import Request
from minfer.engine.model import LoadOptions, open_model
from minfer.engine.params import GenerationParams, with_seed

if TYPE_CHECKING:
    from minfer.engine.chat import Message
    from minfer.engine.model import Model

Prompt = str | Sequence[int]
"""Raw text, or token ids."""


class NoTemplateError(TemplateError):
    """Chat was asked of a model that has no chat template."""

    code = "no-chat-template"


class LanguageModel:
    """A loaded model. Settings are the fields of GenerationParams, given by name: `temp=0, n_predict=50`."""

    def __init__(self, model: Model, n_ctx: int) -> None:
        """Made by `load`; n_ctx bounds prompt and answer together."""
        self._model = model
        self.n_ctx = n_ctx
        self._loop = GenerationLoop(model, model.new_cache(n_ctx), n_ctx)

    def events(self, prompt: Prompt, **settings: Any) -> Iterator[Event]:
        """Prefilled, then a Token for each one drawn, then Stopped. Text is completed as it stands.

        Raises ParameterError for a setting that cannot be, ContextOverflowError when nothing fits after
        the prompt. Abandoning the iterator ends the generation.
        """
        params = with_seed(GenerationParams(n_ctx=self.n_ctx).updated(settings))
        ids = self._encode(prompt) if isinstance(prompt, str) else list(prompt)
        return self._events(Request(tuple(ids), params))

    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[str]:
        """The answer's text in pieces, as it is made."""
        return texts(self.events(prompt, **settings))

    def generate(self, prompt: Prompt, **settings: Any) -> str:
        """The whole answer."""
        return "".join(self.stream(prompt, **settings))

    def chat_stream(self, messages: Sequence[Message], **settings: Any) -> Iterator[str]:
        """The assistant's next message in pieces. Messages are {"role": …, "content": …}.

        Raises TemplateError when the model has no chat template or it refuses the messages.
        """
        return self.stream(self.encode_chat(messages), **settings)

    def chat(self, messages: Sequence[Message], **settings: Any) -> str:
        """The assistant's whole next message."""
        return "".join(self.chat_stream(messages, **settings))

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """The ids of a conversation, ready for the assistant to answer."""
        template = self._model.chat_template
        if template is None:
            raise NoTemplateError(
                "this model has no chat template", hint="complete raw text with generate() instead"
            )
        return template.encode(messages, self._model.tokenizer)

    def count_tokens(self, text: str) -> int:
        """How many tokens the text is as a prompt, special ones included."""
        return len(self._encode(text))

    def close(self) -> None:
        """Give the memory back."""
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _encode(self, text: str) -> list[int]:
        return self._model.tokenizer.encode(text, add_special=True, parse_special=False)

    def _events(self, request: Request) -> Iterator[Event]:
        yield from generate(self._loop, request)


def load(path: str | PathLike[str], *, n_ctx: int = 4096, n_threads: int | None = None) -> LanguageModel:
    """Open and load a GGUF file (any part of a split set) with a context of n_ctx tokens.

    n_ctx is cut to the model's own length. n_threads: None takes what the process may use. Raises
    ModelFileError when the file cannot be used, NotEnoughMemoryError when it would not fit.
    """
    opened = open_model(path, LoadOptions(n_threads=n_threads))
    n_ctx = min(n_ctx, opened.n_ctx_train)
    opened.plan(n_ctx).check()
    return LanguageModel(opened.load(), n_ctx)
