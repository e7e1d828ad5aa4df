"""A run of `--prompts`: rows in, answers appended to the output as they are done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from minfer.core.errors import MinferError, UsageError
from minfer.engine import LoadOptions
from minfer.engine.generate import GenerationLoop
from minfer.engine.generation import Request
from minfer.engine.params import with_seed
from minfer.run.batch.answers import N_TOGETHER, Batch
from minfer.run.batch.rows import Row, n_answered, read_rows
from minfer.run.drafting import NewDrafter, drafting
from minfer.run.opening import opened_for
from minfer.run.status import Status
from minfer.run.wording import encode_prompt, find_template, thinking_variables

if TYPE_CHECKING:
    from minfer.engine.model import OpenedModel
    from minfer.run.settings import RunSettings

_CACHE_POSITIONS = 8192  # all rows of a batch together, when no single one needs more
_LOGIT_ROWS = 64


class PromptsUsageError(UsageError):
    """Flags that do not go together with --prompts."""

    code = "prompts-usage"


def run_prompts(settings: RunSettings, prompts: Path | None, out: Path | None) -> int:
    """Answer every row; the exit status. What is in the output already is not made again."""
    if prompts is None or out is None:
        raise PromptsUsageError("--prompts FILE and --out FILE belong together", hint="give both")
    if settings.words or settings.prompt_file is not None:
        raise PromptsUsageError("--prompts takes the place of a prompt", hint="leave out the words and -f")
    if settings.spec not in (None, "ngram"):
        raise PromptsUsageError("a draft model cannot serve many prompts", hint="use --spec ngram")
    status = Status(quiet=settings.quiet)
    options = LoadOptions(n_threads=settings.n_threads, kv_type=settings.kv_type, max_logit_rows=_LOGIT_ROWS)
    with opened_for("--prompts", settings.reference, status, options) as opened:
        rows = read_rows(prompts, settings.params, _fingerprint(opened, settings))
        n_done = n_answered(out, rows)
        status.say(f"Prompts: {len(rows)}, {n_done} of them answered already")
        if n_done < len(rows):
            encoded = [_encoded(opened, row, settings, status) for row in rows[n_done:]]
            _answer(opened, rows[n_done:], encoded, settings, out)
            status.say(f"Answers: {out}")
    return 0


def _fingerprint(opened: OpenedModel, settings: RunSettings) -> str:
    """What the answers depend on beside the rows and their parameters."""
    template = find_template(opened, settings)
    source = None if template is None else template.source
    file = opened.file
    kind = opened.backend_name.partition("-")[0]
    return json.dumps(
        [file.path.name, file.n_bytes, kind, settings.kv_type, settings.system, settings.think, source]
    )


def _encoded(
    opened: OpenedModel, row: Row, settings: RunSettings, status: Status
) -> Sequence[int] | MinferError:
    """The row's ids, or why it has none: that concerns no other row."""
    try:
        if row.prompt is not None:
            return encode_prompt(opened, settings, row.prompt, status)
        template = find_template(opened, settings)
        if template is None:
            raise PromptsUsageError("messages need a chat template, and there is none")
        messages = list(row.messages or ())
        if settings.system is not None:
            messages.insert(0, {"role": "system", "content": settings.system})
        return template.encode(
            messages, opened.tokenizer, extra=thinking_variables(template, settings, status)
        )
    except MinferError as error:
        return error


def _answer(
    opened: OpenedModel,
    rows: Sequence[Row],
    encoded: Sequence[Sequence[int] | MinferError],
    settings: RunSettings,
    out: Path,
) -> None:
    needs = [_need(row, ids, opened.n_ctx_train) for row, ids in zip(rows, encoded, strict=True)]
    n_ctx = min(max(*needs, settings.params.n_ctx or opened.n_ctx_train), opened.n_ctx_train)
    n_positions = max(*needs, 1, min(N_TOGETHER * max(needs), _CACHE_POSITIONS))
    opened.plan(n_positions, N_TOGETHER, is_shared=True).check()
    with opened.load() as model, drafting(settings, model, n_ctx, Status(quiet=True)) as new_drafter:
        cache = model.new_cache(n_positions, N_TOGETHER, is_shared=True)
        batch = Batch(GenerationLoop(model, cache, n_ctx))
        with out.open("ab") as stream:
            for line in batch.lines(_requests(rows, encoded, n_ctx, new_drafter)):
                _append(stream, line)


def _need(row: Row, ids: Sequence[int] | MinferError, n_ctx_train: int) -> int:
    """Positions that a row takes at most."""
    if isinstance(ids, MinferError):
        return 1
    return min(len(ids) + row.params.n_predict, n_ctx_train) if row.params.n_predict >= 0 else n_ctx_train


def _requests(
    rows: Sequence[Row], encoded: Sequence[Sequence[int] | MinferError], n_ctx: int, new_drafter: NewDrafter
) -> Iterator[tuple[Row, Request | MinferError]]:
    for row, ids in zip(rows, encoded, strict=True):
        if isinstance(ids, MinferError):
            yield row, ids
        else:
            params = replace(with_seed(row.params), n_ctx=n_ctx)
            yield row, Request(tuple(ids), params, drafter=new_drafter())


def _append(stream: IO[bytes], line: bytes) -> None:
    """Write one answer so that it survives a kill."""
    stream.write(line)
    stream.flush()
    os.fsync(stream.fileno())
