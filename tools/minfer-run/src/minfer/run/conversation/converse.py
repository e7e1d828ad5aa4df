"""The loop of a conversation: read a turn or a command, act, until the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from minfer.core.errors import MinferError
from minfer.engine.events import StopReason
from minfer.engine.params import with_seed
from minfer.run.conversation.commands import ACTIONS, CommandUsageError
from minfer.run.conversation.conversation import Conversation
from minfer.run.conversation.dialogue import Dialogue
from minfer.run.conversation.display import tell, uses_color
from minfer.run.conversation.interrupts import Interrupts, LeaveError
from minfer.run.conversation.lines import Lines, ScriptLines
from minfer.run.conversation.loading import load_chat
from minfer.run.conversation.session import Session, SessionFileError, read_session
from minfer.run.conversation.words import parse_line
from minfer.run.prompt import read_prompt
from minfer.run.status import Status

if TYPE_CHECKING:
    from minfer.run.settings import ConversationSettings, RunSettings

INTERRUPTED = 130


def converse(settings: RunSettings, options: ConversationSettings) -> int:
    """Have the conversation; the exit status. Raises MinferError for what goes wrong before it begins."""
    status = Status(quiet=settings.quiet)
    has_first = bool(settings.words) or settings.prompt_file is not None
    first = read_prompt(settings.words, settings.prompt_file) if has_first else None
    session = _session(options)
    settings, dialogue = _begin(settings, session)
    conversation = Conversation(settings, options, dialogue, status)
    conversation.use(load_chat(settings, dialogue, first, status))
    try:
        if session is not None:
            conversation.adopt(session)
            if settings.system is not None:
                dialogue.system = settings.system
            conversation.resume_cache()
        return _talk(conversation, _lines(options), first)
    finally:
        conversation.loaded.close()


def _session(options: ConversationSettings) -> Session | None:
    if options.session is None:
        return None
    if not options.session.parent.is_dir():  # found out before a model is loaded
        raise SessionFileError(
            f"there is no directory {str(options.session.parent)!r} for the session", hint="make it first"
        )
    if not options.session.exists():
        return None
    return read_session(options.session)


def _begin(settings: RunSettings, session: Session | None) -> tuple[RunSettings, Dialogue]:
    """The settings, a session's where no flag says otherwise, and the dialogue."""
    if session is None:
        return replace(settings, params=with_seed(settings.params)), Dialogue(settings.system)
    written = {name: value for name, value in asdict(settings.params).items() if name in settings.origins}
    params = with_seed(session.params.updated(written))
    return replace(settings, params=params), session.dialogue


def _lines(options: ConversationSettings) -> Lines:
    if sys.stdin is None or sys.stdin.closed or not sys.stdin.isatty():
        return ScriptLines(multiline=options.multiline)
    from minfer.run.conversation.terminal import TerminalLines

    return TerminalLines(multiline=options.multiline, color=uses_color(options.color))


def _talk(conversation: Conversation, lines: Lines, first: str | None) -> int:
    """All turns; saved however it ends. The exit status."""
    exit_status = 0
    try:
        if first is not None:
            exit_status = _guarded(partial(conversation.say, first), lines, conversation)
        if first is None or not conversation.options.is_single:
            exit_status = _rest(conversation, lines) or exit_status
        if conversation.options.is_single and conversation.last_reason is StopReason.CANCELLED:
            exit_status = INTERRUPTED
    except KeyboardInterrupt:
        exit_status = INTERRUPTED
    finally:
        conversation.close()
    return exit_status


def _rest(conversation: Conversation, lines: Lines) -> int:
    """Read and act until the end. The exit status of a script is that of its first mistake."""
    exit_status = 0
    interrupts = Interrupts()
    while not conversation.is_over:
        try:
            line = lines.read(_draft(conversation))
        except KeyboardInterrupt:
            if not lines.is_interactive or interrupts.comes_again():
                raise
            conversation.edited = None
            tell("(/exit or Ctrl-D leaves; so does a second Ctrl-C within two seconds)")
            continue
        except MinferError as error:
            tell(error.render())
            exit_status = exit_status or error.exit_status
            continue
        if line is None:
            break
        try:
            failed = _guarded(partial(_act, conversation, line), lines, conversation)
        except KeyboardInterrupt as error:
            if isinstance(error, LeaveError) or not lines.is_interactive or interrupts.comes_again():
                raise
            tell("(stopped)")
            continue
        exit_status = exit_status or (0 if lines.is_interactive else failed)
        if conversation.options.is_single and conversation.last_reason is not None:
            break
    return exit_status


def _draft(conversation: Conversation) -> str:
    number = conversation.edited
    return "" if number is None else conversation.dialogue.question(number)


def _act(conversation: Conversation, line: str) -> None:
    """One line: a message or a command."""
    command, text = parse_line(line)
    if command is None:
        conversation.say(text)
        return
    conversation.edited = None
    if text and not command.takes:
        raise CommandUsageError(f"/{command.name} takes nothing, got {text!r:.60}", hint=f"/{command.name}")
    ACTIONS[command.name](conversation, text)


def _guarded(action: Callable[[], None], lines: Lines, conversation: Conversation) -> int:
    """Do it; what goes wrong is told and ends nothing, but a single turn's mistake. Its exit status."""
    try:
        action()
    except MinferError as error:
        if conversation.options.is_single and not lines.is_interactive:
            raise
        tell(error.render())
        return error.exit_status
    return 0
