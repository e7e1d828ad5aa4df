"""`minfer-run specverify [FLAGS] MODEL`: what verifying drafted tokens costs on this machine."""

from __future__ import annotations

from typing import Any

import click

from minfer.cli import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.run.measure.lists import IntList

EPILOG = f"""A draft of d tokens is verified by one forward over d + 1. The result says what that costs, and
from which rate of right drafts on it is faster than single steps. A gate that fails is a result: the exit
status is 0.

{SPELLINGS}"""


@click.command(context_settings=HELP, epilog=EPILOG)
@click.argument("model", type=MODEL)
@click.option("-p", "--depth", type=click.IntRange(32, 1 << 20), default=512, show_default=True,
              help="tokens in the KV cache")  # fmt: skip
@click.option("-r", "--reps", type=click.IntRange(5, 10_000), default=40, show_default=True,
              help="timed forwards of each length and pass")  # fmt: skip
@click.option("--nt", "lengths", type=IntList(1, 32), default="1,2,3,4,5,8", show_default=True,
              help="lengths of a forward, in tokens")  # fmt: skip
@click.option("-t", "--threads", type=click.IntRange(1, 512),
              help="threads  [default: the CPUs this process may use]")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["json", "md"]), default="json", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="nothing on stderr but errors")
@click.option("--verbose", is_flag=True, expose_value=False, help="details of an unexpected failure")
def specverify(
    model: str, depth: int, lengths: tuple[int, ...], *, quiet: bool, output: str, **values: Any
) -> None:
    """Time forwards over a few tokens on MODEL, as verifying drafts needs them."""
    import json

    from minfer.engine import LoadOptions
    from minfer.run.measure.lists import require_room
    from minfer.run.measure.verify_cost import as_markdown, measure, report
    from minfer.run.opening import opened_for
    from minfer.run.status import Status

    reps, threads = values["reps"], values["threads"]
    status = Status(quiet=quiet)
    lengths = tuple(sorted(set(lengths)))
    options = LoadOptions(n_threads=threads, max_logit_rows=max(lengths))
    with opened_for("specverify", model, status, options) as opened:
        require_room(depth, opened.n_ctx_train, "-p")
        opened.plan(depth).check()
        with opened.load() as loaded:
            status.loaded(loaded, depth)
            cost = measure(loaded, depth, reps, lengths, status.say)
            facts = report(cost, opened.file.path.name, loaded.backend_name, loaded.n_threads)
    click.echo(as_markdown(facts) if output == "md" else json.dumps(facts), nl=output != "md")
