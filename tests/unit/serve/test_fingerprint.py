"""The fingerprint changes with whatever changes the answer."""

from __future__ import annotations

from pathlib import Path

from minfer.engine import LoadOptions, open_model
from minfer.engine.testing import TinyModel, tiny_model
from minfer.serve.fingerprint import fingerprint


def _mark(folder: Path, data: bytes, kv_type: str = "f16") -> str:
    path = folder / "model.gguf"
    path.write_bytes(data)
    with open_model(path, LoadOptions(n_threads=1)) as opened, opened.load() as model:
        return fingerprint(model, kv_type)


def test_what_it_marks(tmp_path: Path) -> None:
    data = tiny_model(TinyModel("llama"))
    mark = _mark(tmp_path, data)
    assert mark == _mark(tmp_path, data)
    assert mark != _mark(tmp_path, data, kv_type="f32")
    # The same weights under a template of the same length that asks for another role.
    assert data.count(b"<|im_start|>assistant") == 1
    assert mark != _mark(tmp_path, data.replace(b"<|im_start|>assistant", b"<|im_start|>assistent"))
    # One weight: the last tensor's first bytes.
    last = len(data) - 64
    assert mark != _mark(tmp_path, data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :])
