"""Stop strings over streamed text: no part of one is shown, nothing is held back longer than needed."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Finds the first stop string to be completed in text that arrives in pieces.

    A stop string may begin and end anywhere in the pieces; text that could still be the beginning of
    one is held back. Of several that are completed by the same character the longest counts. What is
    shown, and which one is found, does not depend on how the text was cut.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        """`stop_strings`: in any order; empty ones are left out."""
        stops = sorted({stop for stop in stop_strings if stop}, key=len, reverse=True)
        self._automata = [_Automaton(stop) for stop in stops]
        self._held = ""
        self._hit: str | None = None

    @property
    def hit(self) -> str | None:
        """The stop string that was found."""
        return self._hit

    def push(self, text: str) -> tuple[str, str | None]:
        """Take a piece; returns the text that may be shown, and the stop string once one is found.

        After that nothing more is shown.
        """
        if self._hit is not None:
            return "", self._hit
        if not self._automata:
            return text, None
        self._held += text
        for index, character in enumerate(text, len(self._held) - len(text) + 1):
            for automaton in self._automata:
                if automaton.advance(character):
                    self._hit = automaton.text
                    shown, self._held = self._held[: index - len(automaton.text)], ""
                    return shown, self._hit
        cut = len(self._held) - max(automaton.n_matched for automaton in self._automata)
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, None

    def finish(self) -> str:
        """What was held back, for when the text ends without a hit. Nothing may be pushed after it."""
        shown, self._held = self._held, ""
        return shown


class _Automaton:
    """Knuth, Morris and Pratt's search for one text, a character at a time."""

    __slots__ = ("_fallback", "n_matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.n_matched = 0  # characters of `text` that the last characters read agree with
        self._fallback = [0] * len(text)
        for i in range(1, len(text)):
            self._fallback[i] = self._longer(self._fallback[i - 1], text[i])

    def advance(self, character: str) -> bool:
        """Read a character; True if it completes the text."""
        self.n_matched = self._longer(self.n_matched, character)
        return self.n_matched == len(self.text)

    def _longer(self, n: int, character: str) -> int:
        """The longest match after one more character, when n characters matched before."""
        while n and self.text[n] != character:
            n = self._fallback[n - 1]
        return n + 1 if self.text[n] == character else 0
