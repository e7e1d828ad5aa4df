"""What was said: turns, branches, and which of the oldest turns no longer fit the context. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.chat import Message

MAIN = "main"
"""The branch that every conversation begins with."""


class NothingToChangeError(UsageError):
    """A command speaks of a turn that is not there."""

    code = "no-such-turn"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message.

    ids: the ids that were sampled, of an answer made here; they spell the text but for its `tail`, which
    is there when a stop string cut a token. None: the text is all that is known. choice: which of the
    possible answers it is; /regen takes the next.
    """

    role: Literal["user", "assistant"]
    text: str
    ids: tuple[int, ...] | None = None
    tail: str = ""
    choice: int = 0


@dataclass(slots=True)
class Branch:
    """The turns of one way through the conversation; the first n_dropped are no longer shown to the model."""

    turns: list[Turn] = field(default_factory=list)
    n_dropped: int = 0


class Dialogue:
    """A conversation: a system message, and branches of which one is current."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.branches: dict[str, Branch] = {MAIN: Branch()}
        self.current = MAIN

    @property
    def branch(self) -> Branch:
        """The current branch."""
        return self.branches[self.current]

    @property
    def turns(self) -> Sequence[Turn]:
        """All turns of the current branch, dropped ones included."""
        return self.branch.turns

    @property
    def shown(self) -> Sequence[Turn]:
        """The turns that the model sees."""
        return self.branch.turns[self.branch.n_dropped :]

    @property
    def n_questions(self) -> int:
        """User turns so far: the number of the latest exchange."""
        return sum(turn.role == "user" for turn in self.turns)

    @property
    def waits_for_answer(self) -> bool:
        """Whether the last turn is the user's."""
        return bool(self.turns) and self.turns[-1].role == "user"

    def messages(self) -> list[Message]:
        """What the template is given."""
        system: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *({"role": turn.role, "content": turn.text} for turn in self.shown)]

    def add(self, turn: Turn) -> None:
        """Append a turn."""
        self.branch.turns.append(turn)

    def clear(self) -> None:
        """Forget the turns of the current branch; the system message stays."""
        self.branches[self.current] = Branch()

    def drop_oldest(self) -> int:
        """Hide the oldest exchange from the model; how many turns it had. 0 when only one is left."""
        starts = [index for index, turn in enumerate(self.shown) if turn.role == "user"]
        later = [start for start in starts if start > 0]
        if not later:
            return 0
        self.branch.n_dropped += later[0]
        return later[0]

    def take_answer(self) -> Turn | None:
        """Remove and return the last answer; None when the last question has none yet.

        Raises NothingToChangeError when nothing was asked.
        """
        if not self.turns:
            raise NothingToChangeError("there is no answer to make again", hint="ask something first")
        return None if self.waits_for_answer else self._cut(len(self.turns) - 1)[0]

    def undo(self) -> Sequence[Turn]:
        """Remove the last question with its answer. Raises NothingToChangeError."""
        starts = [index for index, turn in enumerate(self.turns) if turn.role == "user"]
        if not starts:
            raise NothingToChangeError("there is nothing to undo", hint="ask something first")
        return self._cut(starts[-1])

    def question(self, number: int) -> str:
        """The text of the question of that number, counted from 1. Raises NothingToChangeError."""
        return self.turns[self._start(number)].text

    def rewind(self, number: int) -> None:
        """Forget the question of that number and all after it. Raises NothingToChangeError."""
        self._cut(self._start(number))

    def switch(self, name: str) -> bool:
        """Go to the branch of that name; True when it was made, as a copy of the current one."""
        is_new = name not in self.branches
        if is_new:
            self.branches[name] = Branch(list(self.turns), self.branch.n_dropped)
        self.current = name
        return is_new

    def forget_ids(self) -> None:
        """Keep the texts alone: the ids belong to another model."""
        for branch in self.branches.values():
            branch.turns[:] = [Turn(turn.role, turn.text, choice=turn.choice) for turn in branch.turns]

    def _start(self, number: int) -> int:
        starts = [index for index, turn in enumerate(self.turns) if turn.role == "user"]
        if not 1 <= number <= len(starts):
            raise NothingToChangeError(
                f"there is no question {number}",
                hint=f"questions are numbered from 1 to {len(starts)}" if starts else "ask something first",
            )
        return starts[number - 1]

    def _cut(self, start: int) -> list[Turn]:
        branch = self.branch
        removed = branch.turns[start:]
        del branch.turns[start:]
        if branch.n_dropped >= max(1, len(branch.turns)):
            branch.n_dropped = 0  # what is left may fit again; if not, it is dropped again
        return removed
