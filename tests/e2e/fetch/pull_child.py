"""A process that downloads one file, for tests that kill it: URL N_BYTES SHA256 CACHE N_PROCESSES.

Each of the processes prints 'waiting' when another one is downloading, and the path at the end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from minfer.core.errors import MinferError
from minfer.fetch.download import FileJob, HttpClient, NetworkSettings, RetryPolicy, download
from minfer.store.progress import Progress
from minfer.store.records import Record


def say(event: Progress) -> None:
    if "another process" in event.note:
        os.write(1, b"waiting\n")


def pull(url: str, n_bytes: str, sha256: str, cache: str) -> int:
    job = FileJob(url, Record("hf/acme/tiny/tiny.gguf", int(n_bytes), sha256))
    client = HttpClient(NetworkSettings(stall_s=5), retry=RetryPolicy(first_wait_s=0.01))
    try:
        path = download([job], Path(cache), client, say)[0]
    except MinferError as error:
        os.write(1, f"{error.code}\n".encode())
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    os.write(1, f"{path}\n".encode())
    return 0


def main() -> int:
    *words, n_processes = sys.argv[1:]
    children = []
    for _ in range(int(n_processes) - 1):
        child = os.fork()
        if child == 0:
            os._exit(pull(*words))
        children.append(child)
    own = pull(*words)
    return max([own, *(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)])


if __name__ == "__main__":
    sys.exit(main())
