"""`minfer-run perplexity [FLAGS] MODEL -f FILE`: how well a model predicts a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from minfer.cli import HELP
from minfer.cli.model_type import MODEL, SPELLINGS

EPILOG = f"""The text is cut into windows; each starts from nothing, and its second half is scored, as
llama-perplexity does it. --kl-divergence-base alone writes a file with MODEL's distributions; together with
--kl-divergence it compares MODEL with those in the file, over the text in the file.

{SPELLINGS}"""


@click.command(context_settings=HELP, epilog=EPILOG)
@click.argument("model", type=MODEL)
@click.option("-f", "--file", "text_file", type=click.Path(path_type=Path),
              help="the text  [default: stdin]")  # fmt: skip
@click.option("-c", "--n-ctx", "n_ctx", type=click.IntRange(8, 1 << 20), default=512, show_default=True,
              help="tokens of a window")  # fmt: skip
@click.option(
    "--chunks", type=click.IntRange(1), metavar="N", help="score the first N windows  [default: all]"
)
@click.option("--kl-divergence-base", "base_file", type=click.Path(path_type=Path), metavar="FILE",
              help="the file of distributions")  # fmt: skip
@click.option("--kl-divergence", "compares", is_flag=True, help="compare with that file")
@click.option("-t", "--threads", type=click.IntRange(1, 512),
              help="threads  [default: the CPUs this process may use]")  # fmt: skip
@click.option("--kv-type", type=click.Choice(["f16", "f32"]), default="f16", show_default=True,
              help="number type of the KV cache")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
@click.option("-q", "--quiet", is_flag=True, help="nothing on stderr but errors")
@click.option("--verbose", is_flag=True, expose_value=False, help="details of an unexpected failure")
def perplexity(model: str, **values: Any) -> None:
    """Measure how well MODEL predicts a text, or how far it is from another model."""
    from minfer.run.scoring.score_run import ScoreSettings, compare, measure

    if values["compares"] and values["base_file"] is None:
        raise click.UsageError("--kl-divergence needs --kl-divergence-base FILE to compare with")
    if values["compares"] and values["text_file"] is not None:
        raise click.UsageError("--kl-divergence takes the text from its file; leave out -f")
    compares = values.pop("compares")
    settings = ScoreSettings(reference=model, **values)
    if compares:
        compare(settings)
    else:
        measure(settings)
