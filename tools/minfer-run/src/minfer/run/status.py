"""Status lines on stderr: what was loaded, what it took, why it ended. `-q` silences them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from minfer.core.units import counted, human_bytes
from minfer.engine.events import Prefilled, Stopped, StopReason

if TYPE_CHECKING:
    from minfer.engine.model import Model
    from minfer.gguf import GGUFFile


class Status:
    """Writes lines to stderr unless quiet."""

    def __init__(self, *, quiet: bool) -> None:
        """quiet: say nothing."""
        self.is_quiet = quiet

    def say(self, line: str) -> None:
        """One line."""
        if not self.is_quiet:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def loaded(self, model: Model, n_ctx: int) -> None:
        """What the file holds and how it will run."""
        file = model.file
        parts = f" in {len(file.parts)} parts" if len(file.parts) > 1 else ""
        self.say(
            f"Model: {file.path.name}, {human_bytes(file.n_bytes)}{parts}, "
            f"{counted(len(file.metadata), 'key')}, {counted(len(file.tensors), 'tensor')}"
        )
        self.say(
            f"Engine: {model.backend_name}, {counted(model.n_threads, 'thread')} ({model.threads_reason}); "
            f"vocabulary {model.tokenizer.n_vocab}, context {n_ctx}"
        )
        for notice in model.notices:
            self.say(f"Note: {notice}")

    def metadata(self, file: GGUFFile) -> None:
        """Every key of the file, arrays shortened, then every tensor's name, shape and type."""
        for key, value in file.metadata.items():
            self.say(f"{key} = {_shortened(value)}")
        for tensor in file.tensors.values():
            self.say(f"{tensor.name} {'x'.join(map(str, tensor.shape))} {tensor.quant.name}")

    def prefilled(self, event: Prefilled) -> None:
        """How fast the prompt went in."""
        n_new = event.n_prompt - event.n_reused
        self.say(f"Prefill: {counted(n_new, 'token')}, {event.seconds:.3f} s, {_rate(n_new, event.seconds)}")

    def stopped(self, event: Stopped, n_ctx: int) -> None:
        """How fast the answer was, and a note when it was cut."""
        # The first token came out of the prefill's logits: decoding made the others.
        n_decoded = max(event.n_generated - 1, 0)
        seconds = max(event.seconds, 0.0) if n_decoded else 0.0
        made = counted(event.n_generated, "token")
        self.say(f"Generated: {made}, {seconds:.3f} s, {_rate(n_decoded, seconds)}")
        match event.reason:
            case StopReason.LENGTH:
                self.say(f"Note: stopped after {made}; -n allows more")
            case StopReason.CONTEXT:
                self.say(f"Note: the context of {n_ctx} tokens is full; --n-ctx gives more room")

    def speculated(self, event: Stopped) -> None:
        """What guessing ahead brought."""
        if not event.n_drafted:
            self.say("Speculation: nothing was drafted")
            return
        share = 100 * event.n_accepted / event.n_drafted
        drafted = counted(event.n_drafted, "token")
        self.say(f"Speculation: {drafted} drafted, {event.n_accepted} right ({share:.0f} %)")


def _rate(n_tokens: int, seconds: float) -> str:
    return f"{n_tokens / seconds:.1f} tok/s" if seconds > 0 and n_tokens else "- tok/s"


def _shortened(value: object) -> str:
    """A value on one line of bounded length."""
    if isinstance(value, str):
        text = repr(value)
    elif isinstance(value, Sequence):
        shown = ", ".join(repr(one) for one in islice(value, 6))
        text = f"[{shown}{', …' if len(value) > 6 else ''}] ({len(value)})"
    else:
        text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
