"""Fixtures for every test: a sandboxed environment."""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script: the programs under test would inherit the deafness to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TESTS = Path(__file__).parent

_LEAKS = (
    "MINFER_OFFLINE",
    "MINFER_KERNELS",
    "MINFER_REPACK_CACHE",
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "OLLAMA_MODELS",
)


@pytest.fixture(autouse=True)
def _sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the developer's settings or writes into the developer's cache."""
    for name in _LEAKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINFER_STORE_SOCKET", "off")  # tests of the daemon start their own
    monkeypatch.setenv("MINFER_MODEL_DIR", str(tmp_path / "models"))


_PEERS = {
    "gguf": "parity",
    "transformers": "parity",
    "xllamacpp": "parity",
    "openai": "clients",
    "httpx": "clients",
    "schemathesis": "clients",
    "langchain_openai": "clients",
    "litellm": "clients",
}
"""Packages that only comparisons need, and the dependency group that brings each."""


class _WithoutPeer(pytest.Module):
    """A test module whose peer is not installed."""

    peer = ""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        pytest.skip(
            f"{self.peer} is not installed: pip install --group {_PEERS[self.peer]}", allow_module_level=True
        )


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip, with its reason, a module that imports a peer which this machine lacks."""
    for peer in _peers_of(module_path, set()):
        if find_spec(peer) is None:
            module: _WithoutPeer = _WithoutPeer.from_parent(parent, path=module_path)
            module.peer = peer
            return module
    return None


def _peers_of(module_path: Path, seen: set[Path]) -> Iterator[str]:
    """The peers that a module imports at its top, itself or through the tests' own modules."""
    seen.add(module_path)
    for name in _imports(module_path):
        if name == "parity.llamacpp":
            yield "xllamacpp"  # it loads the wheel's library without importing the package
        elif name.partition(".")[0] in _PEERS:
            yield name.partition(".")[0]
        own = (_TESTS / name.replace(".", "/")).with_suffix(".py")
        if own.is_file() and own not in seen:
            yield from _peers_of(own, seen)


def _imports(module_path: Path) -> Iterator[str]:
    for node in ast.parse(module_path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
