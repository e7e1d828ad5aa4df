"""The download engine against a real server that misbehaves, one failure class a test."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fetch import servers
from e2e.fetch.servers import FileServer
from minfer.core.errors import MinferError, TransferError
from minfer.fetch.download import (
    AnswerError,
    ChecksumError,
    Credentials,
    DestinationTakenError,
    FileJob,
    HttpClient,
    HttpStatusError,
    NetworkError,
    NetworkSettings,
    NotAModelError,
    RateLimitedError,
    RedirectRefusedError,
    RetryPolicy,
    SizeMismatchError,
    StalledError,
    TlsError,
    download,
    partial_directory,
)
from minfer.fetch.download.partial import Partial
from minfer.fetch.publish import CacheNotWritableError, NoSpaceError
from minfer.store.progress import Progress, ignore_progress
from minfer.store.records import Record, read_record

N_BYTES = 700_001
BODY = b"GGUF" + random.Random(1).randbytes(N_BYTES - 4)
OTHER_BODY = b"GGUF" + random.Random(2).randbytes(N_BYTES - 4)
PATH = "hf/acme/tiny/tiny.gguf"
FAST = RetryPolicy(first_wait_s=0.01, longest_wait_s=0.02)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with servers.serving({"/tiny.gguf": BODY}) as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "models"


def job_for(server: FileServer, *, sha256: str | None = None, path: str = "/tiny.gguf") -> FileJob:
    body = server.files[path]
    digest = hashlib.sha256(body).hexdigest() if sha256 is None else sha256
    return FileJob(server.url + path, Record(PATH, len(body), digest, "hf:acme/tiny"))


def client(stall_s: float = 5.0) -> HttpClient:
    return HttpClient(NetworkSettings(stall_s=stall_s), retry=FAST)


def fetch(job: FileJob, cache: Path, stall_s: float = 5.0) -> Path:
    return download([job], cache, client(stall_s), ignore_progress)[0]


def assert_nothing_final(cache: Path) -> None:
    assert not list(cache.rglob("*.gguf"))


def test_a_file_arrives_whole_with_its_record_and_nothing_else_is_left(
    server: FileServer, cache: Path
) -> None:
    path = fetch(job_for(server), cache)
    assert path == cache / PATH
    assert path.read_bytes() == BODY
    record = read_record(cache, PATH)
    assert record is not None
    assert record.sha256 == hashlib.sha256(BODY).hexdigest()
    assert record.fits(path.stat())
    assert list(partial_directory(cache).iterdir()) == []


RECOVERABLE: dict[str, list[servers.Fault]] = {
    "cut in the middle": [servers.cut_after(300_000)],
    "cut three times": [servers.cut_after(200_000)] * 3,
    "cut at the first byte": [servers.cut_after(1)],
    "no answer at all": [servers.no_answer, servers.no_answer],
    "range ignored": [servers.cut_after(300_000), servers.ignore_range],
    "range ignored and cut again": [
        servers.cut_after(300_000),
        servers.cut_after(1),
        servers.ignore_range,
    ],
    "wrong range": [servers.cut_after(300_000), servers.wrong_range],
    "range not named": [servers.cut_after(300_000), servers.no_content_range],
    "416 in the middle": [servers.cut_after(300_000), servers.status(416)],
    "other bytes in a range": [servers.cut_after(300_000), servers.silent_shift],
    "503 then 500": [servers.status(503, {"Retry-After": "0"}), servers.status(500)],
    "429": [servers.status(429, {"Retry-After": "0"})],
    "a web page first": [servers.web_page],
    "too short an answer first": [servers.short_length],
    "compressed first": [servers.compressed],
    "in chunks without a length": [servers.chunked],
    "in chunks, cut": [servers.chunked_cut],
    "more than announced": [servers.chunked_long],
    "in very small pieces": [servers.small_pieces],
    "another storage mark, same bytes": [servers.cut_after(300_000), servers.changed_etag],
}


@pytest.mark.parametrize("name", RECOVERABLE)
def test_passing_faults_end_in_the_right_file(name: str, server: FileServer, cache: Path) -> None:
    server.faults.extend(RECOVERABLE[name])
    assert fetch(job_for(server), cache).read_bytes() == BODY
    assert not server.faults


LASTING: dict[str, tuple[servers.Fault, type[MinferError]]] = {
    "always cut": (servers.cut_after(10), NetworkError),
    "never an answer": (servers.no_answer, NetworkError),
    "web page": (servers.web_page, NotAModelError),
    "web page of the right length": (servers.disguised_page, NotAModelError),
    "half of it": (servers.short_length, SizeMismatchError),
    "compressed": (servers.compressed, AnswerError),
    "429": (servers.status(429, {"Retry-After": "0"}), RateLimitedError),
    "429 for an hour": (servers.status(429, {"Retry-After": "3600"}), RateLimitedError),
    "500": (servers.status(500), HttpStatusError),
    "404": (servers.status(404), HttpStatusError),
    "401": (servers.status(401), HttpStatusError),
    "other bytes": (servers.silent_shift, NotAModelError),
}


@pytest.mark.parametrize("name", LASTING)
def test_lasting_faults_end_in_their_error_and_no_file(name: str, server: FileServer, cache: Path) -> None:
    fault, kind = LASTING[name]
    server.faults.extend([fault] * 20)
    with pytest.raises(kind) as caught:
        fetch(job_for(server), cache)
    assert str(server.port) in caught.value.fact or kind is NotAModelError
    assert_nothing_final(cache)


def test_a_long_retry_after_is_told_and_not_waited_for(server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.status(429, {"Retry-After": "3600"})] * 20)
    began = time.monotonic()
    with pytest.raises(RateLimitedError) as caught:
        fetch(job_for(server), cache)
    assert time.monotonic() - began < 5
    assert "3600 s" in caught.value.hint
    assert len(server.seen) == 1


def test_retry_after_is_waited_for(server: FileServer, cache: Path) -> None:
    server.faults.append(servers.status(503, {"Retry-After": "1"}))
    began = time.monotonic()
    fetch(job_for(server), cache)
    assert time.monotonic() - began >= 1


def test_a_wrong_digest_is_refused_and_nothing_is_kept(server: FileServer, cache: Path) -> None:
    with pytest.raises(ChecksumError) as caught:
        fetch(job_for(server, sha256="0" * 64), cache)
    assert hashlib.sha256(BODY).hexdigest() in caught.value.fact
    assert server.n_requests("/tiny.gguf") == 1
    assert_nothing_final(cache)
    assert not list(partial_directory(cache).glob("*.partial"))


def test_a_resumed_download_asks_for_the_rest_only(server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.cut_after(400_000), *[servers.status(404)] * 2])
    with pytest.raises(HttpStatusError):
        fetch(job_for(server), cache)
    server.faults.clear()
    server.seen.clear()
    assert fetch(job_for(server), cache).read_bytes() == BODY
    assert [seen.range for seen in server.seen] == ["bytes=400000-"]


def test_a_whole_partial_needs_no_request(server: FileServer, cache: Path) -> None:
    job = job_for(server)
    fetch(job, cache)
    partial = partial_directory(cache) / f"{job.key}.partial"
    server.faults.extend([servers.cut_after(N_BYTES - 1), servers.status(404)])
    (cache / PATH).unlink()
    with pytest.raises(HttpStatusError):
        fetch(job, cache)
    with partial.open("ab") as file:
        file.write(BODY[-1:])
    server.seen.clear()
    assert fetch(job, cache).read_bytes() == BODY
    assert server.seen == []


def test_a_damaged_prefix_is_found_at_the_end_and_fetched_again(server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.cut_after(400_000), servers.status(404)])
    job = job_for(server)
    with pytest.raises(HttpStatusError):
        fetch(job, cache)
    with (partial_directory(cache) / f"{job.key}.partial").open("r+b") as file:
        file.seek(1000)
        file.write(b"XXXX")
    assert fetch(job, cache).read_bytes() == BODY


@pytest.mark.parametrize("size", [N_BYTES + 1, 10 * N_BYTES])
def test_a_partial_longer_than_the_file_does_no_harm(size: int, server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.cut_after(400_000), servers.status(404)])
    job = job_for(server)
    with pytest.raises(HttpStatusError):
        fetch(job, cache)
    os.truncate(partial_directory(cache) / f"{job.key}.partial", size)
    assert fetch(job, cache).read_bytes() == BODY


@pytest.mark.parametrize("journal", [b"", b"{", b"[]", b'{"version": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_a_senseless_journal_does_no_harm(journal: bytes, server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.cut_after(400_000), servers.status(404)])
    job = job_for(server)
    with pytest.raises(HttpStatusError):
        fetch(job, cache)
    (partial_directory(cache) / f"{job.key}.json").write_bytes(journal)
    assert fetch(job, cache).read_bytes() == BODY


def test_without_a_digest_the_servers_mark_guards_a_resumption(server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.cut_after(400_000), servers.status(404)])
    job = job_for(server, sha256="")
    with pytest.raises(HttpStatusError):
        fetch(job, cache)
    server.files["/tiny.gguf"] = OTHER_BODY
    assert fetch(job, cache).read_bytes() == OTHER_BODY
    assert server.etag_of(BODY) in [seen.headers.get("If-Range") for seen in server.seen]


def test_a_stall_is_noticed_and_the_download_goes_on(server: FileServer, cache: Path) -> None:
    server.faults.append(servers.hang(20, n_bytes=100_000))
    began = time.monotonic()
    assert fetch(job_for(server), cache, stall_s=0.5).read_bytes() == BODY
    assert time.monotonic() - began < 5


def test_a_drip_too_slow_to_be_a_download_is_an_error(server: FileServer, cache: Path) -> None:
    server.faults.extend([servers.drip(20, piece=2)] * 10)
    with pytest.raises(StalledError):
        fetch(job_for(server), cache, stall_s=0.3)
    assert_nothing_final(cache)


def test_an_expired_signed_address_is_asked_for_anew(server: FileServer, cache: Path) -> None:
    signatures = iter(range(100))

    def resolve(exchange: servers.Exchange) -> None:
        servers.redirect(f"{server.other_url}/tiny.gguf?sig={next(signatures)}")(exchange)

    server.routes["/resolve"] = resolve
    server.faults.extend([servers.cut_after(300_000), servers.status(403)])
    record = job_for(server).record
    job = FileJob(f"{server.url}/resolve/tiny.gguf", record, Credentials("hf_secret", server.url))
    assert fetch(job, cache).read_bytes() == BODY
    addresses = [seen.path for seen in server.seen if seen.path.startswith("/tiny")]
    assert addresses == ["/tiny.gguf?sig=0", "/tiny.gguf?sig=1", "/tiny.gguf?sig=2"]
    for seen in server.seen:
        assert bool(seen.authorization) == seen.path.startswith("/resolve")


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "gopher://x",
        "http://user:pw@127.0.0.1/x",
        "http://[::1",
    ],
)
def test_redirects_out_of_the_web_are_refused(target: str, server: FileServer, cache: Path) -> None:
    server.routes["/resolve"] = servers.redirect(target)
    job = FileJob(f"{server.url}/resolve/tiny.gguf", job_for(server).record)
    with pytest.raises(RedirectRefusedError):
        fetch(job, cache)


def test_redirects_in_a_circle_end(server: FileServer, cache: Path) -> None:
    server.routes["/resolve"] = servers.redirect("/resolve/again")
    with pytest.raises(AnswerError, match="more than 10 times"):
        fetch(FileJob(f"{server.url}/resolve/tiny.gguf", job_for(server).record), cache)


def test_a_netrc_entry_is_never_sent(
    server: FileServer, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    fetch(job_for(server), cache)
    assert server.seen[0].authorization == ""


def test_no_room_is_said_before_the_first_byte(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_for(server)
    huge = FileJob(job.url, Record(PATH, 1 << 60, job.record.sha256))
    with pytest.raises(NoSpaceError):
        fetch(huge, cache)
    assert server.seen == []


def test_a_disk_that_fills_up_keeps_what_is_there(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    written = [0]

    def full(descriptor: int, data: bytes) -> int:
        if written[0] > 300_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written[0] += len(data)
        return write(descriptor, data)

    server.bytes_per_s = 2_000_000
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NoSpaceError):
        fetch(job_for(server), cache)
    monkeypatch.undo()
    assert_nothing_final(cache)
    server.seen.clear()
    assert fetch(job_for(server), cache).read_bytes() == BODY
    assert int(server.seen[0].range.removeprefix("bytes=").rstrip("-")) > 300_000


def test_another_file_of_that_name_is_left_alone(server: FileServer, cache: Path) -> None:
    path = cache / PATH
    path.parent.mkdir(parents=True)
    path.write_bytes(OTHER_BODY)
    with pytest.raises(DestinationTakenError):
        fetch(job_for(server), cache)
    assert path.read_bytes() == OTHER_BODY
    assert server.seen == []


def test_the_right_file_of_that_name_is_used(server: FileServer, cache: Path) -> None:
    path = cache / PATH
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    assert fetch(job_for(server), cache) == path
    assert server.seen == []


def test_a_planted_link_in_place_of_the_partial_is_not_followed(
    server: FileServer, cache: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    job = job_for(server)
    partial_directory(cache).mkdir(parents=True)
    (partial_directory(cache) / f"{job.key}.partial").symlink_to(victim)
    with pytest.raises(TransferError):
        fetch(job, cache)
    assert victim.read_bytes() == b"precious"


def split_jobs(server: FileServer, n_parts: int) -> list[FileJob]:
    jobs = []
    for number in range(1, n_parts + 1):
        name = f"big-{number:05}-of-{n_parts:05}.gguf"
        body = b"GGUF" + random.Random(number).randbytes(100_000)
        server.files[f"/{name}"] = body
        record = Record(f"hf/acme/big/{name}", len(body), hashlib.sha256(body).hexdigest())
        jobs.append(FileJob(f"{server.url}/{name}", record))
    return jobs


def test_a_split_set_arrives_as_one(server: FileServer, cache: Path) -> None:
    jobs = split_jobs(server, 5)
    paths = download(jobs, cache, client(), ignore_progress, n_jobs=3)
    assert [path.read_bytes() for path in paths] == [server.files[f"/{job.label}"] for job in jobs]


def test_no_part_of_a_set_is_visible_before_all_are_here(server: FileServer, cache: Path) -> None:
    jobs = split_jobs(server, 3)
    missing = server.files.pop(f"/{jobs[2].label}")
    with pytest.raises(HttpStatusError):
        download(jobs, cache, client(), ignore_progress, n_jobs=1)
    assert_nothing_final(cache)
    server.files[f"/{jobs[2].label}"] = missing
    server.seen.clear()
    download(jobs, cache, client(), ignore_progress)
    assert [seen.path for seen in server.seen] == [f"/{jobs[2].label}"]


def test_twice_the_same_content_under_two_names(server: FileServer, cache: Path) -> None:
    job = job_for(server)
    twin = FileJob(job.url, Record("hf/acme/tiny/twin.gguf", N_BYTES, job.record.sha256))
    paths = download([job, twin], cache, client(), ignore_progress)
    assert [path.read_bytes() for path in paths] == [BODY, BODY]
    assert len(server.seen) == 1


def test_two_threads_share_one_download(server: FileServer, cache: Path) -> None:
    server.bytes_per_s = 1_000_000
    heard: list[list[Progress]] = [[], []]
    threads = [
        threading.Thread(target=download, args=([job_for(server)], cache, client(), events.append))
        for events in heard
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache / PATH).read_bytes() == BODY
    assert len(server.seen) == 1
    waiter = next(events for events in heard if "another process" in events[0].note)
    assert any(0 < (event.n_done or 0) < N_BYTES for event in waiter)


def test_a_listener_that_raises_stops_the_download_and_keeps_its_bytes(
    server: FileServer, cache: Path
) -> None:
    server.bytes_per_s = 400_000

    def impatient(event: Progress) -> None:
        if (event.n_done or 0) > 200_000:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        download([job_for(server)], cache, client(), impatient)
    assert time.monotonic() - began < 3
    assert_nothing_final(cache)
    server.bytes_per_s = 0
    server.seen.clear()
    assert fetch(job_for(server), cache).read_bytes() == BODY
    assert int(server.seen[0].range.removeprefix("bytes=").rstrip("-")) > 200_000


FAULT_MENU = (
    servers.cut_after(50_000),
    servers.cut_after(123_457),
    servers.cut_after(0),
    servers.no_answer,
    servers.ignore_range,
    servers.wrong_range,
    servers.no_content_range,
    servers.silent_shift,
    servers.web_page,
    servers.disguised_page,
    servers.short_length,
    servers.compressed,
    servers.chunked,
    servers.chunked_cut,
    servers.chunked_long,
    servers.changed_etag,
    servers.status(401),
    servers.status(403),
    servers.status(404),
    servers.status(416),
    servers.status(429, {"Retry-After": "0"}),
    servers.status(503),
    servers.redirect("/tiny.gguf"),
    servers.hang(0.4, 30_000),
)


@pytest.mark.parametrize("seed", range(200))
def test_random_faults_end_in_the_right_file_or_a_clear_error(
    seed: int, server: FileServer, cache: Path
) -> None:
    chance = random.Random(seed)
    server.faults.extend(chance.choices(FAULT_MENU, k=chance.randint(1, 8)))
    error: TransferError | None = None
    try:
        fetch(job_for(server), cache, stall_s=0.2)
    except TransferError as caught:
        error = caught
    finals = [path.read_bytes() for path in cache.rglob("*.gguf")]
    assert finals == ([] if error else [BODY])
    assert error is None or error.fact


def test_where_no_lock_works_two_downloads_share_nothing(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", lambda descriptor, operation: None)
    server.bytes_per_s = 2_000_000
    threads = [threading.Thread(target=fetch, args=(job_for(server), cache)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache / PATH).read_bytes() == BODY
    assert [seen.range for seen in server.seen] == ["", ""]


def test_an_empty_file_is_no_model(server: FileServer, cache: Path) -> None:
    server.files["/tiny.gguf"] = b""
    with pytest.raises(NotAModelError):
        fetch(job_for(server), cache)
    assert_nothing_final(cache)


def test_a_source_folder_on_another_disk_works(server: FileServer, cache: Path, tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    with tempfile.TemporaryDirectory(dir=memory) as other:
        cache.mkdir()
        (cache / "hf").symlink_to(other)
        path = fetch(job_for(server), cache)
        assert path.read_bytes() == BODY
        assert path.stat().st_dev == memory.stat().st_dev
        assert len(list(path.parent.iterdir())) == 1
    assert list(partial_directory(cache).iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_before_the_first_byte(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = cache / "hf"
    forbidden.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != forbidden)  # root may write anywhere
    with pytest.raises(CacheNotWritableError):
        fetch(job_for(server), cache)
    assert server.seen == []


def test_a_proxy_is_used_except_where_it_is_not_wanted(server: FileServer, cache: Path) -> None:
    def as_proxy(exchange: servers.Exchange) -> None:
        exchange.body = BODY
        exchange.answer_well()

    server.routes["http://models.example/"] = as_proxy
    settings = NetworkSettings.from_environment({"http_proxy": server.url, "no_proxy": "127.0.0.1"})
    record = job_for(server).record
    job = FileJob("http://models.example/tiny.gguf", record, Credentials("hf_x", "https://huggingface.co"))
    path = download([job], cache, HttpClient(settings, retry=FAST), ignore_progress)[0]
    assert path.read_bytes() == BODY
    assert server.seen[-1].path == "http://models.example/tiny.gguf"
    path.unlink()
    download([job_for(server)], cache, HttpClient(settings, retry=FAST), ignore_progress)
    assert server.seen[-1].path == "/tiny.gguf"


@pytest.fixture
def secure_server(tmp_path: Path) -> Iterator[tuple[FileServer, Path]]:
    """A server with a certificate of its own for 127.0.0.1, and that certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *words.split(), *extension, *files], check=True, capture_output=True)
    with FileServer({"/tiny.gguf": BODY}, certificate=(certificate, key)) as server:
        yield server, certificate


def test_an_unknown_certificate_is_refused_and_a_named_one_accepted(
    secure_server: tuple[FileServer, Path], cache: Path
) -> None:
    server, certificate = secure_server
    with pytest.raises(TlsError) as caught:
        fetch(job_for(server), cache)
    assert "REQUESTS_CA_BUNDLE" in caught.value.hint
    settings = NetworkSettings.from_environment({"REQUESTS_CA_BUNDLE": str(certificate)})
    server.faults.append(servers.cut_after(300_000))
    path = download([job_for(server)], cache, HttpClient(settings, retry=FAST), ignore_progress)[0]
    assert path.read_bytes() == BODY


def test_https_never_becomes_http(
    secure_server: tuple[FileServer, Path], server: FileServer, cache: Path
) -> None:
    secure, certificate = secure_server
    secure.routes["/resolve"] = servers.redirect(f"{server.url}/tiny.gguf")
    settings = NetworkSettings.from_environment({"REQUESTS_CA_BUNDLE": str(certificate)})
    job = FileJob(f"{secure.url}/resolve", job_for(server).record, Credentials("hf_x", secure.url))
    with pytest.raises(RedirectRefusedError):
        download([job], cache, HttpClient(settings, retry=FAST), ignore_progress)
    assert server.seen == []


def test_certificates_that_are_not_there_are_named(
    secure_server: tuple[FileServer, Path], cache: Path
) -> None:
    settings = NetworkSettings.from_environment({"REQUESTS_CA_BUNDLE": "/nowhere/certificates.pem"})
    with pytest.raises(TlsError, match="are not there"):
        download([job_for(secure_server[0])], cache, HttpClient(settings, retry=FAST), ignore_progress)


def test_a_proxy_that_is_not_there_is_blamed(cache: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{unused.getsockname()[1]}"
    client = HttpClient(NetworkSettings.from_environment({"all_proxy": proxy}), retry=FAST)
    with pytest.raises(NetworkError, match="the proxy does not connect"):
        client.get("http://models.example/x")


def test_a_disk_that_fails_while_syncing_ends_the_download(
    server: FileServer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems that allocate late report a full disk or quota only when data is synced."""

    def fail(partial: Partial, offset: int, digest: str) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr("minfer.fetch.download.partial.CHECKPOINT_BYTES", 100_000)
    monkeypatch.setattr(Partial, "_sync_checkpoint", fail)
    server.bytes_per_s = 4_000_000
    with pytest.raises(NoSpaceError):
        fetch(job_for(server), cache)
    assert_nothing_final(cache)
