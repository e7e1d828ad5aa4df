"""Answers on stdout, in the form that was asked for. Nothing else of minfer-run writes there."""

from __future__ import annotations

import sys
from typing import Protocol

from minfer.engine.events import Embedded, Event, Failed, Prefilled, PromptToken, Stopped, Token


class Sink(Protocol):
    """Takes the events of one generation as they come."""

    def take(self, event: Event) -> None:
        """Write what the event has to show, and flush."""


class TextSink:
    """The answer's text, as it is made; one final newline when it has none."""

    def __init__(self) -> None:
        """Write to stdout as UTF-8, whatever the locale says."""
        self._out = sys.stdout.buffer
        self._last = "\n"

    def take(self, event: Event) -> None:
        """Write the event's text at once."""
        match event:
            case Token(text=text) | Stopped(text=text):
                if text:
                    self._out.write(text.encode())
                    self._last = text[-1]
        if isinstance(event, Stopped) and self._last != "\n":
            self._out.write(b"\n")
        self._out.flush()


class JsonLinesSink:
    """One JSON object an event: {"type": "prefilled" | "token" | "stopped", …}."""

    def take(self, event: Event) -> None:
        """Write the event as one line."""
        import json

        sys.stdout.buffer.write(json.dumps(_as_json(event), ensure_ascii=False).encode() + b"\n")
        sys.stdout.buffer.flush()


def _as_json(event: Event) -> dict[str, object]:
    match event:
        case Prefilled():
            return {
                "type": "prefilled",
                "n_prompt": event.n_prompt,
                "n_reused": event.n_reused,
                "ms": round(event.seconds * 1000, 3),
            }
        case PromptToken():
            return {"type": "prompt_token", "id": event.id, "logprob": event.logprob}
        case Embedded():
            return {"type": "embedded", "vector": list(event.vector)}
        case Failed():
            return {"type": "failed", "message": event.error.fact}
        case Token():
            line: dict[str, object] = {
                "type": "token",
                "id": event.id,
                "text": event.text,
                "logprob": round(event.logprob, 6),
            }
            if event.alternatives:
                line["top"] = [{"id": one, "logprob": round(value, 6)} for one, value in event.alternatives]
            return line
        case Stopped():
            return {
                "type": "stopped",
                "reason": str(event.reason),
                "text": event.text,
                "stop_string": event.stop_string or None,
                "n_generated": event.n_generated,
                "ms": round(event.seconds * 1000, 3),
            }


SINKS: dict[str, type[TextSink] | type[JsonLinesSink]] = {"text": TextSink, "jsonl": JsonLinesSink}
"""The values of --output."""
