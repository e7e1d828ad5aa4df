"""What can be said of a model without reading its weights: values first, then their two printed forms."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from minfer.cli.progress import printable
from minfer.core.errors import MinferError
from minfer.core.units import human_bytes

if TYPE_CHECKING:
    from minfer.engine.model import OpenedModel

_SHOWN_ITEMS = 6
_SHOWN_CHARACTERS = 160


def facts_of(opened: OpenedModel, n_ctx: int) -> dict[str, Any]:
    """Sections by name; `tensors` is a list, the others are mappings. n_ctx: what memory is planned for."""
    file = opened.file
    return {
        "file": {
            "path": str(file.path),
            "parts": [str(part) for part in file.parts],
            "gguf_version": file.version,
            "bytes": file.n_bytes,
            "architecture": opened.architecture,
            "parameters": sum(_n_elements(tensor.shape) for tensor in file.tensors.values()),
            "context_length": opened.n_ctx_train,
        },
        "backend": {
            "name": opened.backend_name,
            "because": opened.backend_reason,
            "threads": opened.n_threads,
            "threads_because": opened.threads_reason,
        },
        "memory": _memory(opened, n_ctx),
        "tokenizer": _or_error(lambda: _tokenizer(opened)),
        "template": _or_error(lambda: _template(opened)),
        "notes": list(opened.notices),
        "metadata": {key: _plain(value) for key, value in file.metadata.items()},
        "tensors": [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "type": tensor.quant.name,
                "bytes": tensor.n_bytes,
            }
            for tensor in file.tensors.values()
        ],
    }


def print_json(facts: Mapping[str, Any]) -> None:
    """One object. Long arrays of the metadata are their length and first items."""
    sys.stdout.buffer.write(json.dumps(facts, ensure_ascii=False).encode() + b"\n")


def print_facts(facts: Mapping[str, Any]) -> None:
    """Sections with a heading, one fact a line."""
    lines: list[str] = []
    for name in ("file", "backend", "memory", "tokenizer", "template"):
        lines.append(f"{name.capitalize()}:")
        for key, value in facts[name].items():
            lines.append(f"  {key.replace('_', ' '):<26} {_shown(key, value)}")
    lines += [f"Note: {note}" for note in facts["notes"]]
    lines.append(f"Metadata ({len(facts['metadata'])}):")
    lines += [f"  {key} = {_shown('', value)}" for key, value in facts["metadata"].items()]
    lines.append(f"Tensors ({len(facts['tensors'])}):")
    width = max((len(tensor["name"]) for tensor in facts["tensors"]), default=0)
    for tensor in facts["tensors"]:
        shape = " × ".join(map(str, tensor["shape"]))
        lines.append(
            f"  {tensor['name']:<{width}}  {tensor['type']:<7} {shape:>16}  {human_bytes(tensor['bytes']):>9}"
        )
    sys.stdout.buffer.write("".join(printable(line) + "\n" for line in lines).encode())


def _memory(opened: OpenedModel, n_ctx: int) -> dict[str, Any]:
    plan = opened.plan(n_ctx)
    return {
        "context": n_ctx,
        "weight_bytes": plan.weight_bytes,
        "buffer_bytes": plan.buffer_bytes,
        "cache_bytes": plan.cache_bytes,
        "total_bytes": plan.total_bytes,
        "available_bytes": plan.available_bytes,
        "fits": plan.fits,
        "longest_context_that_fits": opened.plan(opened.n_ctx_train).n_ctx_fitting,
    }


def _tokenizer(opened: OpenedModel) -> dict[str, Any]:
    tokenizer = opened.tokenizer
    roles = {name: getattr(tokenizer, name) for name in ("bos", "eos", "eot", "eom", "unk", "pad")}
    return {
        "kind": opened.file.metadata.string("tokenizer.ggml.model", "none"),
        "pre_tokenizer": opened.file.metadata.string("tokenizer.ggml.pre", "none"),
        "n_vocab": tokenizer.n_vocab,
        "adds_bos": tokenizer.adds_bos,
        "adds_eos": tokenizer.adds_eos,
        "special_tokens": {
            name: {"id": token, "text": tokenizer.token_text(token)}
            for name, token in roles.items()
            if token is not None
        },
        "end_of_generation": sorted(tokenizer.end_of_generation),
    }


def _template(opened: OpenedModel) -> dict[str, Any]:
    template = opened.chat_template
    if template is None:
        return {"present": False}
    thinking = template.thinking
    return {
        "present": True,
        "characters": len(template.source),
        "system_messages": template.takes_system,
        "tools": template.takes_tools,
        "content_parts": template.takes_parts,
        "reads_date": template.reads_date,
        "thinking": thinking is not None,
        "thinking_switch": thinking.switch if thinking else None,
        "variables": sorted(template.variables),
    }


def _or_error(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a callable without arguments
    """The section; what is wrong in its place, since the rest of the page is worth having."""
    try:
        return dict(section())
    except MinferError as error:
        return {"error": error.fact}


def _n_elements(shape: Sequence[int]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def _plain(value: object) -> object:
    """A metadata value for JSON."""
    if isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, Sequence):
        return str(value)
    first = [_plain(item) for item in islice(value, _SHOWN_ITEMS)]
    return first if len(value) <= _SHOWN_ITEMS else {"n_items": len(value), "first": first}


def _shown(key: str, value: object) -> str:
    """A fact on one line of bounded length."""
    if key.endswith("bytes") and isinstance(value, int):
        return human_bytes(value)
    match value:
        case bool():
            return "yes" if value else "no"
        case {"n_items": int(n_items), "first": list(first)}:
            text = f"[{', '.join(map(repr, first))}, …] ({n_items} items)"
        case dict():
            text = ", ".join(f"{name} {entry['id']} {entry['text']!r}" for name, entry in value.items())
        case list():
            text = ", ".join(map(str, value))
        case _:
            text = "-" if value is None else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
