"""`--spec ngram` beside decoding without it, alternating in one process: tokens per second, the same bytes.

python -m bench.speculation MODEL --threads 2 --pairs 5

Two tasks: a text to be written again with its mistakes corrected, greedy and without a penalty on
repetition, as one edits; and an open question with the default sampling.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench import machine
from bench.pairs import alternate
from minfer.engine import LoadOptions, open_model
from minfer.engine.events import Stopped
from minfer.engine.generate import GenerationLoop, generate
from minfer.engine.generation import Request
from minfer.engine.model import Model
from minfer.engine.params import GenerationParams
from minfer.engine.speculation import DEFAULT_N_DRAFT, NgramDrafter

_N_CTX = 2048

_TEXT = """\
The old lighthouse stood at the end of the harbor, where the river met the sea. Every evening, \
just before sunset, the keeper climbed the narrow stairs to light the great lamp. He had done this \
work for forty years, and his father had done it before him. When the fog came in from the north, \
he rang the bell by hand, once every minute, until the ships were safe. The fishermen brought him \
bread, salted fish and news from the town. In winter the waves reached the windows of the kitchen, \
and the whole tower trembled in the wind. He did not mind the cold, he said, because the light \
kept him company. One day a letter came from the city: the lamp would be replaced by an electric \
one, and nobody would be needed to light it any more. The keeper read the leter twice, folded it \
and put it in the drawer. That evening he climbed the stairs as he always did."""

_TASKS: Mapping[str, tuple[str, GenerationParams]] = {
    "copy-editing": (
        f"Correct the spelling mistakes in this text. Write the whole text again.\n\n{_TEXT}",
        GenerationParams(temp=0.0, repeat_penalty=1.0, n_predict=256, n_ctx=_N_CTX),
    ),
    "open chat": (
        "I have a free weekend in a small town by the sea. What could I do there?",
        GenerationParams(n_predict=256, n_ctx=_N_CTX),
    ),
}


class _Task:
    """One prompt, answered with and without drafts; all answers have to be the same."""

    def __init__(self, model: Model, question: str, params: GenerationParams) -> None:
        assert model.chat_template is not None, "the model has no chat template"
        self._model, self._params = model, params
        self._prompt = tuple(
            model.chat_template.encode([{"role": "user", "content": question}], model.tokenizer)
        )
        self._ids: list[int] | None = None
        self.n_drafted = self.n_accepted = 0

    def run(self, *, drafts: bool) -> float:
        """Tokens per second of decoding."""
        loop = GenerationLoop(self._model, self._model.new_cache(_N_CTX), _N_CTX)
        drafter = NgramDrafter(DEFAULT_N_DRAFT) if drafts else None
        events = list(generate(loop, Request(self._prompt, self._params, drafter=drafter)))
        ids = [event.id for event in events if hasattr(event, "id")]
        if self._ids is not None and ids != self._ids:
            raise AssertionError("the answer depends on drafting")
        self._ids = ids
        stopped = next(event for event in events if isinstance(event, Stopped))
        if drafts:
            self.n_drafted, self.n_accepted = stopped.n_drafted, stopped.n_accepted
        return stopped.n_generated / stopped.seconds


def main() -> None:
    """Print a row for each task; append to the ledger when told."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    print(f"{options.model.name}, {options.threads} threads, {options.pairs} alternating pairs")
    print(f"{'task':12} {'drafting':>9} {'max':>9} {'without':>9} {'max':>9} {'ratio':>7}")
    with open_model(options.model, LoadOptions(n_threads=options.threads)) as opened, opened.load() as model:
        for name, (question, params) in _TASKS.items():
            task = _Task(model, question, params)
            task.run(drafts=False)  # caches and pages are warm from here on
            pairs = alternate(options.pairs, partial(task.run, drafts=True), partial(task.run, drafts=False))
            print(f"{name:12} {pairs.row()}  {task.n_accepted} of {task.n_drafted} drafted tokens were right")
            if options.ledger:
                line = {**machine.facts(), "bench": "speculation", "model": options.model.name, "task": name}
                figures = {"ours": pairs.ours, "theirs": pairs.theirs, "ratio": pairs.ratio}
                with options.ledger.open("a") as ledger:
                    ledger.write(json.dumps({**line, "threads": options.threads, **figures}) + "\n")


if __name__ == "__main__":
    main()
