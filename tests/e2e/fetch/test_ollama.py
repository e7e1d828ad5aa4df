"""The Ollama source against a registry on loopback, and a real OCI registry where one is installed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from e2e.fetch import servers
from e2e.fetch.servers import Exchange, FileServer
from minfer.core.digest import BadDigestError
from minfer.core.errors import MinferError
from minfer.core.reference import OllamaReference, parse_reference
from minfer.fetch.download import (
    AccessDeniedError,
    AnswerError,
    ChecksumError,
    HttpStatusError,
    NetworkError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from minfer.fetch.sources import SOURCES
from minfer.fetch.sources.ollama import NoModelLayerError, base_url
from minfer.store.progress import Progress, ignore_progress
from minfer.store.records import read_record
from minfer.store.settings import Settings

BODY = b"GGUF" + random.Random(3).randbytes(300_000)
HEX = hashlib.sha256(BODY).hexdigest()
MODEL = "application/vnd.ollama.image.model"
MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"


def manifest(*layers: dict[str, Any]) -> dict[str, Any]:
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": f"sha256:{'0' * 64}"}
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {**config, "size": 2},
        "layers": list(layers),
    }


def layer(media_type: str = MODEL, digest: str = f"sha256:{HEX}", size: object = len(BODY)) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


GOOD = manifest(layer("application/vnd.ollama.image.template", f"sha256:{'1' * 64}", 300), layer())


@pytest.fixture
def registry() -> Iterator[FileServer]:
    with servers.serving({f"/storage/{HEX}": BODY}) as server:
        server.routes["/v2/library/tiny/manifests/"] = servers.json_answer(GOOD)

        def blob(exchange: Exchange) -> None:
            servers.redirect(f"{server.other_url}/storage/{HEX}?sig=1", 307)(exchange)

        server.routes[f"/v2/library/tiny/blobs/sha256:{HEX}"] = blob
        yield server


def settings_for(tmp_path: Path, **environment: str) -> Settings:
    return Settings.of(
        {
            "MINFER_MODEL_DIR": str(tmp_path / "models"),
            "HOME": str(tmp_path),
            "OLLAMA_MODELS": str(tmp_path / "ollama"),
            **environment,
        }
    )


def pull(registry: FileServer, settings: Settings, name: str = "library/tiny:1b") -> Path:
    source = SOURCES[OllamaReference]()
    plan = source.plan(parse_reference(f"ollama:127.0.0.1:{registry.port}/{name}"), settings)
    return source.fetch(plan, settings, ignore_progress)


def test_a_model_layer_becomes_a_file(registry: FileServer, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    path = pull(registry, settings)
    relative = f"ollama/127.0.0.1:{registry.port}/library/tiny:1b/model.gguf"
    assert path == settings.cache / relative
    assert path.read_bytes() == BODY
    record = read_record(settings.cache, relative)
    assert record is not None
    assert record.sha256 == HEX
    assert record.revision == hashlib.sha256(json.dumps(GOOD).encode()).hexdigest()
    assert MANIFEST_TYPE in registry.seen[0].headers["Accept"]


def test_plain_http_is_for_this_machine_only() -> None:
    for text, scheme in {
        "ollama:qwen2.5:0.5b": "https://registry.ollama.ai/v2/library/qwen2.5",
        "ollama:localhost:5000/library/x": "http://localhost:5000/v2/library/x",
        "ollama:10.0.0.1:5000/library/x": "https://10.0.0.1:5000/v2/library/x",
        "ollama:registry.example/me/x": "https://registry.example/v2/me/x",
    }.items():
        reference = parse_reference(text)
        assert isinstance(reference, OllamaReference)
        assert base_url(reference) == scheme


BAD: dict[str, tuple[object, type[MinferError]]] = {
    "no object": ([], AnswerError),
    "no layers": ({"schemaVersion": 2}, AnswerError),
    "an index": ({"schemaVersion": 2, "manifests": []}, AnswerError),
    "layers of nonsense": ({"layers": [1, None, "x"]}, NoModelLayerError),
    "no layer": (manifest(), NoModelLayerError),
    "tensors": (manifest(layer("application/vnd.ollama.image.tensor")), NoModelLayerError),
    "two models": (manifest(layer(), layer()), AnswerError),
    "a path as digest": (manifest(layer(digest="../../../../etc/passwd")), BadDigestError),
    "a path in the digest": (manifest(layer(digest=f"sha256:../{'0' * 61}")), BadDigestError),
    "a short digest": (manifest(layer(digest="sha256:00")), BadDigestError),
    "a number as digest": (manifest(layer(digest=7)), BadDigestError),  # type: ignore[arg-type]
    "a negative size": (manifest(layer(size=-1)), AnswerError),
    "a size of words": (manifest(layer(size="big")), AnswerError),
    "a truth as size": (manifest(layer(size=True)), AnswerError),
    "deep nesting": ("x", AnswerError),
}


@pytest.mark.parametrize("name", BAD)
def test_a_senseless_manifest_is_a_clear_error(name: str, registry: FileServer, tmp_path: Path) -> None:
    value, error = BAD[name]
    answer = servers.json_answer(value)
    if name == "deep nesting":
        answer = servers.status(200, body=b"[" * 1_000_000)
    registry.routes = {"/v2/library/tiny/manifests/": answer}
    with pytest.raises(error):
        pull(registry, settings_for(tmp_path))
    assert not list(tmp_path.rglob("*.gguf"))


def test_other_bytes_than_the_digest_are_refused(registry: FileServer, tmp_path: Path) -> None:
    registry.files[f"/storage/{HEX}"] = b"GGUF" + b"x" * (len(BODY) - 4)
    with pytest.raises(ChecksumError):
        pull(registry, settings_for(tmp_path))


def with_tokens(registry: FileServer, realm: str) -> list[str]:
    """Make the registry want a bearer token from `realm`; the queries that came there."""
    asked: list[str] = []
    protected = dict(registry.routes)

    def guard(exchange: Exchange) -> None:
        if exchange.handler.headers.get("Authorization") != f"Bearer token{len(asked)}":
            challenge = f'Bearer realm="{realm}",service="reg",scope="repository:library/tiny:pull"'
            servers.status(401, {"WWW-Authenticate": challenge})(exchange)
            return
        path = exchange.handler.path
        next(route for prefix, route in protected.items() if path.startswith(prefix))(exchange)

    def token(exchange: Exchange) -> None:
        asked.append(exchange.handler.path)
        servers.json_answer({"token": f"token{len(asked)}"})(exchange)

    registry.routes = {"/v2/": guard, "/token": token}
    return asked


def test_an_anonymous_token_is_fetched_and_shown_to_the_registry_only(
    registry: FileServer, tmp_path: Path
) -> None:
    asked = with_tokens(registry, f"{registry.url}/token")
    assert pull(registry, settings_for(tmp_path)).read_bytes() == BODY
    assert asked[0] == "/token?service=reg&scope=repository%3Alibrary%2Ftiny%3Apull"
    for seen in registry.seen:
        assert seen.authorization == "" or seen.path.startswith("/v2/")


def test_a_token_that_expires_in_the_middle_is_renewed(registry: FileServer, tmp_path: Path) -> None:
    asked = with_tokens(registry, f"{registry.url}/token")
    registry.faults.append(servers.cut_after(100_000))
    asked_before = len(asked)
    assert pull(registry, settings_for(tmp_path)).read_bytes() == BODY
    assert len(asked) > asked_before


@pytest.mark.parametrize("realm", ["file:///etc/passwd", "http://auth.example/token", "", "gopher://x/"])
def test_a_realm_that_is_no_safe_address_is_refused(realm: str, registry: FileServer, tmp_path: Path) -> None:
    with_tokens(registry, realm)
    with pytest.raises(AccessDeniedError):
        pull(registry, settings_for(tmp_path))


def test_a_registry_that_always_says_401_is_left(registry: FileServer, tmp_path: Path) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="{registry.url}/token",service="s"'}
    registry.routes = {"/v2/": servers.status(401, challenge), "/token": servers.json_answer({"token": "t"})}
    with pytest.raises(AccessDeniedError):
        pull(registry, settings_for(tmp_path))
    assert len(registry.seen) < 10


def test_a_missing_tag_names_the_others(registry: FileServer, tmp_path: Path) -> None:
    registry.routes = {
        "/v2/library/tiny/manifests/": servers.status(404),
        "/v2/library/tiny/tags/list": servers.json_answer({"tags": ["1b", "../x", 7, "3b-q4_0"]}),
    }
    with pytest.raises(RevisionNotFoundError) as caught:
        pull(registry, settings_for(tmp_path), "library/tiny:9b")
    base = f"ollama:127.0.0.1:{registry.port}/library/tiny"
    assert caught.value.candidates == (f"{base}:1b", f"{base}:3b-q4_0")


def test_a_missing_model_says_so(registry: FileServer, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError, match="does not exist"):
        pull(registry, settings_for(tmp_path), "library/none:1b")


def test_the_registrys_own_words_are_passed_on(registry: FileServer, tmp_path: Path) -> None:
    registry.routes = {"/v2/": servers.json_answer({"error": "sharded GGUF is not supported"}, status=400)}
    with pytest.raises(HttpStatusError, match="sharded GGUF is not supported"):
        pull(registry, settings_for(tmp_path))


def put_blob(tmp_path: Path, body: bytes, name: str = f"sha256-{HEX}") -> Path:
    blob = tmp_path / "ollama/blobs" / name
    blob.parent.mkdir(parents=True)
    blob.write_bytes(body)
    return blob


@pytest.mark.parametrize("name", [f"sha256-{HEX}", f"sha256:{HEX}"])
def test_what_ollama_has_is_linked_and_not_fetched(name: str, registry: FileServer, tmp_path: Path) -> None:
    blob = put_blob(tmp_path, BODY, name)
    path = pull(registry, settings_for(tmp_path))
    assert path.samefile(blob)
    assert not any("/blobs/" in seen.path for seen in registry.seen)


def test_across_file_systems_the_link_is_symbolic(
    registry: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_device(*unused: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    blob = put_blob(tmp_path, BODY)
    monkeypatch.setattr("os.link", other_device)
    path = pull(registry, settings_for(tmp_path))
    assert path.is_symlink()
    assert path.samefile(blob)


@pytest.mark.parametrize("body", [BODY[:-1], b"GGUF" + b"x" * (len(BODY) - 4)])
def test_a_damaged_blob_of_ollama_is_not_used(body: bytes, registry: FileServer, tmp_path: Path) -> None:
    put_blob(tmp_path, body)
    assert pull(registry, settings_for(tmp_path)).read_bytes() == BODY


def test_without_a_network_ollamas_own_manifest_serves(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    stored = tmp_path / f"ollama/manifests/127.0.0.1:{port}/library/tiny/1b"
    stored.parent.mkdir(parents=True)
    stored.write_text(json.dumps(GOOD))
    blob = put_blob(tmp_path, BODY)
    source = SOURCES[OllamaReference]()
    settings = settings_for(tmp_path)
    reference = parse_reference(f"ollama:127.0.0.1:{port}/library/tiny:1b")
    plan = source.plan(reference, settings)
    assert source.fetch(plan, settings, ignore_progress).samefile(blob)
    stored.unlink()
    with pytest.raises(NetworkError):
        source.plan(reference, settings)


@pytest.fixture(scope="module")
def real_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Debian's `docker-registry`, started for these tests."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed (Debian package of that name)")
    directory = tmp_path_factory.mktemp("registry")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    config = directory / "config.yml"
    config.write_text(
        "version: 0.1\nlog: {accesslog: {disabled: true}, level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {directory}/data}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    process = subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until_up(f"http://{address}/v2/")
        yield address
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_up(url: str) -> None:
    for _ in range(100):
        try:
            requests.get(url, timeout=1)
        except requests.ConnectionError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"{url} does not come up")


def push_blob(address: str, name: str, body: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    begun = requests.post(f"http://{address}/v2/{name}/blobs/uploads/", timeout=10)
    location = begun.headers["Location"]
    joint = "&" if "?" in location else "?"
    answer = requests.put(f"{location}{joint}digest={digest}", data=body, timeout=30)
    assert answer.status_code == 201
    return digest


def push_model(address: str, name: str, tag: str, body: bytes) -> None:
    config = b"{}"
    value = manifest(layer(digest=push_blob(address, name, body), size=len(body)))
    value["config"] = {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        "digest": push_blob(address, name, config),
        "size": len(config),
    }
    answer = requests.put(
        f"http://{address}/v2/{name}/manifests/{tag}",
        data=json.dumps(value),
        headers={"Content-Type": MANIFEST_TYPE},
        timeout=10,
    )
    assert answer.status_code == 201, answer.text


def test_a_real_registry_serves_a_model(real_registry: str, tmp_path: Path) -> None:
    body = b"GGUF" + random.Random(4).randbytes(3_000_000)
    push_model(real_registry, "me/real", "1b", body)
    settings = settings_for(tmp_path)
    source = SOURCES[OllamaReference]()
    plan = source.plan(parse_reference(f"ollama:{real_registry}/me/real:1b"), settings)
    assert plan.n_bytes == len(body)
    assert source.fetch(plan, settings, ignore_progress).read_bytes() == body


def test_a_real_registry_names_its_tags(real_registry: str, tmp_path: Path) -> None:
    push_model(real_registry, "me/tagged", "small", BODY)
    source = SOURCES[OllamaReference]()
    with pytest.raises(RevisionNotFoundError) as caught:
        source.plan(parse_reference(f"ollama:{real_registry}/me/tagged:large"), settings_for(tmp_path))
    assert caught.value.candidates == (f"ollama:{real_registry}/me/tagged:small",)


def test_a_real_registry_resumes(real_registry: str, tmp_path: Path) -> None:
    """A partial left by a killed process is completed with a range request that the registry understands."""
    body = b"GGUF" + random.Random(5).randbytes(2_000_000)
    push_model(real_registry, "me/resumed", "1b", body)
    settings = settings_for(tmp_path)
    source = SOURCES[OllamaReference]()
    plan = source.plan(parse_reference(f"ollama:{real_registry}/me/resumed:1b"), settings)

    def give_up(event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.fetch(plan, settings, give_up)
    partial = settings.cache / ".minfer/partial" / f"{plan.files[0].sha256}.partial"
    partial.write_bytes(body[:1_500_000])
    heard: list[Progress] = []
    assert source.fetch(plan, settings, heard.append).read_bytes() == body
    downloaded = [event.n_done for event in heard if not event.label.startswith("check") and event.n_done]
    assert downloaded[0] == 1_500_000


@pytest.mark.parametrize(
    ("token_answer", "error"),
    [
        (servers.status(401), AccessDeniedError),
        (servers.json_answer({"token": 7}), AnswerError),
        (servers.json_answer({"token": "two\nlines"}), AnswerError),
        (servers.json_answer([]), AnswerError),
        (servers.web_page, AnswerError),
    ],
)
def test_a_token_that_cannot_be_had_is_a_clear_error(
    token_answer: servers.Fault, error: type[MinferError], registry: FileServer, tmp_path: Path
) -> None:
    with_tokens(registry, f"{registry.url}/token")
    registry.routes["/token"] = token_answer
    with pytest.raises(error):
        pull(registry, settings_for(tmp_path))


def test_a_registry_that_forbids_is_told_apart(registry: FileServer, tmp_path: Path) -> None:
    registry.routes = {"/v2/": servers.status(403)}
    with pytest.raises(AccessDeniedError):
        pull(registry, settings_for(tmp_path))


@pytest.mark.parametrize("tags", [servers.status(500), servers.json_answer({"tags": 5}), servers.web_page])
def test_a_senseless_list_of_tags_is_no_list(
    tags: servers.Fault, registry: FileServer, tmp_path: Path
) -> None:
    registry.routes = {"/v2/library/tiny/manifests/": servers.status(404), "/v2/library/tiny/tags/list": tags}
    with pytest.raises(RepositoryNotFoundError, match="does not exist"):
        pull(registry, settings_for(tmp_path))
