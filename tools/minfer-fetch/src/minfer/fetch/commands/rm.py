"""minfer-fetch rm: take models out of the cache."""

from __future__ import annotations

import click

from minfer.cli.commands import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.core.units import human_bytes
from minfer.fetch.output import Output, output_flags
from minfer.store.catalog import read_catalog
from minfer.store.settings import Settings


@click.command(context_settings=HELP, epilog=SPELLINGS)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=MODEL)
@click.option("--force", is_flag=True, help="Remove a model even while a tool holds it.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@output_flags
def rm(models: tuple[str, ...], force: bool, dry_run: bool, output: Output) -> None:
    """Remove MODEL from the cache: all parts of a split set. Refused while a tool is using it."""
    from minfer.fetch.cached_models import cached_models
    from minfer.fetch.removal import remove_model

    settings = Settings.of()
    removed = []
    with output.working():
        catalog = read_catalog(settings.cache)
        for model in cached_models(models, catalog, settings):
            if not dry_run:
                remove_model(settings.cache, model, force=force)
            removed.append({"path": str(catalog.path_of(model)), "bytes": model.files.n_bytes or 0})
            verb = "Would remove" if dry_run else "Removed"
            output.say(f"{verb} {catalog.path_of(model)} ({human_bytes(model.files.n_bytes or 0)})")
    if output.as_json:
        output.data({"removed": removed, "dry_run": dry_run})
