"""`minfer-run info [FLAGS] MODEL`: what a model is and what running it would take, without loading it."""

from __future__ import annotations

import click

from minfer.cli import HELP
from minfer.cli.model_type import MODEL, SPELLINGS


@click.command(context_settings=HELP, epilog=SPELLINGS)
@click.argument("model", type=MODEL)
@click.option("--n-ctx", type=click.IntRange(0, 1 << 30), default=4096, show_default=True,
              help="tokens to plan memory for, at most the model's own length; 0 = all of it")  # fmt: skip
@click.option("--kv-type", type=click.Choice(["f16", "f32"]), default="f16", show_default=True,
              help="number type of the KV cache")  # fmt: skip
@click.option("-t", "--threads", type=click.IntRange(1, 512), help="plan for that many threads")
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
@click.option("-q", "--quiet", is_flag=True, help="nothing on stderr but errors")
@click.option("--verbose", is_flag=True, expose_value=False, help="details of an unexpected failure")
def info(model: str, n_ctx: int, threads: int | None, as_json: bool, quiet: bool, kv_type: str) -> None:
    """Show MODEL's metadata, tensors, tokenizer and template, the backend, and a memory plan."""
    from minfer.engine import LoadOptions
    from minfer.run.model_facts import facts_of, print_facts, print_json
    from minfer.run.opening import opened_for
    from minfer.run.status import Status

    options = LoadOptions(n_threads=threads, kv_type="f32" if kv_type == "f32" else "f16")
    with opened_for("info", model, Status(quiet=quiet), options) as opened:
        facts = facts_of(opened, min(n_ctx or opened.n_ctx_train, opened.n_ctx_train))
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
