"""minfer-fetch doctor: what could stand between you and a model."""

from __future__ import annotations

import click

from minfer.cli.commands import HELP
from minfer.core.errors import CheckFailedError
from minfer.fetch.output import Output, output_flags
from minfer.store.settings import Settings

_MARKS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}


class UnhealthyError(CheckFailedError):
    """doctor found a problem."""

    code = "unhealthy"


@click.command(context_settings=HELP)
@output_flags
def doctor(output: Output) -> None:
    """Check cache, disk, locks, environment, pip and network. Ends with status 8 when something is wrong."""
    from dataclasses import asdict

    from minfer.fetch.doctor import Finding, examine

    with output.working():
        findings: list[Finding] = []
        for finding in examine(Settings.of()):
            findings.append(finding)
            if not output.as_json:
                output.line(f"{_MARKS[finding.state]:<8} {finding.check}: {finding.detail}")
                if finding.hint:
                    output.line(f"{'':<8} → {finding.hint}")
        if output.as_json:
            output.data({"findings": [asdict(finding) for finding in findings]})
        problems = [finding for finding in findings if finding.state == "problem"]
        if problems and not output.as_json:
            raise UnhealthyError(f"problems found: {len(problems)}")
        if problems:
            raise click.exceptions.Exit(UnhealthyError.exit_status)
