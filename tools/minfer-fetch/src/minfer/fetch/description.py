"""What a model file says about itself, whether it is on this disk or still at its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minfer.core.errors import ModelNotFoundError
from minfer.core.reference import RemoteReference
from minfer.fetch.sources import Plan, PlannedFile
from minfer.gguf import Metadata, TensorInfo, open_gguf
from minfer.gguf.errors import TruncatedFileError
from minfer.gguf.header import Header, parse_header
from minfer.gguf.part import place_tensors
from minfer.store.settings import Settings

_FIRST_READ = 1 << 20
_MAX_ITEMS = 6
_LAST_READ = 64 << 20  # vocabularies of a quarter of a million words take 6 MiB


class NotDownloadedError(ModelNotFoundError):
    """The model is at its source, and what it holds can be seen only when it is here."""

    code = "not-downloaded"


@dataclass(frozen=True, slots=True)
class Description:
    """`parts`: the files, as paths or addresses; `tensors` in file order, each with the part it is in."""

    parts: tuple[str, ...]
    version: int
    n_bytes: int
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]


def describe_local(path: Path) -> Description:
    """Read the header of the model at `path`. Raises the ModelFileError family."""
    with open_gguf(path, any_type=True) as file:
        return Description(
            tuple(map(str, file.parts)), file.version, file.n_bytes, file.metadata, dict(file.tensors)
        )


def describe_remote(reference: RemoteReference, settings: Settings) -> Description:
    """Read the headers of the model's files where they are, by asking for their beginnings.

    Raises NotDownloadedError for a source that cannot do that, and as `Source.plan`, `open_gguf`.
    """
    from minfer.fetch.pull import source_of  # HTTP clients: a file that is here needs none

    plan = source_of(reference).plan(reference, settings)
    if not plan.files:
        raise NotDownloadedError(f"{reference} is not in the cache", hint=f"minfer-fetch pull {reference}")
    tensors: dict[str, TensorInfo] = {}
    first: tuple[bytes, Header] | None = None
    for index, file in enumerate(plan.files):
        data, header = _header(plan, file, settings)
        first = first or (data, header)
        tensors |= place_tensors(header, file.n_bytes or 0, file.path, index)
    assert first is not None  # there are files
    metadata = Metadata(memoryview(first[0]), first[1].entries, plan.files[0].origin)
    addresses = tuple(file.origin for file in plan.files)
    return Description(addresses, first[1].version, plan.n_bytes or 0, metadata, tensors)


def _header(plan: Plan, file: PlannedFile, settings: Settings) -> tuple[bytes, Header]:
    """The beginning of a file and the header that it holds, with as few bytes as guessing allows."""
    from minfer.fetch.download.errors import AnswerError
    from minfer.fetch.pull import source_of

    source = source_of(plan.reference)
    n_wanted = _FIRST_READ
    while True:
        data = source.read_start(plan, file, n_wanted, settings)
        try:
            return data, parse_header(data, file.origin)
        except TruncatedFileError:
            if len(data) < n_wanted:
                raise
            if n_wanted >= _LAST_READ:
                raise AnswerError(
                    f"the header of {file.path} is longer than {_LAST_READ >> 20} MiB"
                ) from None
        n_wanted *= 4


def json_value(value: object, limit: int | None) -> object:
    """A metadata value for JSON; an array longer than `limit` as its length and first items."""
    if isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, Sequence):
        return str(value)
    if limit is not None and len(value) > limit:
        first = [json_value(item, limit) for item in value[:_MAX_ITEMS]]
        return {"n_items": len(value), "first": first}
    return [json_value(item, limit) for item in value]
