"""Drafters: cheap guesses at the ids that come next, for the loop to verify in one step.

Each row of a draft is drawn with its own position's numbers and kept while it is what was guessed, so a
guess changes the time and never the text. A drafter belongs to one generation.
"""

from minfer.engine.speculation.draft_model import DraftModel, DraftVocabularyError, check_vocabulary
from minfer.engine.speculation.ngram import NgramDrafter

DEFAULT_N_DRAFT = 7
"""Ids guessed at a time: with the row before them they fill the eight rows that kernels take together."""

__all__ = ["DEFAULT_N_DRAFT", "DraftModel", "DraftVocabularyError", "NgramDrafter", "check_vocabulary"]
