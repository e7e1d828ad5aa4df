"""One scoring from settings to figures on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from minfer.engine import LoadOptions
from minfer.run.measure.lists import require_room
from minfer.run.opening import opened_for
from minfer.run.prompt import read_prompt
from minfer.run.scoring.base_file import TOP, BaseFileError, BaseReader, BaseRow, BaseWriter, Header
from minfer.run.scoring.divergence import Comparison
from minfer.run.scoring.windows import LOGIT_ROWS, Perplexity, Scorer, windows_of
from minfer.run.status import Status

if TYPE_CHECKING:
    from minfer.engine.model import Model, OpenedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """What to score. base_file: written by `measure`, read by `compare`."""

    reference: str
    text_file: Path | None
    n_ctx: int
    chunks: int | None
    base_file: Path | None
    threads: int | None
    kv_type: Literal["f16", "f32"]
    as_json: bool
    quiet: bool


def measure(settings: ScoreSettings) -> None:
    """Print the perplexity of a text; write its distributions when a file was named."""
    status = Status(quiet=settings.quiet)
    text = read_prompt((), settings.text_file)
    with _opened(settings, status) as opened:
        windows = windows_of(opened.tokenizer, text, settings.n_ctx, settings.chunks)
        with _loaded(opened, settings.n_ctx, status) as model:
            total = _measure(model, windows, settings, status)
    facts = {
        "model": opened.file.path.name,
        "backend": opened.backend_name,
        "n_ctx": settings.n_ctx,
        "n_windows": len(windows),
        "n_tokens": total.n,
        "perplexity": round(total.value, 6),
        "perplexity_error": round(total.error, 6),
        "nats_per_token": round(total.nats, 6),
    }
    if settings.as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(
            f"Perplexity: {total.value:.4f} ± {total.error:.4f} "
            f"({total.n} tokens in {len(windows)} windows of {settings.n_ctx})\n"
        )


def compare(settings: ScoreSettings) -> None:
    """Print how far the model is from the one whose distributions a file holds."""
    status = Status(quiet=settings.quiet)
    if settings.base_file is None:
        raise ValueError("a comparison needs a file")
    reader = BaseReader(settings.base_file)
    try:
        header = reader.header
        with _opened(settings, status) as opened:
            _check_vocabulary(opened, header)
            with _loaded(opened, header.n_ctx, status) as model:
                comparison = _compare(model, reader, settings.chunks, status)
    finally:
        reader.close()
    facts = {
        "model": opened.file.path.name,
        "backend": opened.backend_name,
        "base_model": header.model,
        "base_backend": header.backend,
        "n_ctx": header.n_ctx,
        "top": header.top,
        **comparison.facts(),
    }
    if settings.as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        sys.stdout.write(_as_text(facts))


@contextmanager
def _opened(settings: ScoreSettings, status: Status) -> Iterator[OpenedModel]:
    options = LoadOptions(n_threads=settings.threads, kv_type=settings.kv_type, max_logit_rows=LOGIT_ROWS)
    with opened_for("perplexity", settings.reference, status, options) as opened:
        yield opened


@contextmanager
def _loaded(opened: OpenedModel, n_ctx: int, status: Status) -> Iterator[Model]:
    require_room(n_ctx, opened.n_ctx_train, "-c")
    opened.plan(n_ctx).check()
    with opened.load() as model:
        status.loaded(model, n_ctx)
        yield model


def _measure(
    model: Model, windows: Sequence[tuple[int, ...]], settings: ScoreSettings, status: Status
) -> Perplexity:
    total = Perplexity()
    scorer = Scorer(model, settings.n_ctx)
    n_vocab = model.graph.nodes[model.graph.logits].features
    top = min(TOP, n_vocab) if settings.base_file is not None else 1
    writer: BaseWriter | None = None
    if settings.base_file is not None:
        names = (model.file.path.name, model.backend_name)
        writer = BaseWriter(settings.base_file, Header(*names, n_vocab, settings.n_ctx, len(windows), top))
    is_complete = False
    try:
        for number, window in enumerate(windows, 1):
            rows = list(scorer.score(window, top))
            for row in rows:
                total.add(row.logprob)
            if writer is not None:
                writer.add(
                    window,
                    [BaseRow(one.logprob, tuple(one.top_ids), tuple(one.top_logprobs)) for one in rows],
                )
            status.say(f"{number} of {len(windows)}: {total.value:.4f}")
        is_complete = True
    finally:
        if writer is not None:
            writer.close(is_complete=is_complete)
    return total


def _compare(model: Model, reader: BaseReader, limit: int | None, status: Status) -> Comparison:
    comparison = Comparison()
    scorer = Scorer(model, reader.header.n_ctx)
    n_windows = min(reader.header.n_windows, limit or reader.header.n_windows)
    for number, (window, base) in zip(range(1, n_windows + 1), reader.windows(), strict=False):
        ours = scorer.score(window, 1, [row.ids for row in base])
        for row, other in zip(base, ours, strict=True):
            comparison.add(
                (row.logprob, *row.logprobs),
                (other.logprob, *other.listed_logprobs),
                is_same=row.ids[0] == other.top_ids[0],
            )
        facts = comparison.facts()
        status.say(
            f"{number} of {n_windows}: KL {facts['kl_mean']:.6f}, same first choice {facts['same_top']:.4f}"
        )
    return comparison


def _check_vocabulary(opened: OpenedModel, header: Header) -> None:
    n_vocab = opened.graph.nodes[opened.graph.logits].features
    if n_vocab != header.n_vocab:
        raise BaseFileError(
            f"the file is of {header.model} with {header.n_vocab} tokens, and this model has {n_vocab}",
            hint="compare models with the same vocabulary",
        )


def _as_text(facts: dict[str, Any]) -> str:
    rows = (
        ("Perplexity", f"{facts['perplexity']:.4f} ± {facts['perplexity_error']:.4f}"),
        (f"Perplexity of {facts['base_model']}",
         f"{facts['base_perplexity']:.4f} ± {facts['base_perplexity_error']:.4f}"),
        ("Log of their ratio", f"{facts['log_perplexity_ratio']:+.6f}"),
        ("KL divergence, mean", f"{facts['kl_mean']:.6f} ± {facts['kl_error']:.6f}"),
        ("KL divergence, median", f"{facts['kl_median']:.6f}"),
        ("KL divergence, 99 %", f"{facts['kl_99']:.6f}"),
        ("KL divergence, largest", f"{facts['kl_max']:.6f}"),
        ("Change of probability, RMS", f"{100 * facts['rms_probability_change']:.3f} %"),
        ("Same first choice", f"{100 * facts['same_top']:.2f} ± {100 * facts['same_top_error']:.2f} %"),
        (f"Outside the {facts['top']} likeliest", f"{100 * facts['base_rest']:.2f} %, compared as one"),
    )  # fmt: skip
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in rows)
