"""What the gate and the API write to the log when a request fails."""

from __future__ import annotations

import asyncio
import logging

import pytest
from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware

from mlworkbench.ui import api
from mlworkbench.ui.admission import Door
from mlworkbench.ui.gate import Gate
from mlworkbench.ui.login import Login, Password
from mlworkbench.ui.sessions import Sessions

HOST = "127.0.0.1:8521"
REQUEST = {"type": "http.request", "body": b"", "more_body": False}


async def gives_up(scope, receive, send):
    """As a request does whose browser has gone: it ends without a response."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def fails(scope, receive, send):
    raise RuntimeError("No response returned.")


async def pass_on(request, call_next):
    return await call_next(request)


def ask(tmp_path, endpoint, *, gone):
    """One request through the gate; what was sent back. NiceGUI has such middleware."""
    app = FastAPI()
    app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    app.mount("/inner", endpoint)
    app.add_exception_handler(Exception, api._fault)
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    gate = Gate(app, Door(frozenset({HOST}), "mlw_8521"), sessions, Login(sessions, "/secret", Password("x" * 20)))
    headers = {"host": HOST, "authorization": f"Bearer {sessions.token}"}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/inner/x",
        "raw_path": b"/inner/x",
        "query_string": b"",
        "root_path": "",
        "http_version": "1.1",
        "scheme": "http",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8521),
    }
    coming, sent = [REQUEST], []

    async def receive():
        if gone:
            return {"type": "http.disconnect"}
        if not coming:
            await asyncio.Event().wait()  # the browser waits for its response
        return coming.pop()

    async def send(message):
        sent.append(message)

    asyncio.run(gate(scope, receive, send))
    return sent


@pytest.mark.parametrize("endpoint", [gives_up, fails])
def test_a_request_whose_browser_has_gone_is_no_fault(tmp_path, caplog, endpoint):
    """Whether the application has noticed it, or was only interrupted."""
    with caplog.at_level(logging.INFO, "mlworkbench.ui"):
        ask(tmp_path, endpoint, gone=True)
    assert caplog.records == []


def test_a_fault_of_ours_is_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "mlworkbench.ui"):
        sent = ask(tmp_path, fails, gone=False)
    assert len(caplog.records) == 1 and "No response returned." in caplog.text
    assert sent[0]["status"] == 500
