"""Drafts by a second, smaller model with the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from minfer.core.errors import ModelFileError
from minfer.engine.feeding import Feeder

if TYPE_CHECKING:
    from minfer.engine.kv_cache import KVCache
    from minfer.engine.model import Model
    from minfer.engine.tokenizer import Tokenizer


class DraftVocabularyError(ModelFileError):
    """The draft model and the model do not mean the same tokens by the same ids."""

    code = "draft-vocabulary"


def check_vocabulary(draft: Tokenizer, target: Tokenizer) -> None:
    """Raise DraftVocabularyError unless both have the same tokens."""
    hint = "draft with a smaller model of the same family, or with --spec ngram"
    if draft.n_vocab != target.n_vocab:
        raise DraftVocabularyError(
            f"the draft model has {draft.n_vocab} tokens and the model {target.n_vocab}", hint=hint
        )
    for token in range(target.n_vocab):
        ours, theirs = target.token_text(token), draft.token_text(token)
        if ours != theirs:
            raise DraftVocabularyError(
                f"token {token} is {theirs!r} in the draft model and {ours!r} in the model", hint=hint
            )


class DraftModel:
    """Guesses of a second model, each its likeliest token, for as long as it is sure. One generation's."""

    least_logprob: ClassVar[float] = -0.7  # about one half: below, a guess is more often wrong than right

    def __init__(self, model: Model, cache: KVCache, n_ctx: int, n_draft: int) -> None:
        """n_ctx: positions of the cache, which is the draft model's own. n_draft: ids guessed at most."""
        self._feeder = Feeder(model, cache)
        self._n_ctx = n_ctx
        self._n_draft = n_draft

    def __call__(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids that the draft model thinks will follow; none when its context is full."""
        draft: list[int] = []
        n_most = min(self._n_draft, self._n_ctx - len(ids))
        if n_most <= 0:
            return draft
        new = ids[self._keep_common(ids) :]
        while len(draft) < n_most:
            result = self._feeder.feed(new)
            logprob = float(result.top_logits[0][0]) - float(result.log_sum_exp[0])
            if logprob < self.least_logprob:
                break
            draft.append(int(result.top_ids[0][0]))
            new = draft[-1:]
        return draft

    def _keep_common(self, ids: Sequence[int]) -> int:
        """Drop what the cache holds beyond `ids`, or otherwise; at least one id is left to feed."""
        known = self._feeder.sequence.ids
        n_same = 0
        for cached, wanted in zip(known, ids[:-1], strict=False):
            if cached != wanted:
                break
            n_same += 1
        return n_same if self._feeder.truncate(n_same) else 0
