"""`--explain`: what would run, and why, on stdout, without loading a weight."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from minfer.core.units import counted, human_bytes
from minfer.run.wording import find_template

if TYPE_CHECKING:
    from minfer.engine.model import OpenedModel
    from minfer.run.settings import RunSettings
    from minfer.store import Resolved


def explain(
    settings: RunSettings, resolved: Resolved, opened: OpenedModel, n_prompt: int, n_ctx: int
) -> None:
    """Print the facts of a run that is not run; JSON with `-o jsonl`."""
    facts = _facts(settings, resolved, opened, n_prompt, n_ctx)
    if settings.output == "jsonl":
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            sys.stdout.write(f"{name}:\n")
            for key, entry in value.items():
                sys.stdout.write(f"  {key:<20} {_shown(entry)}\n")
        else:
            sys.stdout.write(f"{name + ':':<12} {_shown(value)}\n")


_SOURCES = {"path": "it is the path as written", "cache": "the cache has it", "fetched": "it was downloaded"}


def _facts(
    settings: RunSettings, resolved: Resolved, opened: OpenedModel, n_prompt: int, n_ctx: int
) -> dict[str, Any]:
    plan = opened.plan(n_ctx)
    return {
        "model": str(resolved.path),
        "because": _SOURCES[resolved.source],
        "architecture": opened.architecture,
        "backend": f"{opened.backend_name} ({opened.backend_reason})",
        "threads": f"{opened.n_threads} ({opened.threads_reason})",
        "template": _template(opened, settings),
        "prompt": counted(n_prompt, "token"),
        "context": f"{n_ctx} tokens of the model's {opened.n_ctx_train}",
        "memory": {
            "weights": human_bytes(plan.weight_bytes),
            "buffers": human_bytes(plan.buffer_bytes),
            "kv cache": human_bytes(plan.cache_bytes),
            "together": human_bytes(plan.total_bytes),
            "available": human_bytes(plan.available_bytes),
        },
        "sampling": {
            name: {"value": value, "from": settings.origins.get(name, f"profile {settings.profile}")}
            for name, value in asdict(settings.params).items()
        },
    }


def _template(opened: OpenedModel, settings: RunSettings) -> str:
    template = find_template(opened, settings)
    if template is not None:
        return template.name
    return "none in the model; raw text" if settings.use_template else "switched off; raw text"


def _shown(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"value", "from"}:
        return f"{value['value']!r:<28} {value['from']}"
    return str(value)
