"""Log messages of the middleware and the API when a request fails."""

from __future__ import annotations

import asyncio
import logging

import pytest
from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware

from mlworkbench.ui import api
from mlworkbench.ui.auth_middleware import AuthMiddleware
from mlworkbench.ui.login import Login, Password
from mlworkbench.ui.request_policy import AccessPolicy
from mlworkbench.ui.sessions import Sessions

HOST = "127.0.0.1:8521"
REQUEST = {"type": "http.request", "body": b"", "more_body": False}


async def end_without_response(scope, receive, send):
    """End without a response, like a request whose client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def raise_error(scope, receive, send):
    raise RuntimeError("No response returned.")


async def pass_through(request, call_next):
    return await call_next(request)


def send_request(tmp_path, endpoint, *, disconnected):
    """Send a request to an app with a BaseHTTPMiddleware, as NiceGUI adds it, and return the messages sent back."""
    app = FastAPI()
    app.add_middleware(BaseHTTPMiddleware, dispatch=pass_through)
    app.mount("/inner", endpoint)
    app.add_exception_handler(Exception, api._handle_internal_error)
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    middleware = AuthMiddleware(
        app, AccessPolicy(frozenset({HOST}), "mlw_8521"), sessions, Login(sessions, "/secret", Password("x" * 20))
    )
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
    incoming, sent = [REQUEST], []

    async def receive():
        if disconnected:
            return {"type": "http.disconnect"}
        if not incoming:
            await asyncio.Event().wait()  # the browser waits for its response
        return incoming.pop()

    async def send(message):
        sent.append(message)

    asyncio.run(middleware(scope, receive, send))
    return sent


@pytest.mark.parametrize("endpoint", [end_without_response, raise_error])
def test_disconnected_client_is_not_logged_as_error(tmp_path, caplog, endpoint):
    """The application may end without a response or raise an error."""
    with caplog.at_level(logging.INFO, "mlworkbench.ui"):
        send_request(tmp_path, endpoint, disconnected=True)
    assert caplog.records == []


def test_internal_error_is_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "mlworkbench.ui"):
        sent = send_request(tmp_path, raise_error, disconnected=False)
    assert len(caplog.records) == 1 and "No response returned." in caplog.text
    assert sent[0]["status"] == 500
