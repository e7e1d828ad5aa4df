"""TCP addresses and tokens: what is accepted, and how gRPC is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer.store.tcp import (
    BadListenAddressError,
    BadTokenError,
    TcpAddress,
    make_token,
    read_token,
    token_of,
)


@pytest.mark.parametrize(
    ("text", "target", "is_loopback"),
    [
        ("127.0.0.1:7411", "ipv4:127.0.0.1:7411", True),
        ("127.8.8.8:1", "ipv4:127.8.8.8:1", True),
        ("localhost:65535", "ipv4:127.0.0.1:65535", True),
        ("[::1]:7411", "ipv6:[::1]:7411", True),
        ("0.0.0.0:7411", "ipv4:0.0.0.0:7411", False),
        ("[::]:7411", "ipv6:[::]:7411", False),
        ("192.168.1.2:80", "ipv4:192.168.1.2:80", False),
        ("127.1:80", "dns:///127.1:80", False),  # an address to the resolver, a name to us
        ("unix:80", "dns:///unix:80", False),
        ("Host.example:80", "dns:///host.example:80", False),
    ],
)
def test_addresses(text: str, target: str, is_loopback: bool) -> None:
    address = TcpAddress.parse(text)
    assert (address.target, address.is_loopback) == (target, is_loopback)
    assert TcpAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", ":1", "a:0", "a:65536", "a:-1", "a:1x", "::1:80", "[::g]:80", "a b:80", "a:1\n"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadListenAddressError):
        TcpAddress.parse(text)


def test_a_token_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert make_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    token = read_token(path)
    assert not make_token(path)
    assert read_token(path) == token == token_of({"MINFER_STORE_TOKEN_FILE": str(path)})
    assert make_token(tmp_path / "other")
    assert read_token(tmp_path / "other") != token


@pytest.mark.parametrize(
    "token", ["short", "x" * 513, "two words of some length", "caf\u00e9-caf\u00e9-caf\u00e9-caf\u00e9", ""]
)
def test_tokens_that_cannot_be_used(token: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{token}\n", encoding="utf-8")
    path.chmod(0o600)
    for environment in ({"MINFER_STORE_TOKEN": token}, {"MINFER_STORE_TOKEN_FILE": str(path)}):
        with pytest.raises(BadTokenError) as caught:
            token_of(environment)
        assert not token or token not in caught.value.render()


def test_a_file_that_others_may_read_or_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(BadTokenError, match="cannot be read"):
        read_token(path)
    make_token(path)
    path.chmod(0o640)
    with pytest.raises(BadTokenError, match="others may read"):
        read_token(path)
    with pytest.raises(BadTokenError, match="cannot be made"):
        make_token(tmp_path / "absent" / "token")
