"""minfer-fetch pull: ask the source, and download what is not here."""

from __future__ import annotations

from dataclasses import replace

import click

from minfer.cli.commands import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.core.errors import OfflineError, UsageError
from minfer.core.units import human_bytes
from minfer.fetch.output import Output, output_flags
from minfer.fetch.sources import Plan
from minfer.store.settings import Settings

_SOURCES = ("hf", "ollama", "pypi")


@click.command(context_settings=HELP, epilog=SPELLINGS)
@click.argument("words", nargs=-1, required=True, metavar="MODEL", type=MODEL)
@click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Files of a split set to download at a time.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be downloaded, and download nothing.")
@click.option("--detach", is_flag=True, help="Let the daemon download it, and return.")
@output_flags
def pull(words: tuple[str, ...], jobs: int, dry_run: bool, detach: bool, output: Output) -> None:
    """Download MODEL into the cache and print its path. The source is asked even when the model is here.

    Also understood: `pull hf REPO [QUANT]` and `pull ollama MODEL[:TAG]`.
    """
    from minfer.fetch.by_daemon import pull_detached
    from minfer.fetch.pull import obtain, remote_reference, source_of

    settings = replace(Settings.of(), n_jobs=jobs)
    with output.working() as on_progress:
        reference = remote_reference(_join(words))
        if settings.offline:
            raise OfflineError(
                f"{reference} cannot be pulled: downloads are switched off",
                hint="unset MINFER_OFFLINE and HF_HUB_OFFLINE",
            )
        if dry_run:
            plan = source_of(reference).plan(reference, settings)
            return _show(plan, settings, output)
        if detach:
            pulled = pull_detached(reference, settings, on_progress)
            if pulled is None:
                return _under_way(str(reference), output)
        else:
            pulled = obtain(reference, settings, on_progress, refresh=True)
    output.say(f"{'Already cached' if pulled.was_cached else 'Model ready'}: {pulled.path}")
    if output.as_json:
        output.data({"path": str(pulled.path), "was_cached": pulled.was_cached, "reference": str(reference)})
    else:
        output.line(str(pulled.path))
    return None


def _join(words: tuple[str, ...]) -> str:
    """`hf REPO QUANT` and `ollama MODEL` in minfer's own spelling."""
    if len(words) == 1:
        return words[0]
    source, *rest = words
    if source not in _SOURCES or len(rest) > 2:
        raise UsageError(
            f"one model at a time, not {len(words)}: {' '.join(words)!r}",
            hint=f"minfer-fetch pull {words[0]}",
        )
    return f"{source}:{':'.join(rest)}"


def _under_way(reference: str, output: Output) -> None:
    """The daemon has it from here."""
    output.say(
        f"{reference} is downloaded in the background; `minfer-fetch daemon status` shows how far it is"
    )
    if output.as_json:
        output.data({"path": None, "detached": True, "reference": reference})


def _show(plan: Plan, settings: Settings, output: Output) -> None:
    """The plan: each file with its size and whether it is here."""
    files = [
        {"path": file.path, "bytes": file.n_bytes, "is_here": (settings.cache / file.path).exists()}
        for file in plan.files
    ]
    if output.as_json:
        output.data({"reference": str(plan.reference), "revision": plan.revision, "files": files})
        return
    for file in plan.files:
        size = "size unknown" if file.n_bytes is None else human_bytes(file.n_bytes)
        here = ", already here" if (settings.cache / file.path).exists() else ""
        output.line(f"{file.path}  {size}{here}")
    if not files:
        output.say(f"{plan.reference} says which files it has only when it is downloaded")
