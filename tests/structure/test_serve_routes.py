"""Every path that the server answers is described, and the other way round."""

from __future__ import annotations

from starlette.routing import Route

from minfer.serve.app import ROUTES
from minfer.serve.wire.openapi import OPERATIONS

_PAGES = {"/", "/docs", "/openapi.json", "/v1/health"}


def test_routes_and_the_openapi_document_agree() -> None:
    described = {(operation.method.upper(), operation.path) for operation in OPERATIONS}
    served = {
        (method, route.path.replace(":path", ""))
        for route in ROUTES
        if isinstance(route, Route) and route.path not in _PAGES
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == described
