"""minfer-fetch info: what a model file says about itself, without loading it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from minfer.cli.commands import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.cli.progress import printable
from minfer.core.reference import parse_reference
from minfer.core.units import human_bytes
from minfer.fetch.output import Output, output_flags
from minfer.store.resolution import Local
from minfer.store.settings import Settings

if TYPE_CHECKING:
    from minfer.fetch.description import Description

_MAX_ITEMS = 6
_MAX_TEXT = 200
_MAX_JSON_ITEMS = 64


@click.command(context_settings=HELP, epilog=SPELLINGS)
@click.argument("model", type=MODEL)
@click.option("--full", is_flag=True, help="Show arrays and long texts whole.")
@output_flags
def info(model: str, full: bool, output: Output) -> None:
    """Show metadata and tensors of MODEL. Of one that is not here yet, only the header is fetched."""
    from minfer.fetch.description import describe_local, describe_remote, json_value
    from minfer.store.lookup import look_up

    settings = Settings.of()
    with output.working():
        outcome = look_up(parse_reference(model), settings)
        if isinstance(outcome, Local):
            described = describe_local(outcome.path)
        else:
            described = describe_remote(outcome.reference, settings)
        if output.as_json:
            limit = None if full else _MAX_JSON_ITEMS
            metadata = {key: json_value(value, limit) for key, value in described.metadata.items()}
            output.data({**_facts(described), "metadata": metadata, "tensors": _tensors(described)})
        else:
            _print(described, full, output)


def _facts(file: Description) -> dict[str, Any]:
    return {
        "path": file.parts[0],
        "parts": list(file.parts),
        "version": file.version,
        "bytes": file.n_bytes,
        "n_metadata": len(file.metadata),
        "n_tensors": len(file.tensors),
    }


def _tensors(file: Description) -> list[dict[str, Any]]:
    return [
        {
            "name": tensor.name,
            "shape": list(tensor.shape),
            "type": tensor.quant.name,
            "bytes": tensor.n_bytes or None,
            "part": tensor.part,
            "offset": tensor.offset,
        }
        for tensor in file.tensors.values()
    ]


def _print(file: Description, full: bool, output: Output) -> None:
    parts = f" in {len(file.parts)} parts" if len(file.parts) > 1 else ""
    output.line(
        printable(f"{file.parts[0]}\nGGUF version {file.version}, {human_bytes(file.n_bytes)}{parts}")
    )
    output.line(f"\nMetadata ({len(file.metadata)}):")
    for key, value in file.metadata.items():
        output.line(printable(f"  {key} = {_shown(value, full)}"))
    output.line(f"\nTensors ({len(file.tensors)}):")
    rows = [
        (tensor.name, tensor.quant.name, " × ".join(map(str, tensor.shape)), _size(tensor.n_bytes))
        for tensor in file.tensors.values()
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for name, kind, shape, size in rows:
        columns = f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {shape:>{widths[2]}}  {size:>{widths[3]}}"
        output.line(printable(f"  {columns}"))


def _size(n_bytes: int) -> str:
    """Of a tensor; one of a type that is not known here has none."""
    return human_bytes(n_bytes) if n_bytes else "size unknown"


def _shown(value: object, full: bool) -> str:
    """A metadata value on one line."""
    if isinstance(value, str):
        text = value.replace("\n", "\\n")
        return text if full or len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(value)} characters)"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        items = value if full else value[:_MAX_ITEMS]
        shown = ", ".join(_shown(item, full) if not isinstance(item, str) else repr(item) for item in items)
        return f"[{shown}]" if len(items) == len(value) else f"[{shown}, …] ({len(value)} items)"
    return str(value)
