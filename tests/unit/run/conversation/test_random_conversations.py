"""Random conversations: the KV cache holds the rendering, with answers as the ids that were sampled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from minfer.engine.chat import ChatTemplate
from minfer.engine.events import StopReason
from minfer.engine.model import Model, open_model
from minfer.engine.params import GenerationParams
from minfer.engine.testing import IM_END, IM_START, TinyModel, tiny_model
from minfer.run.conversation.chat import Answer, Asking, Chat, ContextFullError
from minfer.run.conversation.dialogue import Dialogue, Turn

_LETTERS = "abc déf 語🙂\n<|im_end|>"


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = Path(tmp_path_factory.mktemp("models")) / "tiny.gguf"
    layers = 7 if request.param == "gemma3" else 2
    path.write_bytes(tiny_model(TinyModel(request.param, n_layers=layers, n_context=2048)))
    with open_model(path) as opened, opened.load() as model:
        yield model


def _chat(model: Model, n_ctx: int = 2048, source: str | None = None) -> Chat:
    template = model.chat_template if source is None else ChatTemplate(source, name="test")
    assert template is not None
    return Chat(model, template, n_ctx, None)


def _ask(chat: Chat, dialogue: Dialogue, choice: int = 0, overflow: str = "shift", n: int = 8) -> Answer:
    params = GenerationParams(n_predict=n, stop_strings=("e",), temp=1.5)
    answer = chat.answer(dialogue, Asking(params, choice, overflow, lambda _: None))
    dialogue.add(answer.turn)
    return answer


def _rendered(dialogue: Dialogue) -> list[int]:
    """ChatML by hand: a byte is its id."""
    ids: list[int] = []
    if dialogue.system is not None:
        ids += [IM_START, *b"system\n", *dialogue.system.encode(), IM_END, *b"\n"]
    for turn in dialogue.shown:
        said = turn.text.encode() if turn.ids is None else [*turn.ids, *turn.tail.encode()]
        ids += [IM_START, *turn.role.encode(), *b"\n", *said, IM_END, *b"\n"]
    return ids


def _check(chat: Chat, dialogue: Dialogue) -> None:
    cached = list(chat.sequence.ids)
    expected = _rendered(dialogue)[:-2]  # the end of the answer is the next turn's to read
    last = dialogue.turns[-1]
    n_unsure = len(last.tail.encode()) + 1  # the last id drawn is not fed before it is needed
    assert cached[: len(expected) - n_unsure] == expected[: len(expected) - n_unsure]
    assert len(cached) >= len(expected) - n_unsure


@pytest.mark.parametrize("seed", range(50))
def test_the_cache_holds_the_rendering(model: Model, seed: int) -> None:
    chance = random.Random(seed)
    chat, dialogue = _chat(model), Dialogue(chance.choice([None, "be brief"]))
    for step in range(8):
        action = chance.choice(["say", "say", "say", "regen", "undo", "edit", "branch"])
        if action == "say" or not dialogue.turns:
            text = "".join(chance.choices(_LETTERS, k=chance.randint(1, 40))) + "x"
            dialogue.add(Turn("user", text))
            _ask(chat, dialogue)
        elif action == "regen":
            old = dialogue.take_answer()
            assert old is not None
            _ask(chat, dialogue, old.choice + 1)
        elif action == "undo":
            dialogue.undo()
            continue
        elif action == "edit":
            dialogue.rewind(chance.randint(1, dialogue.n_questions))
            dialogue.add(Turn("user", f"edited {step}"))
            _ask(chat, dialogue)
        else:
            dialogue.switch(chance.choice(["main", f"b{step % 3}"]))
            continue
        _check(chat, dialogue)


def test_only_the_new_turn_is_read(model: Model) -> None:
    chat, dialogue = _chat(model), Dialogue("be brief")
    dialogue.add(Turn("user", "one two three"))
    first = _ask(chat, dialogue)
    assert first.n_prefilled == len(_rendered(dialogue)[:-2]) - len(first.turn.ids or ()) - len(
        first.turn.tail
    )
    n_cached = chat.sequence.length
    dialogue.add(Turn("user", "four"))
    n_all = len(_rendered(dialogue)) + len(b"assistant\n") + 1
    second = _ask(chat, dialogue)
    kept = min(n_cached, n_all)
    assert n_all - kept <= second.n_prefilled <= n_all - kept + 1  # a stop string's token is read anew
    assert second.n_again <= 1


def test_an_answer_made_again_reads_one_token_and_is_another_one(model: Model) -> None:
    chat, dialogue = _chat(model), Dialogue()
    dialogue.add(Turn("user", "tell me something"))
    answers = [_ask(chat, dialogue, n=12)]
    for choice in (1, 2):
        dialogue.take_answer()
        answers.append(_ask(chat, dialogue, choice, n=12))
    assert [one.n_prefilled for one in answers[1:]] == [1, 1]
    assert len({one.turn.text for one in answers}) > 1


def test_a_template_that_rewrites_answers_reads_again_from_the_first_difference(model: Model) -> None:
    shortens = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content[:2] if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat, dialogue = _chat(model, source=shortens), Dialogue()
    dialogue.add(Turn("user", "one"))
    params = GenerationParams(n_predict=12, logit_bias=tuple((id_, -100.0) for id_ in range(128, 259)))
    first = chat.answer(dialogue, Asking(params, 0, "shift", lambda _: None))
    dialogue.add(first.turn)
    assert first.reason is StopReason.LENGTH
    assert first.n_again == 0
    dialogue.add(Turn("user", "two"))
    second = _ask(chat, dialogue)
    assert first.turn.ids is not None
    assert second.n_again == len(first.turn.ids) - 1 - 2  # the last was not fed, two are the same
    expected = [
        IM_START,
        *b"user\none",
        IM_END,
        *b"\n",
        IM_START,
        *b"assistant\n",
        *first.turn.ids[:2],
        IM_END,
    ]
    assert list(chat.sequence.ids)[: len(expected)] == expected


@pytest.mark.parametrize("overflow", ["shift", "drop"])
def test_the_oldest_turns_go_when_the_context_is_full(model: Model, overflow: str) -> None:
    chat, dialogue = _chat(model, n_ctx=160), Dialogue("system stays")
    n_dropped = 0
    for number in range(8):
        dialogue.add(Turn("user", f"question {number} " + "x" * 20))
        n_dropped += _ask(chat, dialogue, overflow=overflow).n_dropped
        _check(chat, dialogue)
        assert chat.sequence.length <= 160
    assert n_dropped == dialogue.branch.n_dropped > 0
    assert len(dialogue.turns) == 16
    assert list(chat.sequence.ids)[:20] == [IM_START, *b"system\nsystem stays"]


def test_shift_goes_on_in_the_middle_of_an_answer(model: Model) -> None:
    asked = []
    for overflow in ("drop", "shift"):
        chat, dialogue = _chat(model, n_ctx=160), Dialogue()
        dialogue.add(Turn("user", "q" * 60))
        dialogue.add(Turn("assistant", "fine"))
        dialogue.add(Turn("user", "go on"))
        params = GenerationParams(n_predict=70, logit_bias=tuple((id_, -100.0) for id_ in range(128, 259)))
        answer = chat.answer(dialogue, Asking(params, 0, overflow, lambda _: None))
        asked.append((answer.reason, answer.n_dropped, len(answer.turn.text)))
        assert answer.turn.ids is not None
        assert bytes(answer.turn.ids).decode() == answer.turn.text
    assert asked[0][:2] == (StopReason.CONTEXT, 0)
    assert asked[1] == (StopReason.LENGTH, 2, 70)


def test_stop_refuses_and_drops_nothing(model: Model) -> None:
    chat, dialogue = _chat(model, n_ctx=64), Dialogue()
    dialogue.add(Turn("user", "a"))
    dialogue.add(Turn("assistant", "b" * 60))
    dialogue.add(Turn("user", "c"))
    with pytest.raises(ContextFullError, match="have 64"):
        _ask(chat, dialogue, overflow="stop")
    assert dialogue.branch.n_dropped == 0
    dialogue.add(Turn("user", "z" * 100))
    with pytest.raises(ContextFullError):
        _ask(chat, dialogue)
