"""What an environment says about the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer.fetch.download import NetworkSettings


def of(home: Path | None = None, **environment: str) -> NetworkSettings:
    return NetworkSettings.from_environment(environment, home)


def test_an_empty_environment_means_the_public_hub_and_nothing_secret() -> None:
    settings = of()
    assert settings.hf_endpoint == "https://huggingface.co"
    assert settings.hf_token == ""
    assert settings.proxies_for("https://huggingface.co/x") == {}


def test_the_variable_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" hf_file\n")
    assert of(HF_TOKEN_PATH=str(file)).hf_token == "hf_file"
    assert of(HF_TOKEN_PATH=str(file), HF_TOKEN="hf_variable").hf_token == "hf_variable"
    assert of(HF_TOKEN_PATH=str(file), HF_TOKEN="").hf_token == "hf_file"
    assert of(HF_TOKEN_PATH=str(file), HF_HUB_DISABLE_IMPLICIT_TOKEN="1").hf_token == ""


@pytest.mark.parametrize("where", [".cache/huggingface/token", "xdg/huggingface/token", "hf/token"])
def test_the_token_file_is_where_the_hf_program_puts_it(where: str, tmp_path: Path) -> None:
    file = tmp_path / where
    file.parent.mkdir(parents=True)
    file.write_text("hf_file")
    environment = {"xdg": {"XDG_CACHE_HOME": str(tmp_path / "xdg")}, "hf": {"HF_HOME": str(tmp_path / "hf")}}
    assert of(tmp_path, **environment.get(where.split("/", maxsplit=1)[0], {})).hf_token == "hf_file"


@pytest.mark.parametrize("token", ["hf_a\r\nX-Evil: 1", "hf_ä", "hf_\x00"])
def test_a_token_cannot_smuggle_a_header(token: str) -> None:
    assert all(c.isascii() and c.isprintable() for c in of(HF_TOKEN=token).hf_token)
    assert " " not in of(HF_TOKEN=token).hf_token


def test_a_token_file_that_is_a_directory_is_no_token(tmp_path: Path) -> None:
    assert of(HF_TOKEN_PATH=str(tmp_path)).hf_token == ""


PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_used"),
    [
        ("", "https://huggingface.co/x", True),
        ("*", "https://huggingface.co/x", False),
        ("huggingface.co", "https://huggingface.co/x", False),
        ("huggingface.co", "https://cdn.huggingface.co/x", False),
        (".huggingface.co", "https://cdn.huggingface.co/x", False),
        ("*.huggingface.co", "https://cdn.huggingface.co/x", False),
        ("face.co", "https://huggingface.co/x", True),
        ("a.example, huggingface.co", "https://huggingface.co/x", False),
        ("huggingface.co:8443", "https://huggingface.co/x", True),
        ("huggingface.co:8443", "https://huggingface.co:8443/x", False),
        ("10.0.0.0/8", "http://10.1.2.3/x", False),
        ("10.0.0.0/8", "http://11.1.2.3/x", True),
        ("::1", "http://[::1]/x", False),
    ],
)
def test_proxies_and_their_exceptions(no_proxy: str, url: str, is_used: bool) -> None:
    settings = of(https_proxy=PROXY, HTTP_PROXY=PROXY, NO_PROXY=no_proxy)
    expected = {"https": PROXY, "http": PROXY} if is_used else {}
    assert settings.proxies_for(url) == expected


def test_certificates_are_named_as_requests_and_curl_name_them() -> None:
    assert of(CURL_CA_BUNDLE="/c", SSL_CERT_FILE="/s").ca_bundle == "/c"
    assert of(REQUESTS_CA_BUNDLE="/r", CURL_CA_BUNDLE="/c").ca_bundle == "/r"


def test_ollamas_store_is_where_ollama_looks(tmp_path: Path) -> None:
    assert of(OLLAMA_MODELS="/models").ollama_models == (Path("/models"),)
    assert tmp_path / ".ollama/models" in of(tmp_path).ollama_models


def test_nothing_secret_is_in_the_representation() -> None:
    text = repr(of(HF_TOKEN="hf_secret", https_proxy="http://user:password@proxy.example"))
    assert "secret" not in text
    assert "password" not in text
