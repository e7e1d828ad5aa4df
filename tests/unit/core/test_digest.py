"""Digests are parsed once, strictly."""

from __future__ import annotations

import pytest

from minfer.core.digest import BadDigestError, Digest

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize("text", [HEX, HEX.upper(), f"sha256:{HEX}", f"sha256-{HEX}"])
def test_accepted(text: str) -> None:
    assert Digest.parse(text).hex == HEX
    assert str(Digest.parse(text)) == f"sha256:{HEX}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256:",
        HEX[:-1],
        HEX + "0",
        f"sha512:{HEX}",
        f"sha256:../{HEX}",
        f"sha256:{HEX[:-1]}g",
        HEX + "\n",
        "x" * 9999,
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(BadDigestError) as caught:
        Digest.parse(text)
    assert caught.value.exit_status == 7
    assert len(caught.value.fact) < 200
