"""What changed between two looks at a cache, and when a daemon may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minfer.core.errors import UsageError
from minfer.fetch.daemon.activity import Activity
from minfer.fetch.daemon.changes import difference
from minfer.fetch.daemon.listening import idle_seconds
from minfer.fetch.daemon.pages import page_of_models
from minfer.store.daemon_facts import ListedModel


def listed(path: str, n_bytes: int = 1) -> ListedModel:
    return ListedModel(path, path, None, "local", n_bytes, 1, (), "unverified")


def test_the_difference_of_two_states() -> None:
    a, b, c = listed("a.gguf"), listed("b.gguf"), listed("c.gguf")
    grown = replace(b, n_bytes=2)
    found = list(difference({"a.gguf": a, "b.gguf": b}, {"b.gguf": grown, "c.gguf": c}))
    assert found == [("KIND_REMOVED", a), ("KIND_CHANGED", grown), ("KIND_PRESENT", c)]
    assert list(difference({"a.gguf": a}, {"a.gguf": a})) == []


def test_pages_stay_right_when_models_come_and_go() -> None:
    models = [listed(name) for name in ("a", "c", "e", "g")]
    first = page_of_models(models, 2, "")
    assert [model.path for model in first.models] == [b"a", b"c"]
    changed = [listed(name) for name in ("b", "d", "g")]  # the last one seen is gone, one came before it
    second = page_of_models(changed, 2, first.next_page_token)
    assert [model.path for model in second.models] == [b"d", b"g"]
    assert second.next_page_token == ""
    assert list(page_of_models(models, 2, "zzz").models) == []


def test_leaving_and_calling_exclude_each_other() -> None:
    activity = Activity()
    assert activity.begin_call()
    assert not activity.leave(n_calls=0)
    assert activity.idle_s == 0
    activity.begin_work()
    activity.end_call()
    assert not activity.leave(n_calls=0)
    activity.end_work()
    assert activity.idle_s > 0
    assert activity.leave(n_calls=0)
    assert not activity.begin_call()


@pytest.mark.parametrize(("text", "seconds"), [("", 600), ("0", 0), ("2.5", 2.5)])
def test_how_long_a_daemon_stays(text: str, seconds: float) -> None:
    assert idle_seconds({"MINFER_STORE_IDLE": text}) == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        idle_seconds({"MINFER_STORE_IDLE": text})
