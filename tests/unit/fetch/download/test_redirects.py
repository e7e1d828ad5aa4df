"""Where redirects may lead, and where a token may go."""

from __future__ import annotations

import pytest

from minfer.fetch.download import Credentials, RedirectRefusedError
from minfer.fetch.download.redirects import host_of, is_inside, is_loopback, next_address, origin

HUB = "https://huggingface.co/acme/tiny/resolve/main/x.gguf"
LOCAL = "http://127.0.0.1:8080/x.gguf"


@pytest.mark.parametrize(
    ("start", "location", "expected"),
    [
        (HUB, "/acme/new/resolve/main/x.gguf", "https://huggingface.co/acme/new/resolve/main/x.gguf"),
        (HUB, "https://us.aws.cdn.hf.co/a?sig=1", "https://us.aws.cdn.hf.co/a?sig=1"),
        (HUB, "//cdn.hf.co/a", "https://cdn.hf.co/a"),
        (HUB, "https://8.8.8.8/a", "https://8.8.8.8/a"),
        (LOCAL, "http://localhost:9/x", "http://localhost:9/x"),
        (LOCAL, "https://cdn.hf.co/a", "https://cdn.hf.co/a"),
    ],
)
def test_redirects_that_are_followed(start: str, location: str, expected: str) -> None:
    assert next_address(start, start, location) == expected


@pytest.mark.parametrize(
    "location",
    [
        "http://cdn.hf.co/a",
        "file:///etc/passwd",
        "ftp://cdn.hf.co/a",
        "data:text/plain,x",
        "javascript:alert(1)",
        "https://user:password@cdn.hf.co/a",
        "https://user@cdn.hf.co/a",
        "https:///a/b\x00",
        "https://localhost/a",
        "https://LOCALHOST./a",
        "https://x.localhost/a",
        "https://127.0.0.1/a",
        "https://127.1/a",
        "https://2130706433/a",
        "https://0x7f000001/a",
        "https://10.0.0.1/a",
        "https://192.168.1.1/a",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/a",
        "https://[fe80::1%25eth0]/a",
        "https://[::ffff:127.0.0.1]/a",
        "https://[64:ff9b::7f00:1]:99999/a",
        "https://[broken/a",
        "https://cdn.hf.co:port/a",
    ],
)
def test_redirects_that_are_refused(location: str) -> None:
    if location == "https:///a/b\x00":
        # An address without a host leads back to the same one, as relative addresses do.
        assert origin(next_address(HUB, HUB, location)) == origin(HUB)
        return
    with pytest.raises(RedirectRefusedError):
        next_address(HUB, HUB, location)


def test_downgrading_is_judged_hop_by_hop() -> None:
    with pytest.raises(RedirectRefusedError):
        next_address(LOCAL, "https://cdn.hf.co/a", "http://cdn.hf.co/a")


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("https://huggingface.co/api", True),
        ("https://HuggingFace.co:443/api", True),
        ("https://huggingface.co./api", True),
        ("http://huggingface.co/api", False),
        ("https://huggingface.co:444/api", False),
        ("https://cdn.huggingface.co/api", False),
        ("https://huggingface.co.evil.example/api", False),
        ("https://huggingface.co@evil.example/api", False),
        ("https://evil.example/https://huggingface.co/", False),
    ],
)
def test_a_token_goes_to_its_own_origin_only(url: str, is_sent: bool) -> None:
    header = Credentials("hf_secret", "https://huggingface.co").header_for(url)
    assert header == ("Bearer hf_secret" if is_sent else None)


def test_a_token_is_in_no_representation() -> None:
    assert "hf_secret" not in repr(Credentials("hf_secret", "https://huggingface.co"))


def test_an_endpoint_that_is_no_address_gets_no_token() -> None:
    assert Credentials("hf_secret", "huggingface.co").header_for("not an address") is None


def test_hosts_in_messages_carry_no_signature() -> None:
    assert host_of("https://cdn.hf.co/a?X-Amz-Signature=secret") == "cdn.hf.co"
    assert host_of("http://127.0.0.1:8080/a") == "127.0.0.1:8080"


def test_inside_and_loopback_differ() -> None:
    assert is_inside("10.0.0.1")
    assert not is_loopback("10.0.0.1")
    assert is_loopback("127.0.0.5")
    assert is_loopback("::1")
    assert not is_inside("huggingface.co")
