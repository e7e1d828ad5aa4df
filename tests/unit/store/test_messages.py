"""Values cross gRPC unchanged, and long errors are cut to what a trailer holds."""

from __future__ import annotations

import os
from pathlib import Path

from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from minfer.core.errors import AmbiguousModelError
from minfer.store import Progress, Settings
from minfer.store.daemon_facts import ListedModel
from minfer.store.messages import (
    caller_message,
    error_details,
    error_of,
    model_message,
    model_of,
    progress_message,
    progress_of,
    settings_of,
)


def test_an_error_is_itself_again() -> None:
    error = AmbiguousModelError("two of them", hint="write one", candidates=("a", "b"), labels=("1 GB",))
    back = error_of(error_details(error, 9))
    assert type(back) is AmbiguousModelError
    assert back.render().split() == error.render().split()


def test_any_client_can_read_the_standard_part() -> None:
    status = Status.FromString(error_details(AmbiguousModelError("two of them"), 9))
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message) == (9, "two of them")
    assert (info.reason, info.domain) == ("AMBIGUOUS_MODEL", "minfer")


def test_a_long_error_fits_into_a_trailer() -> None:
    error = AmbiguousModelError("x" * 9000, hint="y" * 9000, candidates=("z" * 200,) * 500)
    details = error_details(error, 9)
    assert len(details) < 7000
    back = error_of(details)
    assert back is not None
    assert 0 < len(back.candidates) < 500


def test_foreign_details_are_no_error_of_ours() -> None:
    assert error_of(b"") is None
    assert error_of(b"\xff\xff\xff") is None
    assert error_of(Status(code=5, message="not ours").SerializeToString()) is None


def test_undecodable_names_cross_as_bytes() -> None:
    odd = os.fsdecode(b"caf\xe9")
    settings = Settings(Path("/models") / odd, True, {"HF_TOKEN": "t", "HF_ODD": odd}, 3)
    assert settings_of(caller_message(settings)) == settings
    model = ListedModel(f"{odd}.gguf", "x", None, "local", 5, 1, ("part",), "verified")
    assert model_of(model_message(model)) == model


def test_progress_without_numbers_stays_without() -> None:
    for event in (Progress("a", 0, 5), Progress("a", None, None, "waiting"), Progress("a", 7, None)):
        assert progress_of(progress_message(event)) == event
