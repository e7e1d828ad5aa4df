"""minfer-fetch verify: compare cached files with what their sources announced."""

from __future__ import annotations

import click

from minfer.cli.commands import HELP
from minfer.cli.model_type import MODEL, SPELLINGS
from minfer.core.errors import CheckFailedError
from minfer.fetch.output import Output, output_flags
from minfer.fetch.verification import Finding, source_reference, verify_model
from minfer.store.catalog import Catalog, read_catalog
from minfer.store.progress import OnProgress
from minfer.store.settings import Settings
from minfer.store.spelling import pasteable, spelling


class VerificationError(CheckFailedError):
    """At least one model is not what its source announced."""

    code = "verification-failed"


@click.command(context_settings=HELP, epilog=SPELLINGS)
@click.argument("models", nargs=-1, metavar="[MODEL...]", type=MODEL)
@click.option("--repair", is_flag=True, help="Download again what is corrupt or incomplete.")
@output_flags
def verify(models: tuple[str, ...], repair: bool, output: Output) -> None:
    """Check MODEL, or every model of the cache, against the digests recorded when they came.

    Needs no network, but for --repair. Ends with status 8 when one is corrupt or incomplete.
    """
    from minfer.fetch.cached_models import cached_models

    settings = Settings.of()
    catalog = read_catalog(settings.cache)
    with output.working() as on_progress:
        findings: list[Finding] = []
        for model in cached_models(models, catalog, settings):
            finding = verify_model(settings.cache, model, on_progress)
            if repair and not finding.is_good:
                finding = _repair(finding, settings, on_progress)
            findings.append(finding)
        catalog = read_catalog(settings.cache)  # repairs changed it
        _report(findings, catalog, output)
        bad = [finding for finding in findings if not finding.is_good]
        if bad:
            raise VerificationError(
                f"{len(bad)} of {len(findings)} models cannot be trusted",
                hint="minfer-fetch verify --repair downloads them again"
                if not repair
                else "what came from no known source has to be replaced by hand",
                candidates=tuple(pasteable(spelling(finding.model, catalog)) for finding in bad),
            )


def _repair(finding: Finding, settings: Settings, on_progress: OnProgress) -> Finding:
    """Fetch the bad files again, in the place of those that are here; the finding about the result."""
    from minfer.fetch.pull import obtain, source_of
    from minfer.fetch.removal import remove_files

    reference = source_reference(finding.model)
    if reference is None or settings.offline:
        return finding
    source_of(reference).plan(reference, settings)  # a source that cannot be asked costs no file
    if finding.state != "incomplete":
        remove_files(settings.cache, finding.model, finding.wrong or finding.model.files.files)
    obtain(reference, settings, on_progress, refresh=True)
    catalog = read_catalog(settings.cache)
    fresh = next((model for model in catalog.models if model.path == finding.model.path), None)
    return verify_model(settings.cache, fresh, on_progress) if fresh else finding


def _report(findings: list[Finding], catalog: Catalog, output: Output) -> None:
    if output.as_json:
        rows = [
            {"path": str(catalog.path_of(each.model)), "state": each.state, "problem": each.problem}
            for each in findings
        ]
        output.data({"models": rows})
        return
    for each in findings:
        problem = f": {each.problem}" if each.problem else ""
        output.line(f"{pasteable(spelling(each.model, catalog))}  {each.state}{problem}")
