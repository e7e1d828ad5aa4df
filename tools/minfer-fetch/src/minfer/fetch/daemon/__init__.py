"""The store daemon: one process per cache that answers minfer.store.v1 over a Unix socket.

Disk is the truth and the daemon an accelerator. What it promises (one download per model, no removal of a
model in use, no wrong file under a final name) rests on the lock files that every tool takes; it may die at
any moment.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC reads it when it is imported, by whomever
