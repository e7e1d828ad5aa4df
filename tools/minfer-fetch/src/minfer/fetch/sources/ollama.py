"""Ollama's registry and every other that speaks the same protocol: a manifest names the model's blob.

`GET /v2/NAMESPACE/MODEL/manifests/TAG` lists layers with media type, digest and length; the model is
`/v2/NAMESPACE/MODEL/blobs/sha256:HEX`. A registry that wants a token says where to get one
(WWW-Authenticate); minfer asks for it
without a name. A blob that Ollama itself has on this machine is linked, not fetched.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from minfer.core.digest import Digest
from minfer.core.errors import MinferError
from minfer.core.reference import DEFAULT_REGISTRY, OllamaReference
from minfer.core.units import human_bytes
from minfer.fetch.download import (
    AccessDeniedError,
    Answer,
    AnswerError,
    Credentials,
    DownloadError,
    FileJob,
    HttpClient,
    HttpStatusError,
    NetworkError,
    NetworkSettings,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    download,
)
from minfer.fetch.download.redirects import is_inside, is_loopback, origin
from minfer.fetch.download.retry import BRIEF
from minfer.fetch.download.start import read_start
from minfer.fetch.ollama_store import link_blob, local_manifest
from minfer.fetch.sources import Plan, PlannedFile
from minfer.store.layout import directory_of
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record
from minfer.store.settings import Settings, home_directory

MODEL_LAYERS = ("application/vnd.ollama.image.model", "application/vnd.docker.ai.gguf.v3")
_TENSOR_LAYER = "application/vnd.ollama.image.tensor"
_ACCEPT = (
    "application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/json;q=0.5"
)
_MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_MAX_TOKEN_BYTES = 256 * 1024
_MAX_BLOB_BYTES = 1 << 62
_CHALLENGE = re.compile(r'(realm|service|scope)="([^"]{0,2048})"')
_MAX_TAGS = 30


class NoModelLayerError(RepositoryNotFoundError):
    """The manifest is one, and names no GGUF model."""

    code = "no-model-layer"


@dataclass(frozen=True, slots=True)
class Blob:
    """The model layer of a manifest. `manifest_digest`: 64 hex digits of the manifest's own bytes."""

    digest: Digest
    n_bytes: int
    manifest_digest: str


class OllamaSource:
    """`ollama:[HOST/][NAMESPACE/]MODEL[:TAG]`."""

    def plan(self, reference: OllamaReference, settings: Settings) -> Plan:
        """The blob that `reference` names now; what Ollama itself stored, when the registry is out of reach.

        Raises RepositoryNotFoundError, RevisionNotFoundError, NoModelLayerError, AccessDeniedError, and other
        DownloadErrors.
        """
        network = _network(settings)
        client = HttpClient(network, retry=BRIEF)
        try:
            body = _manifest(client, reference)
        except NetworkError:
            stored = local_manifest(network.ollama_models, reference)
            if stored is None:
                raise
            body = stored
        finally:
            client.close()
        blob = read_manifest(body, reference)
        directory = directory_of(reference)
        url = f"{base_url(reference)}/blobs/{blob.digest}"
        planned = PlannedFile(f"{directory}/model.gguf", blob.n_bytes, blob.digest.hex, url)
        return Plan(reference, directory, (planned,), blob.manifest_digest)

    def fetch(self, plan: Plan, settings: Settings, on_progress: OnProgress) -> Path:
        """Link or download the blob; its path in the cache. Raises as `download`."""
        reference = plan.reference
        assert isinstance(reference, OllamaReference)  # the registry maps types to sources
        file = plan.files[0]
        record = Record(
            path=file.path,
            n_bytes=file.n_bytes or 0,
            sha256=file.sha256 or "",
            source=str(reference),
            revision=plan.revision,
        )
        network = _network(settings)
        linked = link_blob(network.ollama_models, settings.cache, record, on_progress)
        if linked is not None:
            on_progress(Progress(str(reference), note=f"Ollama has it already: linked, {_size(record)}"))
            return linked
        client = HttpClient(network)
        try:
            return download([_job(file, record, reference, client)], settings.cache, client, on_progress)[0]
        finally:
            client.close()

    def read_start(self, plan: Plan, file: PlannedFile, n_bytes: int, settings: Settings) -> bytes:
        """The first `n_bytes` of the model layer. Raises as `plan`."""
        reference = plan.reference
        assert isinstance(reference, OllamaReference)  # the registry maps types to sources
        client = HttpClient(_network(settings), retry=BRIEF)
        record = Record(file.path, file.n_bytes or 0, file.sha256 or "", str(reference))
        try:
            return read_start(_job(file, record, reference, client), client, n_bytes)
        finally:
            client.close()


def _job(file: PlannedFile, record: Record, reference: OllamaReference, client: HttpClient) -> FileJob:
    return FileJob(
        file.origin,
        record,
        explain=_explain(reference),
        renew=lambda error: _anonymous_token(client, reference, error),
    )


def base_url(reference: OllamaReference) -> str:
    """`https://HOST/v2/NAMESPACE/MODEL`; plain http only for this machine."""
    host = reference.host.rpartition(":")[0] if ":" in reference.host else reference.host
    scheme = "http" if is_loopback(host) else "https"
    return f"{scheme}://{reference.host}/v2/{reference.namespace}/{reference.model}"


def read_manifest(body: bytes, reference: OllamaReference) -> Blob:
    """The model layer that the manifest names. Raises AnswerError, BadDigestError, NoModelLayerError."""
    values = Answer(body, {}, base_url(reference)).json()
    layers = values.get("layers") if isinstance(values, dict) else None
    if not isinstance(layers, list):
        raise AnswerError(f"the manifest of {reference} names no layers")
    models = [layer for layer in layers if isinstance(layer, dict) and layer.get("mediaType") in MODEL_LAYERS]
    if len(models) != 1:
        raise _no_single_model(reference, layers, len(models))
    size = models[0].get("size")
    if type(size) is not int or not 0 < size < _MAX_BLOB_BYTES:
        raise AnswerError(f"the manifest of {reference} gives its model the size {str(size)[:40]!r}")
    return Blob(Digest.parse(str(models[0].get("digest"))), size, hashlib.sha256(body).hexdigest())


def _no_single_model(reference: OllamaReference, layers: list[object], n_models: int) -> MinferError:
    kinds = {layer.get("mediaType") for layer in layers if isinstance(layer, dict)}
    if n_models > 1:
        return AnswerError(f"{reference} consists of {n_models} model files, minfer expects one")
    if _TENSOR_LAYER in kinds:
        what = "holds safetensors weights, minfer runs GGUF files"
    elif not layers:
        what = "holds no weights: it runs in the cloud only"
    else:
        what = "holds no GGUF model"
    return NoModelLayerError(f"{reference} {what}", hint="choose another tag of it, or a GGUF from hf:")


def _network(settings: Settings) -> NetworkSettings:
    return NetworkSettings.from_environment(settings.environment, home_directory(settings.environment))


def _size(record: Record) -> str:
    return human_bytes(record.n_bytes)


def _manifest(client: HttpClient, reference: OllamaReference) -> bytes:
    """The manifest's bytes, with a token if the registry wants one."""
    url = f"{base_url(reference)}/manifests/{reference.tag}"
    credentials: Credentials | None = None
    for _ in range(2):
        try:
            return client.get(
                url, credentials=credentials, headers={"Accept": _ACCEPT}, max_bytes=_MAX_MANIFEST_BYTES
            ).body
        except HttpStatusError as error:
            if error.status == 401 and credentials is None:
                credentials = _anonymous_token(client, reference, error)
            if credentials is None or error.status != 401:
                raise _missing_or_denied(client, reference, error, credentials) from error
    raise AccessDeniedError(f"{reference.host} does not let anonymous visitors read {reference}")


def _anonymous_token(
    client: HttpClient, reference: OllamaReference, error: HttpStatusError
) -> Credentials | None:
    """A bearer token for the registry, from where its 401 says; None when it offers none.

    Nothing secret is sent there, still the address is the registry's word: it has to be https, and outside of
    this machine and network unless the registry itself is inside.
    """
    challenge = error.headers.get("WWW-Authenticate", "")
    if not challenge.lower().startswith("bearer "):
        return None
    fields = dict(_CHALLENGE.findall(challenge))
    base = base_url(reference)
    realm = fields.pop("realm", "")
    scheme, host, _ = origin(realm)
    is_same = origin(realm) == origin(base)
    if not is_same and (scheme != "https" or (is_inside(host) and not is_inside(origin(base)[1]))):
        raise AccessDeniedError(f"{reference.host} sends for a token to {realm[:80]!r}, which is refused")
    separator = "&" if "?" in realm else "?"
    try:
        answer = client.get(f"{realm}{separator}{urlencode(fields)}", max_bytes=_MAX_TOKEN_BYTES).json()
    except HttpStatusError as refusal:
        raise AccessDeniedError(
            f"{reference.host} gives anonymous visitors no access to {reference} ({refusal.fact})",
            hint="minfer pulls public models only; pull it with its own tool and use the file's path",
        ) from refusal
    token = (answer.get("token") or answer.get("access_token")) if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise AnswerError(f"{host} answered without a token")
    return Credentials(token, base)


def _missing_or_denied(
    client: HttpClient, reference: OllamaReference, error: HttpStatusError, credentials: Credentials | None
) -> MinferError:
    if error.status != 404:
        return _explain(reference)(error)
    tags = _tags(client, reference, credentials)
    if tags:
        prefix = str(reference).removesuffix(f":{reference.tag}")
        return RevisionNotFoundError(
            f"{reference} does not exist; the model has other tags",
            hint=f"minfer-fetch pull {prefix}:{tags[0]}",
            candidates=tuple(f"{prefix}:{tag}" for tag in tags),
        )
    return _explain(reference)(error)


def _tags(client: HttpClient, reference: OllamaReference, credentials: Credentials | None) -> list[str]:
    """The tags a registry lists for the model; empty where it keeps no list, as Ollama's own."""
    if reference.host == DEFAULT_REGISTRY:
        return []
    try:
        values = client.get(f"{base_url(reference)}/tags/list", credentials=credentials).json()
    except DownloadError:
        return []
    tags = values.get("tags") if isinstance(values, dict) else None
    names = tags if isinstance(tags, list) else []
    return [tag for tag in names if isinstance(tag, str) and re.fullmatch(r"[\w.-]{1,80}", tag)][:_MAX_TAGS]


def _explain(reference: OllamaReference) -> Callable[[HttpStatusError], MinferError]:
    """What a refusal of the registry means for who asked for `reference`."""

    def explain(error: HttpStatusError) -> MinferError:
        if error.redirected:
            return error
        if error.status == 404:
            hint = "check the spelling"
            if reference.host == DEFAULT_REGISTRY:
                hint += f"; https://ollama.com/library/{reference.model}/tags lists the tags"
            return RepositoryNotFoundError(f"{reference} does not exist on {reference.host}", hint=hint)
        if error.status in (401, 403):
            return AccessDeniedError(
                f"{reference.host} does not let anonymous visitors read {reference}",
                hint="minfer pulls public models only; pull it with its own tool and use the file's path",
            )
        return error

    return explain
