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
from mlworkbench.ui.answers.projects import key_of
from tests.machines.browser import Looker, chromium, looking, workbench
from tests.machines.doors import Caller, addresses, free_port, new_link, pages, program, secret_of, session
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
    with workbench(user, user.home, tmp_path, "--address", style) as bench, chromium() as browser:
        looker = Looker(browser, bench)
        (cookie,) = looker.context.cookies()
        assert cookie["sameSite"] == "Strict" and cookie["httpOnly"] and not cookie["domain"].startswith(".")
        with other_application() as port:
            page = looker.context.new_page()
            for name in ("127.0.0.1", "localhost", "another.localhost"):
                page.goto(f"http://{name}:{port}/")
                wait_until(
                    lambda name=name: any("/picture" in one and name in one for one in _Other.heard), "a request"
                )
            heard = "".join(_Other.heard)
            assert cookie["value"] not in heard and secret_of(user.store) not in heard
            # Even a page that knew the address could not look at a window of ours.
            with looker.context.expect_page() as opened:
                page.evaluate("address => { window.ours = window.open(address); }", bench.address + "/")
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


def test_pages_below_a_secret_path(user, tmp_path):
    """All that they ask for, and all addresses in them, are below it: the browser sends the cookie nowhere else."""
    root = user.project("demo", train=TRAINS)
    (root / "readme.md").write_text("# Demo\n\n[the script](train.py) ![a dot](dot.png)\n")
    (root / "dot.png").write_bytes(b64decode(DOT))
    runs = [user.mlw("submit", "train.py", cwd=root).run for _ in range(2)]
    with looking(user, root, tmp_path, "--address", "path") as looker:
        base = f"/{secret_of(user.store)}"
        assert looker.bench.address == f"http://127.0.0.1:{looker.bench.port}{base}"
        key = key_of(root)
        found = [one.filled(key=key, name=runs[0]) for one in pages()]
        tabs = ("log", "metrics", "outputs&path=dot.png", "images", "environment", "code")
        more = [f"/runs/{runs[0]}?tab={tab}" for tab in tabs] + ["/no/such/page", "/runs/"]
        for path in (*found, *more, f"/compare?runs={','.join(runs)}", f"/p/{key}/files?path=dot.png"):
            page = looker.go(path)
            page.get_by_text("ML Workbench").first.wait_for()
            page.wait_for_function("window.socket?.connected")
            page.wait_for_load_state("networkidle")
            assert page.evaluate(_OUTSIDE, base) == [], path
            broken = "[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src)"
            assert page.evaluate(broken) == [], path
        assert base not in looker.ask("/api/openapi.json").text()
        moved = looker.ask("/runs/", max_redirects=0)
        assert (moved.status, moved.headers["location"]) == (307, "./../runs")
        page = looker.go(f"/p/{key}/runs")
        page.get_by_role("link", name=runs[0]).click()
        page.wait_for_url(f"{looker.bench.address}/runs/{runs[0]}*")
        page.get_by_role("tab", name="Log").click()
        expect(page.get_by_text("epoch 4")).to_be_visible()
        assert page.url.startswith(looker.bench.address + "/")
        looker.complaints = [one for one in looker.complaints if "404" not in one]  # the page that is not there
        looker.must_be_content()
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(looker.bench.address + "/login")
        assert looker.context.cookies() == []


@BOTH
def test_a_forwarded_port(user, tmp_path, style):
    """As with `ssh -L 9000:127.0.0.1:8521`: the browser uses another port than the server has."""
    with workbench(user, user.home, tmp_path, "--address", style) as bench:
        tunnel = Proxy("127.0.0.1", int(bench.port))
        try:
            bench.link = bench.link.replace(f":{bench.port}/", f":{tunnel.port}/")
            bench.address = bench.link.partition("/login")[0]
            with chromium() as browser:
                looker = Looker(browser, bench)
                looker.page.wait_for_function("window.socket?.connected")
                looker.page.get_by_role("button", name="Jobs").click()
                expect(looker.page.locator(".mlw-jobs")).to_be_in_viewport()
                looker.must_be_content()
        finally:
            tunnel.close()


def test_the_numeric_address_is_for_programs_and_names_no_secret(user, tmp_path):
    """A cookie is no session there, a code is not taken, and no answer to anybody has the secret in it."""
    with workbench(user, user.home, tmp_path) as bench:
        secret, code = secret_of(user.store), bench.link.partition("/login")[2]
        assert json.loads((user.store / "ui" / "server.json").read_text())["address"] == bench.numeric
        visitor = Caller(bench.numeric)
        refused = visitor.ask("GET", "/login" + code, Sec_Fetch_Dest="document")
        assert refused.status == 401 and "set-cookie" not in refused.headers
        cookie = session(bench)  # the code is good still
        mine = program(bench, user.store)
        for path in (*addresses(), "/runs/", "/p", "/login?next=/runs", "/static"):
            for caller, given in ((visitor, {"Cookie": cookie}), (visitor, {"Host": "x.localhost"}), (mine, {})):
                for method in ("GET", "HEAD", "POST"):
                    if (caller, method, path) == (mine, "POST", "/api/link"):
                        continue
                    answer = caller.ask(method, path, Origin=bench.numeric, Sec_Fetch_Dest="document", **given)
                    assert answer.status in (401, 403, 421) or caller is mine, (method, path, answer)
                    assert secret not in f"{answer.headers}{answer.body!r}", (method, path, given)
            answer = Caller(bench.address).ask("GET", path, Cookie=cookie)
            policy = answer.headers.pop("content-security-policy")
            assert set(re.findall(r"[^\s;]*(?:localhost|127)[^\s;]*", policy)) <= {
                f"ws://{secret}.localhost:{bench.port}"
            }, policy
            assert secret not in str(answer.headers), (path, answer.headers)
        again = user.mlw("ui", "--no-browser", "--address", "path")
        (link,) = re.findall(r"http://\S+", again.err)
        assert link.startswith(f"{bench.numeric}/{secret}/login?code=") and again.code == 0
        other = Caller(bench.numeric).ask("GET", link.removeprefix(bench.numeric)).headers["set-cookie"]
        assert f"Path=/{secret}/;" in other and "Domain" not in other
        assert visitor.ask("GET", f"/{secret}/runs", Cookie=other.partition(";")[0]).status == 200
        assert visitor.ask("GET", "/runs", Cookie=other.partition(";")[0]).status == 401
        assert new_link(bench, user.store).startswith(bench.address)
    assert secret not in (user.store / "ui" / "server.log").read_text()


# -- a stale server.json -----------------------------------------------------------------------------------

_SQUATTER = """
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
def squatter(port: str, heard: Path) -> Iterator[None]:
    """Another user, who listens on this port."""
    with open(heard, "wb") as file:
        process = subprocess.Popen(
            ["/usr/bin/python3", "-I", "-c", _SQUATTER, port],
            user=65534, group=65534, extra_groups=[], stdout=file, cwd="/",
        )  # fmt: skip
    try:
        wait_until(lambda: "listening" in heard.read_text() or process.poll() is not None, "the squatter")
        assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait(20)


@pytest.mark.skipif(os.getuid() != 0 or not os.access("/usr/bin/python3", os.X_OK), reason="only root can be nobody")
def test_a_squatter_on_the_port_of_a_killed_server_gives_no_link(user, tmp_path):
    """Nor is it sent anything, whether the process of the file is gone or another one has its id."""
    port, file, heard = free_port(), user.store / "ui" / "server.json", tmp_path / "heard"
    with workbench(user, user.home, tmp_path, "--port", port) as bench:
        bench.process.send_signal(signal.SIGKILL)
        bench.process.wait(20)
    left = json.loads(file.read_text())
    alive = {**left, "pid": os.getpid(), "start": machine.start_time(os.getpid())}
    with squatter(port, heard):
        for facts in (left, alive):
            file.write_text(json.dumps(facts))
            done = user.mlw("ui", "--no-browser", "--port", port)
            assert done.code != 0 and f"port {port} is already in use" in done.err, done
            assert "evil" not in done.out + done.err and "http://" not in done.err
        with workbench(user, user.home, tmp_path) as again:  # at another port
            assert again.link.startswith(f"http://{secret_of(user.store)}.localhost:{again.port}/login?code=")
        assert heard.read_text() == "listening\n"
