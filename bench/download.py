"""minfer-fetch and `curl -o FILE; sync FILE` on one file from loopback, alternating; figures in MB/s.

python -m bench.download --megabytes 1000 --pairs 5 --directory DIR
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.pairs import alternate
from minfer.fetch.download import FileJob, HttpClient, NetworkSettings, download
from minfer.store.progress import ignore_progress
from minfer.store.records import Record

_MB = 1_000_000
_SERVER = """
import http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *unused): pass
    def copyfile(self, source, out): self.connection.sendfile(source)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """The address of a server of its own process, which sends with sendfile(2)."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], cwd=directory, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.communicate()


def make_file(path: Path, n_megabytes: int) -> str:
    """A file of random bytes that begins like a model; its sha256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for index in range(n_megabytes):
            block = random.Random(index).randbytes(_MB)
            block = b"GGUF" + block[4:] if index == 0 else block
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def ours(url: str, n_bytes: int, sha256: str, directory: Path) -> float:
    """MB/s of one download: hashed, fsynced, published."""
    cache = directory / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    os.sync()
    began = time.perf_counter()
    job = FileJob(f"{url}/big.gguf", Record("hf/a/b/big.gguf", n_bytes, sha256))
    download([job], cache, HttpClient(NetworkSettings()), ignore_progress)
    return n_bytes / _MB / (time.perf_counter() - began)


def curl(url: str, n_bytes: int, directory: Path) -> float:
    """MB/s of curl and a sync of its file; nothing is hashed."""
    target = directory / "curl.gguf"
    target.unlink(missing_ok=True)
    os.sync()
    began = time.perf_counter()
    subprocess.run(["curl", "-s", "-o", str(target), f"{url}/big.gguf"], check=True)
    subprocess.run(["sync", str(target)], check=True)
    return n_bytes / _MB / (time.perf_counter() - began)


def main() -> None:
    """Print both sides and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: the temporary one")
    options = parser.parse_args()
    n_bytes = options.megabytes * _MB
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        (directory / "served").mkdir()
        sha256 = make_file(directory / "served" / "big.gguf", options.megabytes)
        with serving(directory / "served") as url:
            pairs = alternate(
                options.pairs,
                partial(ours, url, n_bytes, sha256, directory),
                partial(curl, url, n_bytes, directory),
            )
    print(f"{options.megabytes} MB, {options.pairs} alternating pairs, MB/s")
    print(f"{'ours med':>9} {'max':>9} {'curl med':>9} {'max':>9} {'ratio':>7}")
    print(pairs.row())


if __name__ == "__main__":
    main()
