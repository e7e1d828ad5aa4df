"""The budgets of the house: sizes of functions and files, docstrings, no stray package markers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

_ROOTS = ("libs", "tools")
_MAX_FILE_LINES = 500
_MAX_FUNCTION_LINES = 60
_MAX_P90_LINES = 25


def _sources(*suffixes: str) -> list[Path]:
    generated = ("_pb2.py", "_pb2_grpc.py", "_pb2.pyi")
    return [
        path
        for top in _ROOTS
        for suffix in suffixes
        for path in (ROOT / top).rglob(f"*{suffix}")
        if not path.name.endswith(generated) and "build" not in path.parts
    ]


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node):
        doc = node.body[0]
        lines -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return lines


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path in _sources(".py", ".pyx", ".c", ".h")
        if (n := len(path.read_text().splitlines())) > _MAX_FILE_LINES
    }
    assert not long


def test_functions_are_short() -> None:
    sizes: list[int] = []
    long = []
    for path in _sources(".py"):
        for node in _functions(path):
            sizes.append(_body_lines(node))
            if sizes[-1] > _MAX_FUNCTION_LINES:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not long
    sizes.sort()
    assert sizes[int(len(sizes) * 0.9)] <= _MAX_P90_LINES


def test_no_package_claims_the_namespace() -> None:
    assert not list(ROOT.glob("*/*/src/minfer/__init__.py"))


def test_public_names_have_docstrings() -> None:
    missing = []
    for path in _sources(".py"):
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree) and path.read_text().strip():
            missing.append(f"{path.relative_to(ROOT)}: module")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not (
                node.name.startswith("_") or ast.get_docstring(node)
            ):
                missing.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not missing


def test_no_broad_excepts_in_libraries() -> None:
    edge = ROOT / "libs/cli/src/minfer/cli/edge.py"
    found = {path for path in _sources(".py") if "except Exception" in path.read_text()}
    assert found <= {edge}
