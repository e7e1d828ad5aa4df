"""minfer-fetch gc: remove what serves nobody."""

from __future__ import annotations

import click

from minfer.cli.commands import HELP
from minfer.core.units import human_bytes
from minfer.fetch.output import Output, output_flags
from minfer.store.settings import Settings


@click.command(context_settings=HELP)
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="DAYS",
    help="Keep unfinished downloads that changed within so many days.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@output_flags
def gc(days: float, dry_run: bool, output: Output) -> None:
    """Remove unfinished downloads that nobody is working on, records without a file, and links to nowhere."""
    from minfer.fetch.garbage import find_garbage, sweep

    settings = Settings.of()
    removed, n_busy = [], 0
    with output.working():
        for piece in find_garbage(settings.cache, older_than_days=days):
            if dry_run or sweep(settings.cache, piece):
                removed.append(piece)
            else:
                n_busy += 1
    n_bytes = sum(piece.n_bytes for piece in removed)
    if output.as_json:
        rows = [{"path": str(each.path), "kind": each.kind, "bytes": each.n_bytes} for each in removed]
        output.data({"removed": rows, "bytes": n_bytes, "in_use": n_busy, "dry_run": dry_run})
        return
    for piece in removed:
        output.line(f"{piece.kind:<9}  {human_bytes(piece.n_bytes):>9}  {piece.path}")
    busy = f"; {n_busy} in use were left" if n_busy else ""
    output.say(f"{'Would free' if dry_run else 'Freed'} {human_bytes(n_bytes)}{busy}")
