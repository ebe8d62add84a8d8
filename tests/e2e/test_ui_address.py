"""The secret address of `mlw ui`: other ports of this machine get neither its cookie nor its name."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from mlworkbench.remote.shared import machine
from mlworkbench.ui.queries.projects import key_of
from tests.machines.browser import BrowserSession, browser_session, chromium, ui_server
from tests.machines.network import wait_until
from tests.machines.proxy import Proxy
from tests.machines.ui_routes import (
    HttpClient,
    addresses,
    api_client,
    free_port,
    login_cookie,
    new_link,
    pages,
    secret_of,
)

BOTH = pytest.mark.parametrize("style", ["hostname", "path"])


class _OtherApplication(http.server.BaseHTTPRequestHandler):
    """Another web application on another port of this machine. It records what browsers send."""

    requests: list[str] = []

    def do_GET(self) -> None:
        self.requests.append(f"{self.path}\n{self.headers}")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>other</title><img src='/picture'>")

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def other_application() -> Iterator[int]:
    """Run the application and yield its port."""
    _OtherApplication.requests = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _OtherApplication)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@BOTH
def test_other_ports_receive_no_cookie(user, tmp_path, style):
    """Browsers share cookies between all ports of a host. The session cookie is bound to the secret address."""
    with ui_server(user, user.home, tmp_path, "--address", style) as server, chromium() as browser:
        ui = BrowserSession(browser, server)
        (cookie,) = ui.context.cookies()
        assert cookie["sameSite"] == "Strict" and cookie["httpOnly"] and not cookie["domain"].startswith(".")
        with other_application() as port:
            page = ui.context.new_page()
            for name in ("127.0.0.1", "localhost", "another.localhost"):
                page.goto(f"http://{name}:{port}/")
                wait_until(
                    lambda name=name: any(
                        "/picture" in request and name in request for request in _OtherApplication.requests
                    ),
                    "a request",
                )
            received = "".join(_OtherApplication.requests)
            assert cookie["value"] not in received and secret_of(user.store) not in received
            # Even a page with the address could not inspect our window.
            with ui.context.expect_page() as opened:
                page.evaluate("address => { window.ours = window.open(address); }", server.address + "/")
            opened.value.wait_for_load_state()
            page.wait_for_function("window.ours.closed")


TRAINS = """
import shutil, mlworkbench as mlw
for step in range(5):
    print("epoch", step)
    mlw.log("loss", 1 / (step + 1), step=step)
shutil.copy("dot.png", "outputs/dot.png")
"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="  # one pixel
_OUTSIDE = """base => [...document.querySelectorAll("a[href^='/'], img[src^='/'], link[href^='/'], form[action^='/']")]
  .map(one => one.getAttribute("href") ?? one.getAttribute("src") ?? one.getAttribute("action"))
  .filter(address => !address.startsWith(base + "/"))"""


def test_pages_below_secret_path(user, tmp_path):
    """All requests and links of pages stay below the secret address, so the cookie is sent nowhere else."""
    root = user.project("demo", train=TRAINS)
    (root / "readme.md").write_text("# Demo\n\n[the script](train.py) ![a dot](dot.png)\n")
    (root / "dot.png").write_bytes(b64decode(DOT))
    runs = [user.mlw("submit", "train.py", cwd=root).run for _ in range(2)]
    with browser_session(user, root, tmp_path, "--address", "path") as ui:
        base = f"/{secret_of(user.store)}"
        assert ui.server.address == f"http://127.0.0.1:{ui.server.port}{base}"
        key = key_of(root)
        addresses = [route.filled(key=key, name=runs[0]) for route in pages()]
        tabs = ("log", "metrics", "outputs&path=dot.png", "images", "environment", "code")
        more = [f"/runs/{runs[0]}?tab={tab}" for tab in tabs] + ["/no/such/page", "/runs/"]
        for path in (*addresses, *more, f"/compare?runs={','.join(runs)}", f"/p/{key}/files?path=dot.png"):
            page = ui.go(path)
            page.get_by_text("ML Workbench").first.wait_for()
            page.wait_for_function("window.socket?.connected")
            page.wait_for_load_state("networkidle")
            assert page.evaluate(_OUTSIDE, base) == [], path
            broken = "[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)"
            assert page.evaluate(broken) == [], path
        assert base not in ui.request("/api/openapi.json").text()
        moved = ui.request("/runs/", max_redirects=0)
        assert (moved.status, moved.headers["location"]) == (307, "./../runs")
        page = ui.go(f"/p/{key}/runs")
        page.get_by_role("link", name=runs[0]).click()
        page.wait_for_url(f"{ui.server.address}/runs/{runs[0]}*")
        page.get_by_role("tab", name="Log").click()
        expect(page.get_by_text("epoch 4")).to_be_visible()
        assert page.url.startswith(ui.server.address + "/")
        # The page that does not exist causes a 404 message.
        ui.console_errors = [route for route in ui.console_errors if "404" not in route]
        ui.assert_no_errors()
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(ui.server.address + "/login")
        assert ui.context.cookies() == []


@BOTH
def test_forwarded_port(user, tmp_path, style):
    """With `ssh -L 9000:127.0.0.1:8521` the browser uses another port than the server."""
    with ui_server(user, user.home, tmp_path, "--address", style) as server:
        tunnel = Proxy("127.0.0.1", int(server.port))
        try:
            server.link = server.link.replace(f":{server.port}/", f":{tunnel.port}/")
            server.address = server.link.partition("/login")[0]
            with chromium() as browser:
                ui = BrowserSession(browser, server)
                ui.page.wait_for_function("window.socket?.connected")
                ui.page.get_by_role("button", name="Jobs").click()
                expect(ui.page.locator(".mlw-jobs")).to_be_in_viewport()
                ui.assert_no_errors()
        finally:
            tunnel.close()


def test_numeric_address_serves_api_only_without_secret(user, tmp_path):
    """Without the secret, the numeric address accepts no cookie or login code, and no response contains the secret."""
    with ui_server(user, user.home, tmp_path) as server:
        secret, code = secret_of(user.store), server.link.partition("/login")[2]
        assert json.loads((user.store / "ui" / "server.json").read_text())["address"] == server.numeric
        visitor = HttpClient(server.numeric)
        refused = visitor.request("GET", "/login" + code, Sec_Fetch_Dest="document")
        assert refused.status == 401 and "set-cookie" not in refused.headers
        cookie = login_cookie(server)  # the code is still valid
        mine = api_client(server, user.store)
        for path in (*addresses(), "/runs/", "/p", "/login?next=/runs", "/static"):
            for client, given in ((visitor, {"Cookie": cookie}), (visitor, {"Host": "x.localhost"}), (mine, {})):
                for method in ("GET", "HEAD", "POST"):
                    if (client, method, path) == (mine, "POST", "/api/link"):
                        continue
                    answer = client.request(method, path, Origin=server.numeric, Sec_Fetch_Dest="document", **given)
                    assert answer.status in (401, 403, 421) or client is mine, (method, path, answer)
                    assert secret not in f"{answer.headers}{answer.body!r}", (method, path, given)
            answer = HttpClient(server.address).request("GET", path, Cookie=cookie)
            policy = answer.headers.pop("content-security-policy")
            assert set(re.findall(r"[^\s;]*(?:localhost|127)[^\s;]*", policy)) <= {
                f"ws://{secret}.localhost:{server.port}"
            }, policy
            assert secret not in str(answer.headers), (path, answer.headers)
        again = user.mlw("ui", "--no-browser", "--address", "path")
        (link,) = re.findall(r"http://\S+", again.err)
        assert link.startswith(f"{server.numeric}/{secret}/login?code=") and again.code == 0
        other = HttpClient(server.numeric).request("GET", link.removeprefix(server.numeric)).headers["set-cookie"]
        assert f"Path=/{secret}/;" in other and "Domain" not in other
        assert visitor.request("GET", f"/{secret}/runs", Cookie=other.partition(";")[0]).status == 200
        assert visitor.request("GET", "/runs", Cookie=other.partition(";")[0]).status == 401
        assert new_link(server, user.store).startswith(server.address)
    assert secret not in (user.store / "ui" / "server.log").read_text()


# -- a stale server.json -----------------------------------------------------------------------------------

_RECORDER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.headers, flush=True)
        body = b'{"link": "http://evil.example/\\\\u001b]0;owned\\\\u0007\\\\"><script>x</script>"}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST
    def log_message(self, *_):
        return
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
print("listening", flush=True)
server.serve_forever()
"""


@contextmanager
def program_on_port(port: str, received: Path) -> Iterator[None]:
    """Run another user's program that listens on this port."""
    with open(received, "wb") as file:
        process = subprocess.Popen(
            ["/usr/bin/python3", "-I", "-c", _RECORDER, port],
            user=65534, group=65534, extra_groups=[], stdout=file, cwd="/",
        )  # fmt: skip
    try:
        wait_until(lambda: "listening" in received.read_text() or process.poll() is not None, "the squatter")
        assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.skipif(os.getuid() != 0 or not os.access("/usr/bin/python3", os.X_OK), reason="only root can be nobody")
def test_program_on_port_of_killed_server_provides_no_link(user, tmp_path):
    """mlw also sends nothing to that program, whether the recorded process has ended or its PID was reused."""
    port, file, received = free_port(), user.store / "ui" / "server.json", tmp_path / "heard"
    with ui_server(user, user.home, tmp_path, "--port", port) as server:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(20)
    left = json.loads(file.read_text())
    alive = {**left, "pid": os.getpid(), "start": machine.start_time(os.getpid())}
    with program_on_port(port, received):
        for facts in (left, alive):
            file.write_text(json.dumps(facts))
            done = user.mlw("ui", "--no-browser", "--port", port)
            assert done.code != 0 and f"port {port} is already in use" in done.err, done
            assert "evil" not in done.out + done.err and "http://" not in done.err
        with ui_server(user, user.home, tmp_path) as again:  # on another port
            assert again.link.startswith(f"http://{secret_of(user.store)}.localhost:{again.port}/login?code=")
        assert received.read_text() == "listening\n"
