"""`minfer-run bench [FLAGS] MODEL`: tokens per second, shaped like llama-bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from minfer.cli import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.run.measure.lists import IntList

EPILOG = f"""Lists are numbers with commas between them, or ranges: 128-512+128, 1-8*2. Every combination is
a line of the table: ppN is a prompt of N tokens in one go, tgN is N single steps from an empty context,
without sampling; @ dN begins with N tokens in the cache.

{SPELLINGS}"""


class Pair(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """`PP,TG`."""

    name = "PP,TG"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Two numbers."""
        numbers = IntList(0, 1 << 20).convert(value, param, ctx)
        if len(numbers) != 2:
            self.fail(f"{value!r} is not two numbers such as 512,128", param, ctx)
        return numbers[0], numbers[1]


@click.command(context_settings=HELP, epilog=EPILOG)
@click.argument("model", type=MODEL)
@click.option("-p", "prompts", type=IntList(0, 1 << 20), default="512", show_default=True,
              help="prompt lengths; 0 = none")  # fmt: skip
@click.option("-n", "gens", type=IntList(0, 1 << 20), default="128", show_default=True,
              help="numbers of single steps; 0 = none")  # fmt: skip
@click.option(
    "-pg", "pairs", type=Pair(), multiple=True, help="a prompt and single steps after it; repeatable"
)
@click.option("-d", "depths", type=IntList(0, 1 << 20), default="0", show_default=True,
              help="tokens in the cache before")  # fmt: skip
@click.option("-r", "reps", type=click.IntRange(1, 1000), default=5, show_default=True, help="repetitions")
@click.option("-t", "threads", type=IntList(1, 512), help="threads  [default: the CPUs this process may use]")
@click.option("--kv-type", type=click.Choice(["f16", "f32"]), default="f16", show_default=True,
              help="number type of the KV cache")  # fmt: skip
@click.option(
    "-o", "output", type=click.Choice(["md", "csv", "json", "jsonl"]), default="md", show_default=True
)
@click.option("--no-warmup", is_flag=True, help="time the first run too")
@click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE",
              help="compare with what -o json or jsonl wrote before")  # fmt: skip
@click.option("--fail-below", type=click.FloatRange(0, 100), metavar="PCT",
              help="exit with 8 when a test is slower by more than that, and not by chance")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="nothing on stderr but errors")
@click.option("--verbose", is_flag=True, expose_value=False, help="details of an unexpected failure")
def bench(model: str, **values: Any) -> None:
    """Measure how many tokens a second MODEL takes in and makes."""
    from minfer.run.measure.bench import plan_tests
    from minfer.run.measure.bench_run import BenchSettings, run_bench

    if values["fail_below"] is not None and values["baseline"] is None:
        raise click.UsageError("--fail-below needs --baseline FILE to compare with")
    run_bench(
        BenchSettings(
            reference=model,
            tests=tuple(plan_tests(values["prompts"], values["gens"], values["pairs"], values["depths"])),
            threads=values["threads"] or (None,),
            reps=values["reps"],
            kv_type=values["kv_type"],
            output=values["output"],
            warm_up=not values["no_warmup"],
            baseline=values["baseline"],
            fail_below=values["fail_below"],
            quiet=values["quiet"],
        )
    )
