"""Every source and every command of minfer-fetch is in its table."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import minfer.fetch.commands
import minfer.fetch.sources
from minfer.core.reference import RemoteReference
from minfer.fetch.cli import COMMANDS
from minfer.fetch.sources import SOURCES


def _files(package: str) -> set[str]:
    return {path.stem for path in Path(package).parent.glob("*.py")} - {"__init__"}


def test_every_command_is_in_the_table_and_loads() -> None:
    assert minfer.fetch.commands.__file__
    assert {row.target.split(":")[0].rpartition(".")[2] for row in COMMANDS} == _files(
        minfer.fetch.commands.__file__
    )
    for row in COMMANDS:
        assert row.load().name == row.name


def test_every_source_is_in_the_table_and_every_reference_has_one() -> None:
    assert minfer.fetch.sources.__file__
    modules = {type(row()).__module__.rpartition(".")[2] for row in SOURCES.values()}
    assert modules == _files(minfer.fetch.sources.__file__)
    assert set(SOURCES) == set(get_args(RemoteReference))
