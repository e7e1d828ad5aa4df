"""minfer-fetch import: give model files from elsewhere on this disk a place in the cache."""

from __future__ import annotations

from pathlib import Path

import click

from minfer.cli.commands import HELP
from minfer.fetch.output import Output, output_flags
from minfer.store.settings import Settings, expand_user

_METHODS = ("auto", "link", "reflink", "copy")


@click.command("import", context_settings=HELP)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@click.option(
    "--method",
    type=click.Choice(_METHODS),
    default="auto",
    show_default=True,
    help="auto: a hard link, else a reflink, else a copy.",
)
@output_flags
def import_file(files: tuple[str, ...], method: str, output: Output) -> None:
    """Bring FILE (any part of a split set) into the cache, so that its name is enough to run it."""
    from minfer.fetch.importing import import_model

    settings = Settings.of()
    with output.working() as on_progress:
        paths = [
            import_model(Path(expand_user(file, settings.environment)), settings.cache, method, on_progress)
            for file in files
        ]
    for path in paths:
        output.say(f"Model ready: {path}")
    if output.as_json:
        output.data({"paths": [str(path) for path in paths]})
    else:
        for path in paths:
            output.line(str(path))
