"""A graph as a file for people and programs: Graphviz dot, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from minfer.core.errors import UsageError
from minfer.engine.graph.ops import Graph, Node, Op, Weight


class GraphFileError(UsageError):
    """The file that a graph should be written to has no known ending, or cannot be written."""

    code = "graph-file"


def as_json(graph: Graph) -> str:
    """Nodes in order of execution with their attributes, the cache slots, and the results' names."""
    nodes = [
        {
            "name": node.name,
            "op": type(node.op).__name__,
            "attributes": _attributes(node.op),
            "inputs": [graph.nodes[i].name for i in node.inputs],
            "rows": node.rows.value,
            "features": node.features,
        }
        for node in graph
    ]
    whole = {
        "nodes": nodes,
        "cache_slots": [_plain(spec) for spec in graph.cache_slots],
        "logits": graph.nodes[graph.logits].name,
        "pooled": None if graph.pooled is None else graph.nodes[graph.pooled].name,
    }
    return json.dumps(whole, indent=1) + "\n"


def as_dot(graph: Graph) -> str:
    """One box for each node; the nodes of a layer are framed together."""
    lines = ["digraph network {", '  node [shape=box, fontname="sans-serif", fontsize=10];']
    layer = ""
    for index, node in enumerate(graph):
        scope = _scope(node)
        if scope != layer:
            lines += ["  }"] if layer else []
            lines += [f'  subgraph "cluster_{scope}" {{', f'    label="{scope}";'] if scope else []
            layer = scope
        lines.append(f'    n{index} [label="{_label(node)}"];')
    lines += ["  }"] if layer else []
    for index, node in enumerate(graph):
        lines += [f"  n{source} -> n{index};" for source in node.inputs]
    return "\n".join([*lines, "}"]) + "\n"


WRITERS: Final[dict[str, Callable[[Graph], str]]] = {".dot": as_dot, ".json": as_json}


def write_graph(graph: Graph, path: Path) -> None:
    """Write the graph in the format that the file's ending names. Raises GraphFileError."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise GraphFileError(
            f"{str(path)!r} ends in none of {', '.join(WRITERS)}",
            hint="name the file graph.dot or graph.json",
        )
    try:
        path.write_text(writer(graph), encoding="utf-8")
    except OSError as error:
        raise GraphFileError(
            f"the graph cannot be written to {str(path)!r}: {error.strerror}", hint="name another file"
        ) from error


def _scope(node: Node) -> str:
    """`blk.3` of `blk.3.attn_q`; empty outside layers."""
    parts = node.name.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 and parts[1].isdecimal() else ""


def _label(node: Node) -> str:
    name = node.name.removeprefix(_scope(node) + ".") if _scope(node) else node.name
    return f"{name}\\n{type(node.op).__name__} [{node.rows.value}, {node.features}]"


def _attributes(op: Op) -> dict[str, Any]:
    return {item.name: _plain(getattr(op, item.name)) for item in fields(op)}


def _plain(value: object) -> object:
    """A value as JSON can hold it."""
    if isinstance(value, Weight):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return list(value) if isinstance(value, tuple) else value
