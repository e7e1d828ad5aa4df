"""What one run was asked to do, as values; the command fills it and nothing below reads flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minfer.engine.params import GenerationParams


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One one-shot run. `origins` says for each parameter that is not a default where it came from."""

    reference: str
    words: tuple[str, ...]
    prompt_file: Path | None
    system: str | None
    params: GenerationParams
    profile: str
    origins: dict[str, str]
    use_template: bool
    chat_template: str | None
    think: str
    kv_type: Literal["f16", "f32"]
    n_threads: int | None
    output: str
    show_meta: bool
    dump_graph: Path | None
    explain: bool
    quiet: bool
    spec: str | None = None
    spec_n: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
    """What the flags of a conversation say. color: on, off or auto. overflow: shift, drop or stop."""

    is_single: bool
    multiline: bool
    color: str
    overflow: str
    session: Path | None
