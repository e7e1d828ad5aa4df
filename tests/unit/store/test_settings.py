"""Where the cache is, for every kind of user."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from minfer.store.settings import NoHomeError, Settings, cache_directory, expand_user, home_directory


def test_the_variable_decides() -> None:
    assert cache_directory({"MINFER_MODEL_DIR": "/models", "HOME": "/h"}) == Path("/models")
    assert cache_directory({"MINFER_MODEL_DIR": "~/m", "HOME": "/h"}) == Path("/h/m")
    assert cache_directory({"MINFER_MODEL_DIR": "m", "HOME": "/h"}) == Path.cwd() / "m"
    assert cache_directory({"MINFER_MODEL_DIR": "", "HOME": "/h"}) == Path("/h/.cache/minfer/models")


def test_without_home_the_passwd_entry_decides() -> None:
    assert home_directory({}) == Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert home_directory({"HOME": "relative"}) == Path(pwd.getpwuid(os.getuid()).pw_dir)


def test_a_user_without_home_or_entry_still_has_a_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nobody(_: int) -> pwd.struct_passwd:
        raise KeyError("no such user")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert home_directory({}) is None
    assert cache_directory({}) == Path(tempfile.gettempdir()) / f"minfer-{os.getuid()}" / "models"
    with pytest.raises(NoHomeError):
        expand_user("~/x", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_directory({}) == tmp_path / f"minfer-{os.getuid()}" / "models"
    (tmp_path / f"minfer-{os.getuid()}").symlink_to("/etc")
    with pytest.raises(NoHomeError, match="belongs to somebody else"):
        cache_directory({})


def test_other_users_homes() -> None:
    root = pwd.getpwnam("root").pw_dir
    assert expand_user("~root/x.gguf", {"HOME": "/h"}) == f"{root}/x.gguf"
    assert expand_user("~/x.gguf", {"HOME": "/h"}) == "/h/x.gguf"
    assert expand_user("~", {"HOME": "/h"}) == "/h"
    assert expand_user("x/~", {"HOME": "/h"}) == "x/~"
    with pytest.raises(NoHomeError, match="nobody-of-that-name"):
        expand_user("~nobody-of-that-name/x", {"HOME": "/h"})


@pytest.mark.parametrize(
    ("environment", "offline"),
    [
        ({}, False),
        ({"MINFER_OFFLINE": "1"}, True),
        ({"HF_HUB_OFFLINE": "TRUE"}, True),
        ({"MINFER_OFFLINE": "0"}, False),
    ],
)
def test_offline(environment: dict[str, str], offline: bool) -> None:
    assert Settings.of(environment).offline is offline
