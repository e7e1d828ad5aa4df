"""minfer-fetch resolve: from a name to a path, downloading when needed."""

from __future__ import annotations

import click

from minfer.cli.commands import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.fetch.output import Output, output_flags
from minfer.store.settings import Settings


@click.command(context_settings=HELP, epilog=SPELLINGS)
@click.argument("model", type=MODEL)
@output_flags
def resolve(model: str, output: Output) -> None:
    """Print the path of MODEL. A reference to a source is downloaded when it is not in the cache."""
    from minfer.fetch.by_daemon import resolve as resolve_model

    with output.working() as on_progress:
        resolved = resolve_model(model, Settings.of(), on_progress)
    if not resolved.is_path_like:
        output.say(f"Model ready: {resolved.path}")
    if output.as_json:
        answer = {"path": str(resolved.path), "source": resolved.source, "reference": str(resolved.reference)}
        output.data(answer)
    else:
        output.line(str(resolved.path))
