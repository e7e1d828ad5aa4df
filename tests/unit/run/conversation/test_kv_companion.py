"""A saved cache is the cache: with it the next answer is the same, and only the new turn is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer.engine.model import open_model
from minfer.engine.params import GenerationParams
from minfer.engine.testing import TinyModel, tiny_model
from minfer.run.conversation.chat import Answer, Asking, Chat
from minfer.run.conversation.dialogue import Dialogue, Turn
from minfer.run.conversation.kv_companion import CompanionIgnoredError, restore_cache, save_cache


def _ask(chat: Chat, dialogue: Dialogue, text: str) -> Answer:
    dialogue.add(Turn("user", text))
    answer = chat.answer(dialogue, Asking(GenerationParams(n_predict=9), 0, "shift", lambda _: None))
    dialogue.add(answer.turn)
    return answer


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_a_restored_cache_goes_on(tmp_path: Path, architecture: str) -> None:
    path = tmp_path / "tiny.gguf"
    layers = 7 if architecture == "gemma3" else 2
    path.write_bytes(tiny_model(TinyModel(architecture, n_layers=layers, n_context=1024)))
    saved = tmp_path / "s.kv"
    with open_model(path) as opened, opened.load() as model:
        template = model.chat_template
        assert template is not None
        chat, dialogue = Chat(model, template, 1024, None), Dialogue()
        _ask(chat, dialogue, "a long question " * 20)  # far beyond gemma3's window of 24
        save_cache(chat, saved, "fingerprint")
        turns, ids = list(dialogue.turns), list(chat.sequence.ids)
        expected = _ask(chat, dialogue, "and another one")

        other, again = Chat(model, template, 1024, None), Dialogue()
        for turn in turns:
            again.add(turn)
        assert restore_cache(other, saved, "fingerprint") == len(ids)
        assert list(other.sequence.ids) == ids
        answer = _ask(other, again, "and another one")
        assert answer.turn == expected.turn
        assert answer.n_prefilled == expected.n_prefilled < 60

        small = Chat(model, template, 64, None)
        with pytest.raises(CompanionIgnoredError, match="do not fit the context"):
            restore_cache(small, saved, "fingerprint")
        with pytest.raises(CompanionIgnoredError, match="model is other and was fingerprint"):
            restore_cache(small, saved, "other")
        saved.write_bytes(saved.read_bytes()[:100])
        with pytest.raises(CompanionIgnoredError, match="checksum"):
            restore_cache(small, saved, "fingerprint")
