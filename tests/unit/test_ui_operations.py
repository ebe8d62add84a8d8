"""Operations of the HTTP API, by their names of today and by those that scripts may still use until 1.0."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI, Request

from mlworkbench.errors import ConfigError, UnknownName, Unreachable
from mlworkbench.ui import api
from mlworkbench.ui.api import errands as operations
from mlworkbench.ui.desk import Desk
from mlworkbench.ui.errands import Errand
from tests.machines.doors import openapi


def failed() -> Errand:
    made = Errand("0123456789abcdef", ("experiment", "prepare"), 0.0)
    for line in (b"solving", b"error: no contact with box", b"hint: is it on?", b"more: mlw explain no-contact"):
        made.hear(line)
    made.code = Unreachable.exit_code
    return made


def get(path: str) -> tuple[int, Any]:
    """What the application answers, without a server."""
    app = FastAPI()
    desk = SimpleNamespace(errands={"0123456789abcdef": failed()})
    app.include_router(operations.routes(cast("Desk", desk)), prefix="/api")
    app.add_exception_handler(UnknownName, api._told)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    where, _, query = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": where, "query_string": query.encode(), "headers": []}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent[1:]))


def test_an_operation_has_its_former_address_and_keys():
    status, found = get("/api/operations/0123456789abcdef?first=1")
    assert status == 200 and found["lines"][0] == "error: no contact with box"
    assert (found["total"], found["explain"], found["hint"]) == (4, "no-contact", "is it on?")
    assert (found["said"], found["more"]) == (found["total"], found["explain"])
    assert get("/api/errands/0123456789abcdef?first=1") == (200, found)


@pytest.mark.parametrize("path", ["/api/operations/x", "/api/errands/x"])
def test_an_unknown_operation(path):
    status, found = get(path)
    assert status == 404 and found["error"].startswith("unknown operation 'x'")


def test_an_error_names_its_page_by_both_keys():
    request = Request({"type": "http"})
    found = json.loads(asyncio.run(api._told(request, Unreachable("no contact with box"))).body)
    assert (found["explain"], found["more"]) == ("no-contact", "mlw explain no-contact")
    assert set(json.loads(asyncio.run(api._told(request, ConfigError("it is wrong"))).body)) == {"error", "hint"}


def test_former_names_are_deprecated_in_the_description():
    described = openapi()
    assert "/api/operations/{name}" in described["paths"]
    assert not [path for path in described["paths"] if "errand" in path]
    schemas = described["components"]["schemas"]
    for name, former in (("Told", "said"), ("Told", "more"), ("Submitted", "errand"), ("AttachAnswer", "errand")):
        assert schemas[name]["properties"][former]["deprecated"] is True
