"""GET /openapi.json, and a page for people that needs nothing from elsewhere."""

from __future__ import annotations

import html
from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, JSONResponse

from minfer.serve.wire.openapi import OPERATIONS, openapi_document

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; } pre { overflow-x: auto; padding: .75rem; }
pre, tr:nth-child(even) { background: color-mix(in srgb, currentColor 7%, transparent); }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3rem .6rem; text-align: left;
vertical-align: top; } summary { cursor: pointer; padding: .3rem 0; } :root { color-scheme: light dark; }
"""
_EXAMPLE = """curl {base}/v1/chat/completions -H 'content-type: application/json' \\
  -d '{{"messages": [{{"role": "user", "content": "Hello"}}], "stream": true}}'

from openai import OpenAI
client = OpenAI(base_url="{base}/v1", api_key="none")
print(client.chat.completions.create(model="", messages=[{{"role": "user", "content": "Hello"}}]))"""


async def openapi(_: Request) -> Response:
    """The OpenAPI document."""
    return JSONResponse(_document())


async def docs(request: Request) -> Response:
    """The page."""
    base = str(request.base_url).rstrip("/")
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(_page(base[:200]), headers=headers)


@cache
def _document() -> dict[str, Any]:
    return openapi_document()


def _page(base: str) -> str:
    schemas = _document()["components"]["schemas"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>minfer-serve</title>",
        f"<style>{_STYLE}</style><h1>minfer-serve</h1>",
        f"<pre>{html.escape(_EXAMPLE.format(base=base))}</pre>",
        "<p>The same as a document for programs: <a href=/openapi.json>/openapi.json</a></p>",
    ]
    for operation in OPERATIONS:
        title = f"<code>{operation.method.upper()} {html.escape(operation.path)}</code> {operation.summary}"
        if operation.body is None:
            parts.append(f"<p>{title}</p>")
        else:
            parts.append(
                f"<details><summary>{title}</summary>{_table(schemas[operation.body.__name__])}</details>"
            )
    return "".join(parts)


def _table(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = []
    for name, described in schema["properties"].items():
        mark = " (required)" if name in required else ""
        text = html.escape(described.get("description", ""))
        rows.append(f"<tr><td><code>{html.escape(name)}</code>{mark}</td><td>{text}</td></tr>")
    return f"<table>{''.join(rows)}</table>"
