"""The beginning of a remote file: enough to read its header before deciding to download it."""

from __future__ import annotations

from dataclasses import replace

from minfer.fetch.download.errors import HttpStatusError
from minfer.fetch.download.http import HttpClient, network_errors
from minfer.fetch.download.job import FileJob


def read_start(job: FileJob, client: HttpClient, n_bytes: int) -> bytes:
    """The first `n_bytes` of the file of `job`, fewer when it is shorter; whether or not ranges are honoured.

    Raises as `HttpClient.stream`, with refusals in the words of the job's source.
    """
    try:
        return _read(job, client, n_bytes)
    except HttpStatusError as error:
        renewed = job.renew(error) if error.status == 401 and job.renew else None
        if renewed is None:
            raise job.explain(error) from error
    return _read(replace(job, credentials=renewed), client, n_bytes)


def _read(job: FileJob, client: HttpClient, n_bytes: int) -> bytes:
    wanted = {"Range": f"bytes=0-{n_bytes - 1}"}
    pieces, n_missing = [], n_bytes
    stream = client.stream(job.url, credentials=job.credentials, headers=wanted)
    with stream as response, network_errors(job.url):
        while n_missing > 0 and (piece := response.raw.read(min(n_missing, 1 << 20))):
            pieces.append(piece)
            n_missing -= len(piece)
    return b"".join(pieces)
