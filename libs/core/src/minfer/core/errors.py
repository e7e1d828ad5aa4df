"""The one error tree of minfer.

Every mistake that a user, a file or a network can make is an instance of MinferError:

    MinferError
    ├── UsageError                 2   a flag or request that cannot be meant
    ├── ModelNotFoundError         3   nothing here has that name
    │   ├── AmbiguousModelError    3   several models have it
    │   └── OfflineError           3   it would have to be downloaded
    ├── ModelFileError             4   the file cannot be used (minfer.gguf and the loader refine it)
    ├── TemplateError              5   template or tokenizer refuses
    ├── ContextOverflowError       6   the prompt does not fit
    ├── TransferError              7   network, registry, authorization, checksum, disk space
    ├── CheckFailedError           8   a check that was asked for failed
    └── NotEnoughMemoryError       9   the plan does not fit the machine

A leaf gives its own `code` (kebab-case, stable, for programs); exit and HTTP status are inherited.
Raise where the fact is known, render once at the edge of a tool, catch nowhere else.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import ClassVar

_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class MinferError(Exception):
    """A failure with a fact and, where there is one, the next step.

    Subclasses set `code` (kebab-case, unique), `exit_status` and `http_status`.
    """

    code: ClassVar[str] = "failure"
    exit_status: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(
        self, fact: str, *, hint: str = "", candidates: tuple[str, ...] = (), labels: tuple[str, ...] = ()
    ) -> None:
        """`fact`: what is wrong, with its value; `hint`: the next step; `candidates`: each can be pasted;
        `labels`: what to show beside each candidate (its size).
        """
        super().__init__(fact)
        self.fact = fact
        self.hint = hint
        self.candidates = candidates
        self.labels = labels

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not _CODE.fullmatch(cls.code):
            raise TypeError(f"{cls.__name__}.code {cls.code!r} is not kebab-case")

    def render(self) -> str:
        """The text for a terminal: fact, candidates one a line, hint. No final newline."""
        lines = [f"Error: {self.fact}"]
        width = max(map(len, self.candidates), default=0)
        for candidate, label in zip_longest(
            self.candidates, self.labels[: len(self.candidates)], fillvalue=""
        ):
            lines.append(f"  {candidate:<{width}}  {label}".rstrip())
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)


class UsageError(MinferError):
    """A flag, argument or request field that cannot be meant."""

    code, exit_status, http_status = "usage", 2, 400


class ModelNotFoundError(MinferError):
    """No model has that name."""

    code, exit_status, http_status = "model-not-found", 3, 404


class AmbiguousModelError(ModelNotFoundError):
    """Several models have that name; `candidates` lists them."""

    code, http_status = "ambiguous-model", 409


class OfflineError(ModelNotFoundError):
    """The model is not here and downloads are switched off."""

    code = "offline"


class ModelFileError(MinferError):
    """The file is there and cannot be used."""

    code, exit_status, http_status = "model-file", 4, 422


class TemplateError(MinferError):
    """The chat template or the tokenizer refuses the messages."""

    code, exit_status, http_status = "template", 5, 400


class ContextOverflowError(MinferError):
    """The prompt leaves no room for one token."""

    code, exit_status, http_status = "context-overflow", 6, 400


class TransferError(MinferError):
    """Network, registry, authorization, checksum of a download, or disk space."""

    code, exit_status, http_status = "transfer", 7, 502


class CheckFailedError(MinferError):
    """A check that was asked for failed."""

    code, exit_status, http_status = "check-failed", 8, 500


class NotEnoughMemoryError(MinferError):
    """The memory plan does not fit what the machine has."""

    code, exit_status, http_status = "not-enough-memory", 9, 507
