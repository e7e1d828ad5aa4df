"""A Python package index on loopback, with small wheels built on the fly: real pip, real HTTP."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO


def build_wheel(
    name: str,
    members: Mapping[str, bytes],
    *,
    version: str = "1.0",
    requires: tuple[str, ...] = (),
    record: Mapping[str, bytes] | None = None,
) -> tuple[str, bytes]:
    """(file name, bytes) of a wheel. `record` replaces what RECORD is computed from: members that lie."""
    package = name.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    metadata = "".join(f"Requires-Dist: {line}\n" for line in requires)
    files = {f"{package}/{member}": data for member, data in members.items()}
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode()
    )
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    told = {**files, **{f"{package}/{member}": data for member, data in (record or {}).items()}}
    rows = []
    for member, data in told.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{member},sha256={digest},{len(data)}\n")
    rows.append(f"{info}/RECORD,,\n")
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/RECORD", "".join(rows))
    return f"{package}-{version}-py3-none-any.whl", buffer.getvalue()


@dataclass
class PackageIndex:
    """What is served, and what was asked for. `bytes_per_second` makes downloads slow."""

    url: str = ""
    wheels: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    bytes_per_second: float | None = None

    def add(self, wheel: tuple[str, bytes]) -> None:
        """Serve one more wheel."""
        self.wheels[wheel[0]] = wheel[1]

    @property
    def environment(self) -> dict[str, str]:
        """Settings that make pip ask this index and nothing else."""
        return {
            "PIP_INDEX_URL": f"{self.url}/simple/",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_RETRIES": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def downloads(self) -> list[str]:
        """The wheels that were asked for, in order."""
        return [path.rpartition("/")[2] for path in self.requests if path.endswith(".whl")]


@contextmanager
def package_index() -> Iterator[PackageIndex]:
    """A running index; stopped when the block ends."""
    index = PackageIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requests.append(self.path)
            body = _page(index, self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self._send(body)

        def _send(self, body: bytes) -> None:
            step = 1 << 16
            try:
                for start in range(0, len(body), step):
                    self.wfile.write(body[start : start + step])
                    if index.bytes_per_second and self.path.endswith(".whl"):
                        time.sleep(step / index.bytes_per_second)
            except OSError:
                pass  # the client was killed, as some tests do

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _page(index: PackageIndex, path: str) -> bytes | None:
    """The listing of one package, or a wheel."""
    if path.startswith("/files/"):
        return index.wheels.get(path.rpartition("/")[2])
    package = path.removeprefix("/simple/").rstrip("/").replace("-", "_")
    links = [
        f'<a href="/files/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a>'
        for name, data in index.wheels.items()
        if name.split("-")[0] == package
    ]
    return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if links else None
