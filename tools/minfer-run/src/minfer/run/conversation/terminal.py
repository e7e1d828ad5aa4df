"""Turns from a person at a terminal: editing, history, completion, pasting, several lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from minfer.run.conversation.completion import suggestions
from minfer.run.conversation.lines import FENCE, collect

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.formatted_text import AnyFormattedText
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


class TerminalLines:
    """Reads with prompt_toolkit. Enter sends, Alt-Enter makes a new line; a line that ends in a backslash,
    or three quotes at the start, ask for more lines. With `multiline` Enter on an empty line sends.
    """

    is_interactive = True

    def __init__(self, *, multiline: bool, color: bool) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.formatted_text import ANSI
        from prompt_toolkit.output import create_output

        # Without a terminal on stdout the line is edited on stderr: stdout belongs to the answers.
        screen = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._prompt: AnyFormattedText = ANSI("\x1b[1;36m> \x1b[0m") if color else "> "
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_completer(),
            complete_while_typing=False,
            multiline=multiline,
            key_bindings=_keys(multiline=multiline),
            prompt_continuation="  ",
            enable_open_in_editor=True,
            output=create_output(stdout=screen),
        )

    def read(self, draft: str = "") -> str | None:
        """The next turn that is not empty, None at Ctrl-D. Raises KeyboardInterrupt at an empty prompt."""
        try:
            while True:
                text = self._session.prompt(self._prompt, default=draft)
                if not self._session.multiline and (text.endswith("\\") or text.lstrip().startswith(FENCE)):
                    text = "\n".join(collect(text, self._more()))
                if text.strip():
                    return text.rstrip("\n")
        except EOFError:
            return None

    def _more(self) -> Iterator[str]:
        while True:
            try:
                yield self._session.prompt("  ")
            except EOFError:
                return


def _history() -> History:
    """The lines of earlier conversations, in the user's state directory; this one's alone when that fails."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(state).expanduser() / "minfer" / "run-history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _completer() -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            typed, words = suggestions(document.text_before_cursor)
            for word in words:
                yield Completion(word, start_position=-len(typed))

    return Commands()


def _keys(*, multiline: bool) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    if not multiline:

        @keys.add("escape", "enter")
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys

    @keys.add("enter")
    def _send_on_empty_line(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        is_command = buffer.text.startswith("/") and "\n" not in buffer.text
        if buffer.text.strip() and (is_command or not buffer.document.current_line.strip()):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    return keys
