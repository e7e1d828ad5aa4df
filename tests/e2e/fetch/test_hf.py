"""The Hugging Face source against a Hub on loopback."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.fetch import servers
from e2e.fetch.hub import COMMIT, Hub, Repository
from minfer.core.errors import MinferError
from minfer.core.reference import HubReference, parse_reference
from minfer.fetch.download import (
    AccessDeniedError,
    AnswerError,
    GatedModelError,
    HostileNameError,
    HttpStatusError,
    RateLimitedError,
    RedirectRefusedError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from minfer.fetch.sources import SOURCES, Plan
from minfer.fetch.sources.hf import BadEndpointError, HubSource
from minfer.store.progress import Progress, ignore_progress
from minfer.store.quant_choice import AmbiguousQuantError, IncompleteSetError, NoSuchQuantError
from minfer.store.records import read_record
from minfer.store.settings import Settings


def gguf(seed: int, n_bytes: int = 50_000) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(n_bytes - 4)


TINY = {
    "README.md": b"# tiny",
    "tiny-Q4_0.gguf": gguf(1),
    "tiny-Q8_0.gguf": gguf(2),
    "mmproj-tiny-F16.gguf": gguf(3),
    "UD-Q4_K_XL/tiny-UD-Q4_K_XL-00001-of-00002.gguf": gguf(4),
    "UD-Q4_K_XL/tiny-UD-Q4_K_XL-00002-of-00002.gguf": gguf(5),
}


@pytest.fixture
def hub() -> Iterator[Hub]:
    with servers.serving({}) as server:
        repositories = {
            "acme/tiny-GGUF": Repository(dict(TINY)),
            "acme/one": Repository({"one.gguf": gguf(6)}),
            "acme/secret": Repository({"secret.gguf": gguf(7)}, token="hf_right"),
            "acme/gated": Repository({"gated.gguf": gguf(8)}, token="hf_right", is_gated=True),
            "acme/half": Repository({"half-Q4_0-00001-of-00003.gguf": gguf(9)}),
        }
        yield Hub(server, repositories, renamed={"acme/old": "acme/one"})


def settings_for(hub: Hub, tmp_path: Path, **environment: str) -> Settings:
    return Settings.of(
        {
            "MINFER_MODEL_DIR": str(tmp_path / "models"),
            "HOME": str(tmp_path),
            "HF_ENDPOINT": hub.server.url + "/",
            **environment,
        }
    )


def plan_of(text: str, settings: Settings) -> Plan:
    reference = parse_reference(text)
    assert isinstance(reference, HubReference)
    return HubSource().plan(reference, settings)


def pull(text: str, settings: Settings, heard: list[Progress] | None = None) -> Path:
    source = SOURCES[HubReference]()
    plan = source.plan(parse_reference(text), settings)
    return source.fetch(plan, settings, ignore_progress if heard is None else heard.append)


def test_a_quant_is_found_by_one_listing_and_fetched_pinned_to_its_commit(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    path = pull("hf:acme/tiny-GGUF:q4_0", settings)
    assert path == settings.cache / "hf/acme/tiny-GGUF/tiny-Q4_0.gguf"
    assert path.read_bytes() == TINY["tiny-Q4_0.gguf"]
    record = read_record(settings.cache, "hf/acme/tiny-GGUF/tiny-Q4_0.gguf")
    assert record is not None
    assert (record.source, record.revision) == ("hf:acme/tiny-GGUF", COMMIT)
    paths = [seen.path.partition("?")[0] for seen in hub.server.seen]
    assert paths[:2] == [
        "/api/models/acme/tiny-GGUF",
        f"/acme/tiny-GGUF/resolve/{COMMIT}/tiny-Q4_0.gguf",
    ]
    assert len(paths) == 3


def test_a_split_set_keeps_its_folder_and_names(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    path = pull("hf:acme/tiny-GGUF:UD-Q4_K_XL", settings)
    folder = settings.cache / "hf/acme/tiny-GGUF/UD-Q4_K_XL"
    assert path == folder / "tiny-UD-Q4_K_XL-00001-of-00002.gguf"
    assert sorted(part.name for part in folder.iterdir()) == [
        "tiny-UD-Q4_K_XL-00001-of-00002.gguf",
        "tiny-UD-Q4_K_XL-00002-of-00002.gguf",
    ]


def test_the_name_of_a_part_means_the_whole_set(hub: Hub, tmp_path: Path) -> None:
    plan = plan_of("hf:acme/tiny-GGUF:tiny-UD-Q4_K_XL-00002-of-00002.gguf", settings_for(hub, tmp_path))
    assert [file.path.rpartition("-")[0][-8:] for file in plan.files] == ["00001-of", "00002-of"]


def test_a_plan_says_what_a_dry_run_prints(hub: Hub, tmp_path: Path) -> None:
    plan = plan_of("hf:acme/tiny-GGUF:UD-Q4_K_XL", settings_for(hub, tmp_path))
    assert plan.n_bytes == 100_000
    assert plan.revision == COMMIT
    assert all(file.sha256 and file.n_bytes == 50_000 for file in plan.files)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("hf:acme/tiny-GGUF", AmbiguousQuantError, "hf:acme/tiny-GGUF:Q4_0"),
        ("hf:acme/tiny-GGUF:Q4_K_XL", NoSuchQuantError, "UD-Q4_K_XL"),
        ("hf:acme/half:Q4_0", IncompleteSetError, "half-Q4_0-00002-of-00003.gguf"),
        ("hf:acme/none", RepositoryNotFoundError, "HF_TOKEN"),
        ("hf:acme/secret", RepositoryNotFoundError, "HF_TOKEN"),
        ("hf:acme/gated", GatedModelError, "accept the terms"),
        ("hf:acme/one@nowhere", RevisionNotFoundError, "hf:acme/one@nowhere"),
    ],
)
def test_each_refusal_has_its_own_error(
    text: str, error: type[MinferError], words: str, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        pull(text, settings_for(hub, tmp_path))
    assert words in caught.value.render()


@pytest.mark.parametrize("text", ["hf:acme/secret", "hf:acme/gated"])
@pytest.mark.parametrize("where", ["variable", "file", "hf_home", "token_path"])
def test_a_token_opens_what_is_closed_and_stays_with_the_hub(
    text: str, where: str, hub: Hub, tmp_path: Path
) -> None:
    token_file = tmp_path / ".cache/huggingface/token"
    environment = {
        "variable": {"HF_TOKEN": "hf_right"},
        "file": {},
        "hf_home": {"HF_HOME": str(token_file.parent)},
        "token_path": {"HF_TOKEN_PATH": str(token_file)},
    }[where]
    token_file.parent.mkdir(parents=True)
    token_file.write_text("hf_wrong\n" if where == "variable" else "hf_right\n")
    assert pull(text, settings_for(hub, tmp_path, **environment)).exists()
    for seen in hub.server.seen:
        is_storage = seen.path.startswith("/storage/")
        assert seen.authorization == ("" if is_storage else "Bearer hf_right")


def test_a_wrong_token_is_called_wrong(hub: Hub, tmp_path: Path) -> None:
    hub.server.routes["/api/models/"] = servers.json_answer(
        {"error": "Invalid credentials in Authorization header"}, status=401
    )
    with pytest.raises(AccessDeniedError) as caught:
        pull("hf:acme/one", settings_for(hub, tmp_path, HF_TOKEN="hf_wrong"))
    assert "unset HF_TOKEN" in caught.value.hint
    assert "hf_wrong" not in caught.value.render()


def test_a_disabled_repository_is_called_disabled(hub: Hub, tmp_path: Path) -> None:
    hub.server.routes["/api/models/"] = servers.json_answer(
        {"error": "Access to this resource is disabled."}, status=403
    )
    with pytest.raises(AccessDeniedError, match="disabled"):
        pull("hf:acme/one", settings_for(hub, tmp_path))


def test_a_rate_limit_names_the_time_and_the_token(hub: Hub, tmp_path: Path) -> None:
    hub.server.routes["/api/models/"] = servers.status(429, {"RateLimit": '"api";r=0;t=900'})
    with pytest.raises(RateLimitedError) as caught:
        pull("hf:acme/one", settings_for(hub, tmp_path))
    assert "901 s" in caught.value.hint
    assert "HF_TOKEN" in caught.value.hint


def test_a_renamed_repository_is_followed_and_named(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    heard: list[Progress] = []
    path = pull("hf:acme/old", settings, heard)
    assert path == settings.cache / "hf/acme/old/one.gguf"
    assert "this repository is called hf:acme/one now" in [event.note for event in heard]


def test_capitals_do_not_make_a_second_copy(hub: Hub, tmp_path: Path) -> None:
    info = hub.server.routes["/api/models/"]

    def any_case(exchange: servers.Exchange) -> None:
        exchange.handler.path = exchange.handler.path.replace("ACME/One", "acme/one")
        info(exchange)

    hub.server.routes["/api/models/"] = any_case
    settings = settings_for(hub, tmp_path)
    assert pull("hf:ACME/One", settings) == settings.cache / "hf/acme/one/one.gguf"


def test_a_pinned_revision_has_its_own_directory(hub: Hub, tmp_path: Path) -> None:
    settings = settings_for(hub, tmp_path)
    hub.repositories["acme/one"].revisions = {"refs/pr/1": COMMIT}
    path = pull("hf:acme/one@refs/pr/1", settings)
    assert path == settings.cache / "hf/acme/one@refs%2Fpr%2F1/one.gguf"
    assert hub.server.seen[0].path == "/api/models/acme/one/revision/refs%2Fpr%2F1?blobs=true"


def test_without_lengths_in_the_listing_the_paged_tree_is_read(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["acme/tiny-GGUF"].lengths_in_info = False
    hub.page_length = 2
    path = pull("hf:acme/tiny-GGUF:Q8_0", settings_for(hub, tmp_path))
    assert path.read_bytes() == TINY["tiny-Q8_0.gguf"]
    assert sum("/tree/" in seen.path for seen in hub.server.seen) == 3


def test_a_tree_that_continues_elsewhere_is_not_followed(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["acme/one"].lengths_in_info = False
    elsewhere = {"Link": f'<{hub.server.other_url}/api/models/x>; rel="next"'}
    hub.server.routes = {
        "/api/models/acme/one/tree": servers.json_answer([], headers=elsewhere),
        **hub.server.routes,
    }
    with pytest.raises(AnswerError, match="another host"):
        pull("hf:acme/one", settings_for(hub, tmp_path, HF_TOKEN="hf_right"))


@pytest.mark.parametrize(
    "name",
    [
        "../evil.gguf",
        "/etc/evil.gguf",
        "a/../../evil.gguf",
        "C:\\evil.gguf",
        "\\\\host\\share\\evil.gguf",
        "a//evil.gguf",
        "evil\n.gguf",
        "evil\u202e.gguf",
        "x" * 10_000 + ".gguf",
        "./evil.gguf",
    ],
)
def test_hostile_names_never_become_paths(name: str, hub: Hub, tmp_path: Path) -> None:
    hub.repositories["acme/one"].files = {name: gguf(1)}
    with pytest.raises(HostileNameError):
        pull("hf:acme/one", settings_for(hub, tmp_path))
    assert not list(tmp_path.rglob("*evil*"))


SENSELESS = [
    [],
    {},
    "text",
    {"sha": "main", "siblings": []},
    {"sha": "../../x", "siblings": []},
    {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "size": -1, "lfs": {"sha256": "x", "size": -5}}]},
    {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "size": "many"}, 7, None, {"rfilename": 3}]},
    {"sha": COMMIT, "id": "../..", "siblings": [{"rfilename": "a.gguf", "size": 5}]},
]


@pytest.mark.parametrize("value", SENSELESS)
def test_a_senseless_listing_is_a_clear_error(value: object, hub: Hub, tmp_path: Path) -> None:
    hub.server.routes["/api/models/acme/one/tree"] = servers.json_answer({})
    hub.server.routes = {"/api/models/acme/one/tree": servers.json_answer({}), **hub.server.routes}
    hub.server.routes["/api/models/"] = servers.json_answer(value)
    with pytest.raises(AnswerError):
        pull("hf:acme/one", settings_for(hub, tmp_path))


def test_a_listing_without_end_is_cut_off(hub: Hub, tmp_path: Path) -> None:
    def endless(exchange: servers.Exchange) -> None:
        exchange.head(200, {"Connection": "close"})
        exchange.handler.close_connection = True
        while True:
            exchange.write(b"[" * 1_000_000)

    hub.server.routes["/api/models/"] = endless
    with pytest.raises(AnswerError, match="more than"):
        pull("hf:acme/one", settings_for(hub, tmp_path))


def test_a_login_page_in_the_hubs_place_is_recognised(hub: Hub, tmp_path: Path) -> None:
    hub.server.routes["/api/models/"] = servers.web_page
    with pytest.raises(AnswerError, match="not JSON"):
        pull("hf:acme/one", settings_for(hub, tmp_path))


def test_the_listing_may_not_send_the_token_to_a_file(hub: Hub, tmp_path: Path) -> None:
    hub.server.routes["/api/models/"] = servers.redirect("file:///etc/passwd")
    with pytest.raises(RedirectRefusedError):
        pull("hf:acme/one", settings_for(hub, tmp_path, HF_TOKEN="hf_right"))


def test_a_token_for_a_mirror_is_announced(hub: Hub, tmp_path: Path) -> None:
    heard: list[Progress] = []
    pull("hf:acme/one", settings_for(hub, tmp_path, HF_TOKEN="hf_right"), heard)
    assert any("token goes there" in event.note for event in heard)


def test_an_endpoint_that_is_no_address_is_named(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(BadEndpointError, match="no web address"):
        pull("hf:acme/one", settings_for(hub, tmp_path, HF_ENDPOINT="mirror.example"))


def test_a_listing_of_very_many_models_is_refused_or_answered_soon(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories["acme/one"]
    for n_files, error in ((1500, AmbiguousQuantError), (5000, AnswerError)):
        repository.extra = [{"rfilename": f"m{i}-Q4_0.gguf", "size": 9} for i in range(n_files)]
        began = time.monotonic()
        with pytest.raises(error):
            pull("hf:acme/one", settings_for(hub, tmp_path))
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("code", "headers", "error", "words"),
    [
        (403, {"X-Error-Message": "Token has no read scope"}, AccessDeniedError, "no read scope"),
        (404, {"X-Error-Code": "RepoNotFound"}, RepositoryNotFoundError, "check the spelling"),
        (404, {"X-Error-Code": "EntryNotFound"}, RepositoryNotFoundError, "no longer has that file"),
        (404, {"X-Error-Code": "RevisionNotFound"}, RevisionNotFoundError, "hf:acme/one@main"),
        (401, {"X-Error-Code": "GatedRepo"}, GatedModelError, "accept the terms"),
        (410, {"X-Error-Message": "gone\x1b[2J for good"}, HttpStatusError, "gone?[2J for good"),
    ],
)
def test_a_refusal_in_the_middle_is_told_as_one_at_the_start(
    code: int, headers: dict[str, str], error: type[MinferError], words: str, hub: Hub, tmp_path: Path
) -> None:
    hub.server.routes["/acme/one/resolve/"] = servers.status(code, headers)
    with pytest.raises(error) as caught:
        pull("hf:acme/one", settings_for(hub, tmp_path))
    assert words.replace("?", "") in caught.value.render()


def test_a_file_that_is_kept_outside_the_large_storage_is_checked_by_length(hub: Hub, tmp_path: Path) -> None:
    small = {"rfilename": "small.gguf", "size": 50_000, "blobId": "1" * 40}
    hub.server.routes["/api/models/"] = servers.json_answer(
        {"id": "acme/one", "sha": COMMIT, "siblings": [small]}
    )
    hub.repositories["acme/one"].files["small.gguf"] = gguf(11)
    hub.server.files[f"/storage/{hashlib.sha256(gguf(11)).hexdigest()}"] = gguf(11)
    settings = settings_for(hub, tmp_path)
    assert pull("hf:acme/one", settings).read_bytes() == gguf(11)
    record = read_record(settings.cache, "hf/acme/one/small.gguf")
    assert record is not None
    assert record.sha256 == hashlib.sha256(gguf(11)).hexdigest()
