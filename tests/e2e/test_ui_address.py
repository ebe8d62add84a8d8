"""The secret address of `mlw ui`: other ports of this machine get neither its cookie nor its name."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.machines.browser import chromium, looking, workbench
from tests.machines.doors import Caller, addresses, free_port, new_link, pages, program, session
from tests.machines.network import wait_until
from tests.machines.proxy import Proxy

BOTH = pytest.mark.parametrize("style", ["hostname", "path"])


class _Other(http.server.BaseHTTPRequestHandler):
    """Another web application on this machine, on another port. It records what browsers send."""

    heard: list[str] = []

    def do_GET(self) -> None:
        self.heard.append(f"{self.path}\n{self.headers}")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>other</title><img src='/picture'>")

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def other_application() -> Iterator[int]:
    """Its port."""
    _Other.heard = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@BOTH
def test_another_port_of_this_machine_receives_no_cookie(user, tmp_path, style):
    """Browsers share cookies between all ports of a host. The session's cookie belongs to the secret address only."""
    with workbench(user, user.home, tmp_path, "--address", style) as bench, other_application() as port:
        with chromium() as browser:
            context = browser.new_context()
            page = context.new_page()
            page.goto(bench.link)
            page.get_by_text("ML Workbench").first.wait_for()
            value = context.cookies()[0]["value"]
            for name in ("127.0.0.1", "localhost", "another.localhost"):
                page.goto(f"http://{name}:{port}/")
                wait_until(lambda name=name: any("/picture" in one and name in one for one in _Other.heard), "requests")
            assert value not in "".join(_Other.heard)
            assert secret_of(user) not in "".join(_Other.heard)
