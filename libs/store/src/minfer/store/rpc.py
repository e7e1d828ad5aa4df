"""gRPC, imported by nothing else in this package: it costs a tenth of a second and 30 MiB."""

from __future__ import annotations

import os

# gRPC's C code writes to stderr in its own words, of a socket that is gone. Has to be set before the import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from minfer.store.v1 import store_pb2_grpc as services

__all__ = ["CHANNEL_OPTIONS", "grpc", "services"]

CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is not for a socket
    ("grpc.use_local_subchannel_pool", 1),  # a second channel makes a connection, not the dead one again
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.keepalive_time_ms", 60_000),  # a daemon that is stopped, or a host that is gone, never hangs up
    ("grpc.keepalive_timeout_ms", 30_000),
    ("SingleThreadedUnaryStream", 1),  # answers come in the caller's thread: a third of the time less
)
