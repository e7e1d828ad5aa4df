"""What the commands of a conversation do. Each takes the conversation and its argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minfer.core.errors import UsageError
from minfer.core.units import counted
from minfer.engine.params import KNOBS, Value, check_biases, field_of, parse_value, with_seed
from minfer.run.conversation.display import tell
from minfer.run.conversation.why import explain_last
from minfer.run.conversation.words import COMMANDS
from minfer.run.prompt import read_text

if TYPE_CHECKING:
    from minfer.run.conversation.conversation import Conversation

_WORDS: Final = {"think": ("show", "hide", "off"), "overflow": ("shift", "drop", "stop")}
_SHOWN = 70


class CommandUsageError(UsageError):
    """A command lacks its argument or has a wrong one."""

    code = "command-usage"


def _help(_: Conversation, __: str) -> None:
    width = max(len(row.name) + len(row.takes) for row in COMMANDS) + 2
    rows = [f"  {f'/{row.name} {row.takes}':<{width}}  {row.summary}" for row in COMMANDS]
    keys = "// stands for a literal slash. A line that ends in \\, or three quotes, ask for more lines."
    tell("\n".join([*rows, keys]))


def _clear(conversation: Conversation, _: str) -> None:
    conversation.dialogue.clear()
    conversation.save()
    tell("[history cleared]")


def _regen(conversation: Conversation, _: str) -> None:
    conversation.regenerate()


def _undo(conversation: Conversation, _: str) -> None:
    removed = conversation.dialogue.undo()
    conversation.save()
    tell(f"[took back: {_short(removed[0].text)}]")


def _edit(conversation: Conversation, argument: str) -> None:
    number, _, text = argument.partition(" ")
    if not number.isdecimal():
        raise CommandUsageError("which message is to be changed?", hint="/edit 1, or /edit 1 NEW TEXT")
    conversation.dialogue.question(int(number))
    conversation.edited = int(number)
    if text.strip():
        conversation.say(text.strip())


def _branch(conversation: Conversation, argument: str) -> None:
    dialogue = conversation.dialogue
    if not argument:
        tell(
            "\n".join(
                f"{'*' if name == dialogue.current else ' '} {name}: {counted(len(branch.turns), 'message')}"
                for name, branch in dialogue.branches.items()
            )
        )
        return
    is_new = dialogue.switch(argument)
    conversation.save()
    tell(f"[{'new branch' if is_new else 'branch'} {argument}: {counted(len(dialogue.turns), 'message')}]")


def _system(conversation: Conversation, argument: str) -> None:
    if argument:
        conversation.dialogue.system = None if argument == "-" else argument
        conversation.save()
    system = conversation.dialogue.system
    tell("[no system message]" if system is None else f"[system] {system}")


def _set(conversation: Conversation, argument: str) -> None:
    name, _, value = argument.partition(" ")
    value = value.strip()
    if not name:
        values = asdict(conversation.params) | {
            "think": conversation.think,
            "overflow": conversation.overflow,
        }
        tell("\n".join(f"  {key:<22} {entry!r}" for key, entry in values.items()))
        return
    if not value:
        raise CommandUsageError(f"what shall {name} be?", hint=f"/set {name} VALUE")
    if name in _WORDS:
        _set_word(conversation, name, value)
        return
    field = field_of(name)
    if field == "n_ctx":
        raise CommandUsageError("the context is settled when a model is loaded", hint="start with --n-ctx N")
    changed = conversation.params.updated({field: _value(field, value)})
    check_biases(changed, conversation.loaded.chat.model.tokenizer.n_vocab)
    conversation.params = with_seed(changed)
    conversation.save()
    tell(f"[{field} = {getattr(conversation.params, field)!r}]")


def _value(field: str, text: str) -> Value:
    """The value that is meant; a lone - empties a list."""
    if KNOBS[field].is_list and text == "-":
        return ()
    return parse_value(field, text.split() if KNOBS[field].kind == "biases" else [text])


def _set_word(conversation: Conversation, name: str, value: str) -> None:
    if value not in _WORDS[name]:
        raise CommandUsageError(
            f"{name} cannot be {value!r:.60}", hint=f"use one of: {', '.join(_WORDS[name])}"
        )
    if name == "think":
        conversation.set_think(value)
    else:
        conversation.overflow = value
    tell(f"[{name} = {value}]")


def _show(conversation: Conversation, _: str) -> None:
    chat, dialogue = conversation.loaded.chat, conversation.dialogue
    lines = [
        f"model    {chat.model.file.path.name} ({chat.model.architecture}, template {chat.template.name})",
        f"context  {chat.sequence.length} of {chat.n_ctx} tokens",
        f"branch   {dialogue.current}",
    ]
    if dialogue.system is not None:
        lines.append(f"system   {_short(dialogue.system)}")
    n_asked = 0
    for index, turn in enumerate(dialogue.turns):
        n_asked += turn.role == "user"
        mark = f"{n_asked:>3}" if turn.role == "user" else "   "
        dropped = "(dropped) " if index < dialogue.branch.n_dropped else ""
        lines.append(f"{mark} {turn.role:<9} {dropped}{_short(turn.text)}")
    tell("\n".join(lines))


def _save(conversation: Conversation, argument: str) -> None:
    path = _path(argument, "/save FILE")
    conversation.save(path)
    tell(f"[session] saved {counted(len(conversation.dialogue.turns), 'message')}")


def _load(conversation: Conversation, argument: str) -> None:
    conversation.load(_path(argument, "/load FILE"))
    conversation.save()


def _read(conversation: Conversation, argument: str) -> None:
    text, _ = read_text((), _path(argument, "/read FILE"))
    conversation.attached += text.rstrip("\n") + "\n\n"
    n_tokens = len(
        conversation.loaded.chat.model.tokenizer.encode(text, add_special=False, parse_special=False)
    )
    tell(f"[{argument}: {counted(n_tokens, 'token')}, in front of your next message]")


def _model(conversation: Conversation, argument: str) -> None:
    from minfer.run.conversation.loading import load_chat
    from minfer.run.status import Status

    if not argument:
        raise CommandUsageError("which model?", hint="/model MODEL")
    settings = replace(conversation.settings, reference=argument, show_meta=False, dump_graph=None)
    loaded = load_chat(settings, conversation.dialogue, None, Status(quiet=settings.quiet))
    conversation.loaded.close()
    conversation.settings = settings
    conversation.use(loaded)
    conversation.dialogue.forget_ids()
    conversation.save()
    tell(f"[model {loaded.chat.model.file.path.name}]")


def _why(conversation: Conversation, _: str) -> None:
    tell(explain_last(conversation.loaded.chat))


def _leave(conversation: Conversation, _: str) -> None:
    conversation.is_over = True


def _path(argument: str, usage: str) -> Path:
    if not argument:
        raise CommandUsageError("a file is missing", hint=usage)
    try:
        return Path(argument).expanduser()
    except RuntimeError:
        raise CommandUsageError(f"nobody's home is {argument!r:.80}", hint="write the path out") from None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


ACTIONS: Final[Mapping[str, Callable[[Conversation, str], None]]] = {
    "help": _help,
    "clear": _clear,
    "regen": _regen,
    "undo": _undo,
    "edit": _edit,
    "branch": _branch,
    "system": _system,
    "set": _set,
    "show": _show,
    "save": _save,
    "load": _load,
    "read": _read,
    "model": _model,
    "why": _why,
    "exit": _leave,
    "quit": _leave,
}
"""Name to action; the names are those of words.COMMANDS."""
