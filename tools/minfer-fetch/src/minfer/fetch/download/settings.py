"""What a caller's environment says about the network: a value that can travel to the daemon."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

_TRUE = frozenset({"1", "on", "yes", "true"})
HUGGING_FACE = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Tokens, endpoints, proxies and certificates of one caller; no field is ever logged.

    `proxies`: 'http', 'https' and 'all' to a proxy address; `no_proxy`: hosts that need none.
    """

    hf_token: str = field(default="", repr=False)
    hf_endpoint: str = HUGGING_FACE
    ollama_models: tuple[Path, ...] = ()
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    no_proxy: tuple[str, ...] = ()
    ca_bundle: str = ""
    stall_s: float = 30.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], home: Path | None = None) -> Self:
        """Read what `requests`, the `hf` CLI and Ollama read; `home` may be absent (no passwd entry)."""
        return cls(
            hf_token=_hf_token(environment, home),
            hf_endpoint=(environment.get("HF_ENDPOINT", "").strip() or HUGGING_FACE).rstrip("/"),
            ollama_models=_ollama_stores(environment, home),
            proxies={
                scheme: value
                for scheme in ("http", "https", "all")
                if (value := _either_case(environment, f"{scheme}_proxy"))
            },
            no_proxy=tuple(_either_case(environment, "no_proxy").replace(",", " ").split()),
            ca_bundle=environment.get("REQUESTS_CA_BUNDLE")
            or environment.get("CURL_CA_BUNDLE")
            or environment.get("SSL_CERT_FILE")
            or "",
        )

    def proxies_for(self, url: str) -> dict[str, str]:
        """The proxies that `requests` shall use for `url`: none for a host in `no_proxy`."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if not self.proxies or any(_excludes(pattern.lower(), host, parts.port) for pattern in self.no_proxy):
            return {}
        return dict(self.proxies)


def _either_case(environment: Mapping[str, str], name: str) -> str:
    # HTTP_PROXY in capitals is set by web servers from a request header; curl and requests differ there,
    # and minfer runs under no CGI, so both spellings count.
    return environment.get(name) or environment.get(name.upper()) or ""


def _excludes(pattern: str, host: str, port: int | None) -> bool:
    if pattern == "*":
        return True
    name, separator, pattern_port = pattern.rpartition(":")
    if separator and pattern_port.isdigit() and "]" not in pattern_port and ":" not in name:
        if str(port) != pattern_port:
            return False
        pattern = name
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        suffix = pattern.lstrip("*").lstrip(".")
        return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def _hf_token(environment: Mapping[str, str], home: Path | None) -> str:
    """The token as the `hf` CLI finds it: the variable, else the token file; line breaks removed."""
    if environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() in _TRUE:
        return ""
    token = environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN") or ""
    path = _token_path(environment, home)
    if not token.strip() and path is not None:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                token = file.read(4096)
        except OSError:
            token = ""
    token = "".join(token.split())
    return token if token.isascii() and token.isprintable() else ""


def _token_path(environment: Mapping[str, str], home: Path | None) -> Path | None:
    if path := environment.get("HF_TOKEN_PATH"):
        return Path(path)
    if hf_home := environment.get("HF_HOME"):
        return Path(hf_home) / "token"
    if cache := environment.get("XDG_CACHE_HOME"):
        return Path(cache) / "huggingface" / "token"
    return home / ".cache" / "huggingface" / "token" if home else None


def _ollama_stores(environment: Mapping[str, str], home: Path | None) -> tuple[Path, ...]:
    if path := environment.get("OLLAMA_MODELS"):
        return (Path(path),)
    service = Path("/usr/share/ollama/.ollama/models")
    return (home / ".ollama" / "models", service) if home else (service,)
