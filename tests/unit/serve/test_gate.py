"""Hosts, origins and keys."""

from __future__ import annotations

import pytest

from minfer.engine.params import GenerationParams
from minfer.serve.errors import ForbiddenError, InvalidKeyError
from minfer.serve.gate import HostRule, KeyRing, is_loopback
from minfer.serve.settings import ServeSettings


def _rule(host: str, *allowed: str) -> HostRule:
    return HostRule(ServeSettings(reference="x", params=GenerationParams(), host=host, allowed_hosts=allowed))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST:1",
        "127.0.0.1:8080",
        "127.9.9.9",
        "[::1]:8080",
        "a.localhost:80",
    ],
)
def test_loopback_names_are_answered(host: str) -> None:
    _rule("127.0.0.1").check(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "localhost.evil.com",
        "evil.com:8080",
        "192.168.0.5",
        "",
        "127.0.0.1.evil.com",
        "[::2]",
        "a:b:c",
    ],
)
def test_other_names_are_not(host: str) -> None:
    with pytest.raises(ForbiddenError):
        _rule("127.0.0.1").check(host)


def test_names_can_be_allowed() -> None:
    _rule("127.0.0.1", "box.lan").check("box.lan:8080")
    _rule("127.0.0.1", "*").check("anything")
    _rule("0.0.0.0").check("anything")
    with pytest.raises(ForbiddenError):
        _rule("0.0.0.0", "box.lan").check("anything")


def test_which_addresses_are_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "::1", "[::1]", "127.1.2.3")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "")))


def test_keys_by_bearer_or_header() -> None:
    ring = KeyRing(("one", "two"))
    one = ring.owner({"authorization": "Bearer one"})
    assert ring.owner({"x-api-key": "one"}) == one
    assert ring.owner({"authorization": "bearer two"}) != one
    for headers in ({}, {"authorization": "Bearer on"}, {"authorization": "one"}, {"x-api-key": "onee"}):
        with pytest.raises(InvalidKeyError):
            ring.owner(headers)


def test_a_key_of_any_letters_and_of_any_bytes() -> None:
    ring = KeyRing(("schlüssel", "\udcff"))
    for sent in ("schlüssel".encode(), b"\xff"):  # a header's bytes are read as Latin-1
        assert ring.owner({"x-api-key": sent.decode("latin-1")})


def test_without_keys_everybody_is_one_owner() -> None:
    assert KeyRing(()).owner({"authorization": "Bearer whatever"}) == b""
