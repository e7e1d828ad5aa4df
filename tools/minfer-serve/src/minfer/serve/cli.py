"""The program `minfer-serve`: flags to settings. What serves is imported when it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from minfer.cli import HELP, TolerantCommand
from minfer.cli import main as run_main
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.cli.parameters import given, knob_options
from minfer.engine.params import KNOBS, PROFILES, GenerationParams, parse_value, profile

HABITS = {
    "-m": "the model is the first word: minfer-serve MODEL …",
    "--model": "the model is the first word: minfer-serve MODEL …",
    "-c": "the context is set with --n-ctx N, the total of all slots",
    "--ctx-size": "the context is set with --n-ctx N, the total of all slots",
    "-np": "slots are set with --n-slots N",
    "--parallel": "slots are set with --n-slots N",
    "-ngl": "minfer runs on CPUs and has no GPU switches",
    "--n-gpu-layers": "minfer runs on CPUs and has no GPU switches",
    "-hf": "write the repository as the model: minfer-serve hf:ORG/REPO:QUANT",
    "-cb": "requests are always batched as they come",
    "-a": "the name for clients is set with --alias NAME",
    "--metrics": "metrics are always there, at /metrics",
}
EPILOG = f"""{SPELLINGS}

\b
Once it says Ready:
  curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "Hello"}}]}}'

Sampling flags set what requests get that do not say otherwise.
"""


class ServeCommand(TolerantCommand):
    """Explains the flags of other servers."""

    habits = HABITS


def _defaults(profile_name: str) -> GenerationParams:
    """The profile's, with the server's own two: as long as the context lasts, a fresh seed each time."""
    return replace(profile(profile_name), n_predict=-1, seed=-1)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"minfer-serve {version('minfer-serve')}")
        ctx.exit()


@click.command("minfer-serve", cls=ServeCommand, context_settings=HELP, epilog=EPILOG)
@click.argument("reference", metavar="MODEL", type=MODEL)
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True,
              help="port to listen on; 0 = any free one")  # fmt: skip
@click.option("--n-slots", type=click.IntRange(1, 256), default=4, show_default=True,
              help="answers generated at once; they share --n-ctx as they need it")  # fmt: skip
@click.option("--max-queue", type=click.IntRange(0, 100_000), default=64, show_default=True,
              help="requests that may wait, for each API key; further ones get 429")  # fmt: skip
@click.option("-t", "--threads", type=click.IntRange(1, 512),
              help="threads  [default: the CPUs this process may use]")  # fmt: skip
@click.option("--kv-type", type=click.Choice(["f16", "f32"]), default="f16", show_default=True,
              help="number type of the KV cache")  # fmt: skip
@click.option("--api-key", "api_keys", multiple=True, metavar="KEY", envvar="MINFER_API_KEY",
              help="ask clients for this key; repeatable; keys share neither prefixes nor turns")  # fmt: skip
@click.option("--api-key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="read keys from a file, one a line")  # fmt: skip
@click.option("--alias", "aliases", multiple=True, metavar="NAME",
              help="what clients call the model; repeatable  [default: the file's name]")  # fmt: skip
@click.option("--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
              help="answer requests for this host name too; * = any")  # fmt: skip
@click.option("--cors-origin", "cors_origins", multiple=True, metavar="ORIGIN",
              help="let pages of this origin use the server; * = any  [default: localhost]")  # fmt: skip
@click.option("--insecure", is_flag=True, help="allow other machines without a key")
@click.option("--chat-template", metavar="NAME|FILE", help="use this template in place of the model's")
@click.option("--strict", is_flag=True, help="refuse requests with unknown fields")
@click.option("--no-prefix-cache", is_flag=True, help="never reuse the KV cache of earlier prompts")
@click.option("--slots-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="where POST /slots?action=save|restore keeps the prefix cache")  # fmt: skip
@click.option("--pooling", type=click.Choice(["last", "mean"]), default="last", show_default=True,
              help="how /v1/embeddings makes one vector of a text's tokens")  # fmt: skip
@click.option("--itl-target-ms", type=click.FloatRange(min=0), default=200, show_default=True, metavar="MS",
              help="longest gap in a stream that another's prompt may cause; 0 = no limit")  # fmt: skip
@click.option("--timeout", "request_timeout", type=click.FloatRange(min=0), default=0, show_default=True,
              metavar="S", help="longest time for one request, in seconds; 0 = no limit")  # fmt: skip
@click.option("--drain-timeout", type=click.FloatRange(min=0), default=30, show_default=True,
              metavar="S", help="time for running answers after SIGTERM, in seconds")  # fmt: skip
@click.option("--ping-interval", type=click.FloatRange(min=0.05), default=10, show_default=True,
              metavar="S", help="send a comment into a silent stream this often, in seconds")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json", "none"]), default="text", show_default=True,
              help="lines on stderr; none = no access log")  # fmt: skip
@click.option("--profile", "profile_name", type=click.Choice(PROFILES), default="minfer", show_default=True,
              help="take all sampling defaults of that tool")  # fmt: skip
@knob_options(KNOBS, lambda name: getattr(_defaults("minfer"), name))
@click.option("--verbose", is_flag=True, help="show the details of an unexpected failure")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="print the version and exit")  # fmt: skip
def program(reference: str, **values: Any) -> int:
    """Serve MODEL over an OpenAI-compatible HTTP API."""
    from minfer.serve.process import serve
    from minfer.serve.settings import ServeSettings

    written = given(KNOBS, values, parse_value)
    params = _defaults(values.pop("profile_name")).updated(written)
    keys = [*_given_keys(values.pop("api_keys")), *_keys_in(values.pop("api_key_file"))]
    values.pop("verbose")
    is_insecure = values.pop("insecure")
    return serve(
        ServeSettings(
            reference=reference,
            params=params,
            n_threads=values.pop("threads"),
            api_keys=tuple(dict.fromkeys(keys)),
            is_strict=values.pop("strict"),
            use_prefix_cache=not values.pop("no_prefix_cache"),
            itl_target=values.pop("itl_target_ms") / 1000,
            **values,
        ),
        is_insecure=is_insecure,
    )


def _given_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """An empty key comes of an unset variable in a script, and would leave the server open."""
    if not all(map(str.strip, keys)):
        raise click.UsageError("--api-key is empty: a server without a key answers everybody")
    return keys


def _keys_in(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--api-key-file cannot be read: {error}") from None
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise click.UsageError(f"--api-key-file {path} has no key in it")
    return keys


def main() -> NoReturn:
    """Run the program."""
    run_main(program, "minfer-serve")
