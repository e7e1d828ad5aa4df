"""`--spec`: who guesses ahead, from the words of the flag to a drafter for each generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from minfer.core.errors import UsageError

if TYPE_CHECKING:
    from minfer.engine.generation import Drafter
    from minfer.engine.model import Model
    from minfer.run.settings import RunSettings
    from minfer.run.status import Status

NewDrafter = Callable[[], "Drafter | None"]


class InertSpecError(UsageError):
    """A flag for speculation without speculation."""

    code = "inert-spec"


def check_spec(spec: str | None, n_draft: int | None) -> None:
    """Raise InertSpecError when --spec-n was given and would do nothing."""
    if n_draft is not None and spec is None:
        raise InertSpecError(
            f"--spec-n {n_draft} does nothing without --spec", hint="add --spec ngram, or --spec MODEL"
        )


@contextmanager
def drafting(settings: RunSettings, model: Model, n_ctx: int, status: Status) -> Iterator[NewDrafter]:
    """What makes the drafter of a generation, None without --spec. A draft model is loaded meanwhile.

    One generation at a time may use a draft model.
    """
    if settings.spec is None:
        yield lambda: None
        return
    from minfer.engine.speculation import DEFAULT_N_DRAFT, DraftModel, NgramDrafter

    n_draft = settings.spec_n or DEFAULT_N_DRAFT
    if not model.is_batch_invariant:
        status.say(f"Note: on {model.backend_name} the text may differ from that without --spec")
    if settings.spec == "ngram":
        yield lambda: NgramDrafter(n_draft)
        return
    with _draft_model(settings.spec, settings, model, n_ctx, status) as (draft, n_ctx_draft):
        cache = draft.new_cache(n_ctx_draft)
        yield lambda: DraftModel(draft, cache, n_ctx_draft, n_draft)


@contextmanager
def _draft_model(
    reference: str, settings: RunSettings, model: Model, n_ctx: int, status: Status
) -> Iterator[tuple[Model, int]]:
    from minfer.engine import LoadOptions
    from minfer.engine.speculation import check_vocabulary
    from minfer.run.opening import opened_for

    options = LoadOptions(n_threads=settings.n_threads, kv_type=settings.kv_type, max_logit_rows=1)
    with opened_for("--spec", reference, status, options) as opened:
        check_vocabulary(opened.tokenizer, model.tokenizer)
        n_ctx_draft = min(n_ctx, opened.n_ctx_train)
        opened.plan(n_ctx_draft).check()
        with opened.load() as draft:
            status.say(f"Draft model: {draft.file.path.name}, {draft.backend_name}, context {n_ctx_draft}")
            yield draft, n_ctx_draft
