"""The models of a cache as they are shown: how to write them, size, and whether they were verified."""

from __future__ import annotations

import os

from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog
from minfer.store.daemon_facts import ListedModel
from minfer.store.records import Record, all_records
from minfer.store.spelling import full_reference, spelling


def listed_models(catalog: Catalog) -> tuple[ListedModel, ...]:
    """Every model of `catalog` (read with sizes), in its order."""
    records = {record.path: record for record in all_records(catalog.directory)}
    return tuple(_listed(model, catalog, records) for model in catalog.models)


def _listed(model: CachedModel, catalog: Catalog, records: dict[str, Record]) -> ListedModel:
    return ListedModel(
        path=model.path,
        spelling=spelling(model, catalog),
        reference=full_reference(model, catalog),
        source=model.source,
        n_bytes=model.files.n_bytes or 0,
        n_parts=len(model.files.files),
        missing=tuple(model.files.missing),
        state=_state(model, catalog, records),
    )


def _state(model: CachedModel, catalog: Catalog, records: dict[str, Record]) -> str:
    """'incomplete', 'verified' (all files as they were checked), 'changed' since then, or 'unverified'."""
    if not model.is_complete:
        return "incomplete"
    known = [(file, records.get(file.path)) for file in model.files.files]
    if any(record is None for _, record in known):
        return "unverified"
    try:
        root = str(catalog.directory)
        fit = all(record.fits(os.stat(f"{root}/{file.path}")) for file, record in known if record)
    except OSError:
        return "changed"
    return "verified" if fit else "changed"
