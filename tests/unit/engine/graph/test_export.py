"""Graphs as dot and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minfer.engine.architectures import build_graph
from minfer.engine.graph.export import GraphFileError, write_graph
from minfer.engine.graph.ops import Graph
from minfer.engine.testing import TINY_MODELS, tiny_model
from minfer.gguf import open_bytes


@pytest.fixture
def graph() -> Graph:
    file = open_bytes(tiny_model(TINY_MODELS["llama-experts"]))
    return build_graph(file.metadata, file)


def test_json_names_every_node_and_its_inputs(graph: Graph, tmp_path: Path) -> None:
    write_graph(graph, tmp_path / "graph.json")
    whole = json.loads((tmp_path / "graph.json").read_text())
    names = [node["name"] for node in whole["nodes"]]
    assert names == [node.name for node in graph]
    assert whole["logits"] == "logits"
    assert len(whole["cache_slots"]) == 2
    by_name = {node["name"]: node for node in whole["nodes"]}
    assert by_name["blk.1.ffn_route"]["attributes"]["n_used"] == 2
    assert by_name["blk.1.ffn_up_exps"]["inputs"] == ["blk.1.ffn_norm", "blk.1.ffn_route"]
    assert by_name["blk.0.attn_q"]["attributes"]["weight"]["name"] == "blk.0.attn_q.weight"


def test_dot_has_a_box_for_each_node_and_an_arrow_for_each_input(graph: Graph, tmp_path: Path) -> None:
    write_graph(graph, tmp_path / "graph.DOT")
    text = (tmp_path / "graph.DOT").read_text()
    assert text.count("label=") == len(graph.nodes) + 2  # and one for each layer's frame
    assert text.count("->") == sum(len(node.inputs) for node in graph)
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("name", ["graph.png", "graph", "absent/graph.dot"])
def test_files_that_cannot_be_written_are_refused(graph: Graph, tmp_path: Path, name: str) -> None:
    with pytest.raises(GraphFileError):
        write_graph(graph, tmp_path / name)
