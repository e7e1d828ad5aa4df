"""Which models are on this machine, and which one a name means.

    resolved = minfer.store.resolve("hf:Qwen/Qwen3-0.6B-GGUF:Q8_0")
    open_gguf(resolved.path)

Tools use this and never import minfer.fetch: what has to be downloaded, a child process downloads.
"""

from __future__ import annotations

from minfer.store.client import Resolved, hold, resolve
from minfer.store.progress import OnProgress, Progress
from minfer.store.settings import Settings

__all__ = ["OnProgress", "Progress", "Resolved", "Settings", "hold", "resolve"]
