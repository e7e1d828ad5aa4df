"""The Hugging Face Hub: one listing per repository, pinned to its commit, files fetched by plain HTTP.

`GET /api/models/ORG/REPO[/revision/REV]?blobs=true` answers with the commit and, for each file, its length
and sha256. A Hub (or mirror) that leaves lengths out is asked for the paged tree instead. Files come from
`/ORG/REPO/resolve/COMMIT/PATH`, which redirects to signed storage addresses; those never see the token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote, urljoin

from minfer.core.errors import MinferError, UsageError
from minfer.core.reference import BadReferenceError, HubReference, check_relative_path
from minfer.fetch.download import (
    AccessDeniedError,
    AnswerError,
    Credentials,
    FileJob,
    GatedModelError,
    HostileNameError,
    HttpClient,
    HttpStatusError,
    NetworkSettings,
    RateLimitedError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    download,
)
from minfer.fetch.download.redirects import origin
from minfer.fetch.download.retry import BRIEF
from minfer.fetch.download.start import read_start
from minfer.fetch.sources import Plan, PlannedFile
from minfer.store.file_sets import ListedFile
from minfer.store.layout import directory_of
from minfer.store.progress import OnProgress, Progress
from minfer.store.quant_choice import choose
from minfer.store.records import Record
from minfer.store.settings import Settings, home_directory

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEXT_PAGE = re.compile(r'<([^<>]{1,4096})>\s*;\s*rel="next"')
_MAX_PAGES = 200
_MAX_FILES = 100_000
_MAX_MODELS = 2000  # choosing among them takes a second; real repositories have a hundred


class BadEndpointError(UsageError):
    """HF_ENDPOINT cannot be asked."""

    code = "bad-endpoint"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a listing. `sha256` is '' for small files outside the Hub's large-file storage."""

    path: str
    n_bytes: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit. `repo` is the Hub's own spelling, which a renamed repository changes."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]


class HubSource:
    """`hf:ORG/REPO[:QUANT|:FILE][@REVISION]`."""

    def plan(self, reference: HubReference, settings: Settings) -> Plan:
        """The files that `reference` means at the commit its revision points to now.

        Raises RepositoryNotFoundError, RevisionNotFoundError, GatedModelError, AccessDeniedError,
        RateLimitedError and other DownloadErrors; NoSuchQuantError, AmbiguousQuantError, IncompleteSetError;
        HostileNameError.
        """
        network = _network(settings)
        client = HttpClient(network, retry=BRIEF)
        try:
            listing = _list(client, _credentials(network), reference)
        finally:
            client.close()
        repo = reference.repo
        if listing.repo.lower() == repo.lower():
            repo = listing.repo  # one copy of a model, however its name was capitalised
        files = {file.path: file for file in _usable(listing.files, reference)}
        chosen = choose(
            (ListedFile(file.path, file.n_bytes) for file in files.values()),
            reference.selector,
            f"hf:{reference.repo}",
        )
        directory = directory_of(replace(reference, repo=repo))
        planned = (
            _planned(files[member.path], directory, listing, network.hf_endpoint) for member in chosen.files
        )
        return Plan(reference, directory, tuple(planned), listing.commit)

    def fetch(self, plan: Plan, settings: Settings, on_progress: OnProgress) -> Path:
        """Download the plan's files; the path of the first. Raises as `download`, and as `plan`."""
        reference = plan.reference
        assert isinstance(reference, HubReference)  # the registry maps types to sources
        network = _network(settings)
        if _warns_of_endpoint(network):
            note = f"HF_ENDPOINT is {network.hf_endpoint}: your Hugging Face token goes there"
            on_progress(Progress(str(reference), note=note))
        if (name := _name_in(plan, network)).lower() != reference.repo.lower():
            on_progress(Progress(str(reference), note=f"this repository is called hf:{name} now"))
        jobs = [_job(file, plan, reference, network) for file in plan.files]
        client = HttpClient(network)
        try:
            return download(jobs, settings.cache, client, on_progress, n_jobs=settings.n_jobs)[0]
        finally:
            client.close()

    def read_start(self, plan: Plan, file: PlannedFile, n_bytes: int, settings: Settings) -> bytes:
        """The first `n_bytes` of a file of the repository. Raises as `plan`."""
        reference = plan.reference
        assert isinstance(reference, HubReference)  # the registry maps types to sources
        network = _network(settings)
        client = HttpClient(network, retry=BRIEF)
        try:
            return read_start(_job(file, plan, reference, network), client, n_bytes)
        finally:
            client.close()


def _network(settings: Settings) -> NetworkSettings:
    network = NetworkSettings.from_environment(settings.environment, home_directory(settings.environment))
    if not origin(network.hf_endpoint)[0]:
        raise BadEndpointError(
            f"HF_ENDPOINT is {network.hf_endpoint[:200]!r}, which is no web address",
            hint="write it as https://HOST, or unset it",
        )
    return network


def _credentials(network: NetworkSettings) -> Credentials | None:
    return Credentials(network.hf_token, network.hf_endpoint) if network.hf_token else None


def _warns_of_endpoint(network: NetworkSettings) -> bool:
    host = origin(network.hf_endpoint)[1]
    return bool(network.hf_token) and host not in ("huggingface.co", "hf.co")


def _list(client: HttpClient, credentials: Credentials | None, reference: HubReference) -> Listing:
    base = f"{client.settings.hf_endpoint}/api/models/{quote(reference.repo)}"
    url = f"{base}/revision/{quote(reference.revision, safe='')}" if reference.revision else base
    try:
        answer = client.get(f"{url}?blobs=true", credentials=credentials)
    except HttpStatusError as error:
        raise _explain(reference, client.settings)(error) from error
    values = answer.json()
    if not isinstance(values, dict) or not _COMMIT.fullmatch(str(values.get("sha"))):
        raise AnswerError(
            f"{client.settings.hf_endpoint} does not answer like the Hugging Face Hub",
            hint="check HF_ENDPOINT; a proxy or a login page may be in between",
        )
    commit = str(values["sha"])
    siblings = values.get("siblings")
    files = tuple(_from_siblings(siblings if isinstance(siblings, list) else []))
    if not files or any(file.n_bytes is None for file in files if _is_gguf(file.path)):
        files = tuple(_from_tree(client, credentials, f"{base}/tree/{commit}?recursive=true", reference))
    repo = values.get("id")
    return Listing(repo if isinstance(repo, str) else reference.repo, commit, files)


def _from_siblings(siblings: list[object]) -> Iterator[RemoteFile]:
    for entry in siblings[:_MAX_FILES]:
        if isinstance(entry, dict) and isinstance(path := entry.get("rfilename"), str):
            yield _remote_file(path, entry.get("size"), entry.get("lfs"), "sha256")


def _from_tree(
    client: HttpClient, credentials: Credentials | None, url: str, reference: HubReference
) -> Iterator[RemoteFile]:
    """Every file of the tree, page by page; pages of another host are not followed."""
    for _ in range(_MAX_PAGES):
        try:
            answer = client.get(url, credentials=credentials)
        except HttpStatusError as error:
            raise _explain(reference, client.settings)(error) from error
        entries = answer.json()
        if not isinstance(entries, list):
            raise AnswerError(f"the file list of hf:{reference.repo} is not a list")
        for entry in entries:
            if isinstance(entry, dict) and entry.get("type") == "file" and isinstance(entry.get("path"), str):
                yield _remote_file(entry["path"], entry.get("size"), entry.get("lfs"), "oid")
        found = _NEXT_PAGE.search(answer.headers.get("Link", ""))
        if not found:
            return
        url = urljoin(url, found[1])
        if origin(url) != origin(answer.url):
            raise AnswerError(f"the file list of hf:{reference.repo} continues on another host")
    raise AnswerError(f"the file list of hf:{reference.repo} has more than {_MAX_PAGES} pages")


def _remote_file(path: str, size: object, lfs: object, digest_name: str) -> RemoteFile:
    n_bytes = size if type(size) is int and 0 <= size < 1 << 62 else None
    sha256 = ""
    if isinstance(lfs, dict):
        text = lfs.get(digest_name)
        sha256 = text if isinstance(text, str) and _SHA256.fullmatch(text) else ""
        large_size = lfs.get("size")
        n_bytes = large_size if type(large_size) is int and 0 <= large_size < 1 << 62 else n_bytes
    return RemoteFile(path, n_bytes, sha256)


def _is_gguf(path: str) -> bool:
    return path[-5:].lower() == ".gguf"


def _usable(files: Iterable[RemoteFile], reference: HubReference) -> Iterator[RemoteFile]:
    """The .gguf files whose names may become paths. HostileNameError when only the other kind is there."""
    refused = ""
    n_usable = 0
    for file in files:
        if not _is_gguf(file.path):
            continue
        try:
            check_relative_path(file.path)
        except BadReferenceError:
            refused = file.path
            continue
        n_usable += 1
        if n_usable > _MAX_MODELS:
            raise AnswerError(f"hf:{reference.repo} lists more than {_MAX_MODELS} .gguf files")
        yield file
    if refused and not n_usable:
        raise HostileNameError(f"hf:{reference.repo} lists a file named {refused[:100]!r}, which is refused")


def _name_in(plan: Plan, network: NetworkSettings) -> str:
    """The repository's name in the addresses of `plan`."""
    path = plan.files[0].origin.removeprefix(f"{network.hf_endpoint}/")
    return unquote(path.partition("/resolve/")[0])


def _planned(file: RemoteFile, directory: str, listing: Listing, endpoint: str) -> PlannedFile:
    if file.n_bytes is None:
        raise AnswerError(f"the length of {file.path} is not in the file list of hf:{listing.repo}")
    try:
        check_relative_path(listing.repo)
    except BadReferenceError:
        raise AnswerError(f"{endpoint} calls the repository {listing.repo[:100]!r}") from None
    url = f"{endpoint}/{quote(listing.repo)}/resolve/{listing.commit}/{quote(file.path)}"
    return PlannedFile(f"{directory}/{file.path}", file.n_bytes, file.sha256 or None, url)


def _job(file: PlannedFile, plan: Plan, reference: HubReference, network: NetworkSettings) -> FileJob:
    record = Record(
        path=file.path,
        n_bytes=file.n_bytes or 0,
        sha256=file.sha256 or "",
        source=f"hf:{reference.repo}",
        revision=plan.revision,
        asked=reference.revision or "",
    )
    return FileJob(file.origin, record, _credentials(network), explain=_explain(reference, network))


def _explain(reference: HubReference, network: NetworkSettings) -> Callable[[HttpStatusError], MinferError]:
    """What a refusal of the Hub means for who asked for `reference`."""
    repo = f"hf:{reference.repo}"
    page = f"{network.hf_endpoint}/{reference.repo}"

    def explain(error: HttpStatusError) -> MinferError:
        if isinstance(error, RateLimitedError) and not network.hf_token:
            error.hint += "; HF_TOKEN raises the limit"
        if error.redirected or error.status not in (401, 403, 404):
            return error
        if error.error_code == "GatedRepo":
            return _gated(repo, page, has_token=bool(network.hf_token))
        if error.error_code == "RevisionNotFound":
            revision = f"{repo}@{reference.revision or 'main'}"
            return RevisionNotFoundError(f"{revision} does not exist", hint=f"{page} lists the branches")
        if error.error_code == "EntryNotFound":
            return RepositoryNotFoundError(
                f"{repo} no longer has that file", hint=f"minfer-fetch pull {repo}"
            )
        if error.status == 403:
            return _denied(repo, error)
        return _not_found(repo, error, has_token=bool(network.hf_token))

    return explain


def _gated(repo: str, page: str, *, has_token: bool) -> GatedModelError:
    login = "" if has_token else ", make an access token and put it into HF_TOKEN"
    return GatedModelError(
        f"{repo} is gated: its owner wants terms to be accepted first",
        hint=f"open {page}, accept the terms{login}, then run the same command again",
    )


def _denied(repo: str, error: HttpStatusError) -> AccessDeniedError:
    if "disabled" in error.text.lower():
        return AccessDeniedError(f"{repo} was disabled by the Hub ({error.text})")
    return AccessDeniedError(
        f"the Hub refuses access to {repo} ({error.text or error.status})",
        hint="the token in HF_TOKEN has to be one that may read this repository",
    )


def _not_found(repo: str, error: HttpStatusError, *, has_token: bool) -> MinferError:
    if error.status == 401 and has_token and "credential" in error.text.lower():
        return AccessDeniedError(
            f"the Hub does not accept the Hugging Face token ({error.text})",
            hint="a wrong token closes public repositories too: unset HF_TOKEN or put a valid one there",
        )
    if error.status == 401:
        what = "does not exist, or is private and this token cannot read it"
        hint = "check the spelling"
        if not has_token:
            what = "does not exist, or is private or gated"
            hint += "; for a private or gated repository put an access token into HF_TOKEN"
        return RepositoryNotFoundError(f"{repo} {what}", hint=hint)
    return RepositoryNotFoundError(f"{repo} does not exist", hint="check the spelling on huggingface.co")
