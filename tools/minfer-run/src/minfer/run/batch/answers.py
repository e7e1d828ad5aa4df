"""Rows answered side by side; their lines come out in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from minfer.core.errors import MinferError
from minfer.engine.events import Failed, Prefilled, Stopped, Token

if TYPE_CHECKING:
    from minfer.engine.events import Event
    from minfer.engine.generate import GenerationLoop
    from minfer.engine.generation import Generation, Request
    from minfer.run.batch.rows import Row

N_TOGETHER: Final = 8
"""Prompts that are answered side by side."""


class _Answer:
    """What has come of one row."""

    def __init__(self, row: Row) -> None:
        self._line: dict[str, Any] = {"index": row.index, "id": row.id, "key": row.key, "text": ""}
        self._parts: list[str] = []
        self.is_done = False

    def take(self, event: Event) -> None:
        match event:
            case Prefilled(n_prompt=n_prompt):
                self._line["n_prompt"] = n_prompt
            case Token(text=text):
                self._parts.append(text)
            case Stopped():
                self._parts.append(event.text)
                self._line |= {"reason": str(event.reason), "n_generated": event.n_generated}
                self.is_done = True
            case Failed(error=error):
                self.fail(error)

    def fail(self, error: MinferError) -> None:
        self._line |= {"reason": "failed", "error": error.code, "message": error.fact}
        self.is_done = True

    def line(self) -> bytes:
        self._line["text"] = "".join(self._parts)
        return json.dumps(self._line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


class Batch:
    """Answers rows side by side and gives their lines in order."""

    def __init__(self, loop: GenerationLoop) -> None:
        self._loop = loop
        self._answers: dict[int, _Answer] = {}  # by index; begun and not yet written
        self._running: dict[int, tuple[Generation, int]] = {}  # id(generation) → it, its row's index

    def lines(self, requests: Iterator[tuple[Row, Request | MinferError]]) -> Iterator[bytes]:
        """A line for each row, in order, as soon as it and all before it are done."""
        upcoming = next(requests, None)
        next_index = upcoming[0].index if upcoming else 0
        while upcoming is not None or self._answers:
            # Done answers wait for slower ones before them: so many and no more.
            while (
                upcoming is not None
                and len(self._running) < N_TOGETHER
                and len(self._answers) < 8 * N_TOGETHER
            ):
                self._begin(*upcoming)
                upcoming = next(requests, None)
            for generation, event in self._loop.step():
                index = self._running[id(generation)][1]
                self._answers[index].take(event)
                if self._answers[index].is_done:
                    del self._running[id(generation)]
            while next_index in self._answers and self._answers[next_index].is_done:
                yield self._answers.pop(next_index).line()
                next_index += 1

    def _begin(self, row: Row, request: Request | MinferError) -> None:
        answer = self._answers[row.index] = _Answer(row)
        if isinstance(request, MinferError):
            answer.fail(request)
            return
        try:
            generation = self._loop.add(request)
        except MinferError as error:  # its prompt is too long, which concerns no other row
            answer.fail(error)
            return
        self._running[id(generation)] = (generation, row.index)
