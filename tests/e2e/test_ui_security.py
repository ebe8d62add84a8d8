"""`mlw ui` rejects unauthorized access on every route, including routes added later."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pexpect
import pytest
import websockets

from mlworkbench.ui.queries.projects import key_of
from tests.conftest import MLW
from tests.machines.browser import browser_session, chromium, ui_server
from tests.machines.network import wait_until
from tests.machines.ui_routes import (
    CHANGING,
    METHODS,
    SOCKET,
    HttpClient,
    addresses,
    api_client,
    free_port,
    login_cookie,
    new_link,
    pages,
    routes,
    secret_of,
    token_of,
)

OUT = (400, 401, 403, 414, 421)
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.fixture
def server(user, tmp_path):
    with ui_server(user, user.home, tmp_path) as running:
        yield running


def assert_security_headers(answer, where: object) -> None:
    headers = answer.headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"], where
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY", where
    assert headers["referrer-policy"] == "no-referrer" and "cache-control" in headers, where
    assert headers["cross-origin-resource-policy"] == "same-origin", where
    assert "server" not in headers and not any(name.startswith("access-control") for name in headers), where
    assert answer.duplicate_headers == (), where


# -- all routes --------------------------------------------------------------------------------------------


def test_every_route_refuses_unauthorized_requests(server, user):
    """All routes, files, sub-applications, and sockets refuse missing or wrong credentials.

    Each route is requested with every method and with every kind of credentials, but not with every combination.
    """
    cookie = server.port
    client = HttpClient(server.address)
    unauthorized: list[dict[str, str]] = [
        {},
        {"Origin": server.address, "Sec_Fetch_Site": "same-origin"},
        {"Authorization": f"Bearer {token_of(user.store)[:-1]}", "Origin": server.address},
        {"Authorization": f"Basic {token_of(user.store)}", "Origin": server.address},
        {"Cookie": f"mlw_{cookie}={token_of(user.store)}", "Origin": server.address},
        {"Cookie": f"mlw_{cookie}=; mlw_{cookie}=x", "Origin": server.address},
    ]
    tried = 0
    for row, path in enumerate(addresses()):
        for column, method in enumerate(METHODS):
            given = unauthorized[(row + column) % len(unauthorized)]
            answer = client.request(method, path, **given)
            assert answer.status in (401, 403), (method, path, given, answer)
            assert_security_headers(answer, (method, path))
            assert b"ML Workbench" not in answer.body or path == "/login", (method, path)
            tried += 1
        assert client.request(METHODS[row % len(METHODS)], path, Host="evil.example").status == 421
        for given in unauthorized:
            assert client.request("GET", path, **{**UPGRADE, **given}).status == 403, (path, given)
    assert tried > 8 * 30 and len(METHODS) >= len(unauthorized)


def test_every_route_accepts_its_user(server, user):
    """The routes of the previous test accept the user's token, and no request causes an internal error."""
    mine = api_client(server, user.store)
    opened = set()
    for path in addresses():
        for method in ("GET", "HEAD"):
            answer = mine.request(method, path)
            assert answer.status not in (401, 403, 421) or path == "/login", (method, path, answer)
            assert answer.status < 500, (method, path, answer)
            assert_security_headers(answer, (method, path))
            if answer.status == 200:
                opened.add(path)
    assert {"/", "/runs", "/static/mlw.css", "/api/openapi.json"} <= opened
    assert mine.request("GET", "/docs").status == mine.request("GET", "/openapi.json").status == 404
    assert mine.request("GET", SOCKET + "websocket", **UPGRADE).status == 101


def test_expired_sessions_and_links_are_refused(user, tmp_path):
    """Sessions end after seven days, even while the server is running. Links and tokens cannot be reused."""
    folder = user.store / "ui"
    folder.mkdir(parents=True, mode=0o700)
    user.store.chmod(0o700)
    week, port = 7 * 86400, free_port()
    ages = {"old": week + 1, "aging": week - 10, "young": 60}
    kept = {sha256(f"mlw_{port}={name}".encode()).hexdigest(): time.time() - age for name, age in ages.items()}
    (folder / "sessions.json").write_text(json.dumps(kept))
    with ui_server(user, user.home, tmp_path, "--keep-address", "--port", port) as running:
        client = HttpClient(running.address)

        def opens(name: str) -> bool:
            return client.request("GET", "/", Cookie=f"mlw_{running.port}={name}").status == 200

        assert opens("young") and not opens("old") and not opens("none")
        wait_until(lambda: not opens("aging"), "the end of a session")
        assert opens("young")
        login_cookie(running)
        assert client.request("GET", running.link.removeprefix(running.address)).status == 401
        before = token_of(user.store)
        port = running.port
    with ui_server(user, user.home, tmp_path, "--port", port) as again:
        for word in (before, ""):
            answer = HttpClient(again.address).request("POST", "/api/link", Authorization=f"Bearer {word}")
            assert answer.status in (401, 403), "the token of a server that has ended"


# -- malformed requests and host names ---------------------------------------------------------------------

ODD = (
    b"GET /static/../server.py HTTP/1.1", b"GET /static/%2e%2e/server.py HTTP/1.1",
    b"GET /static/..%2fserver.py HTTP/1.1", b"GET /static/%2e%2e%2fserver.py HTTP/1.1",
    b"GET /static/..%5cserver.py HTTP/1.1", b"GET /static/..\\server.py HTTP/1.1",
    b"GET /static/%252e%252e/server.py HTTP/1.1", b"GET /static//etc/passwd HTTP/1.1",
    b"GET //etc/passwd HTTP/1.1", b"GET /static/%00mlw.css HTTP/1.1", b"GET /static/%c0%ae%c0%ae/server.py HTTP/1.1",
    b"GET /_nicegui/3/static/%2e%2e/nicegui.py HTTP/1.1", b"GET http://evil.example/ HTTP/1.1",
    b"GET http://evil.example/api/openapi.json HTTP/1.1", b"CONNECT evil.example:443 HTTP/1.1", b"OPTIONS * HTTP/1.1",
    b"GET evil.example HTTP/1.1", b"GET  / HTTP/1.1", b"get / HTTP/1.1", b"GET / HTTP/0.9", b"GET /", b"PRI * HTTP/2.0",
    b"GET /\xff\xfe HTTP/1.1", b"GET /p/\xe2\x80\xae HTTP/1.1", b"GET /%zz HTTP/1.1", b"GET /;/login HTTP/1.1",
    b"GET /login/../runs HTTP/1.1", b"GET /login/ HTTP/1.1", b"GET /LOGIN HTTP/1.1", b"GET /login;x HTTP/1.1",
    b"GET /login%2f..%2fruns HTTP/1.1", b"GET /login%20 HTTP/1.1", b"GET /static/mlw.css#/login HTTP/1.1",
    b"GET /" + b"a" * 5000 + b" HTTP/1.1", b"GET /runs?" + b"a=b&" * 2000 + b" HTTP/1.1",
)  # fmt: skip
SMUGGLED = (
    b"POST /login HTTP/1.1\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n%s\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"POST /login HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 40\r\n%s\r\nGET /runs HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /login HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n%s\r\n0\r\n\r\n",
    b"GET /login HTTP/1.1\r\nX: y\r\n z\r\n%s\r\n",
    b"GET / HTTP/1.1\r\nHost : evil.example\r\n%s\r\n",
)


def _statuses(data: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", data)]


def test_malformed_and_smuggled_requests(server, user):
    client = HttpClient(server.address)
    host = b"Host: %s\r\n" % server.address.removeprefix("http://").encode()
    cookie = b"Cookie: %s\r\n" % login_cookie(server).encode()
    for line in ODD:
        response = client.raw(line + b"\r\n" + host + b"Connection: close\r\n\r\n")
        assert set(_statuses(response)) <= {*OUT, 505}, (line, response)
        response = client.raw(line + b"\r\n" + host + cookie + b"Connection: close\r\n\r\n")
        assert max(_statuses(response), default=400) < 500 or b"505" in response, (line, response)
        assert b"root:x:0" not in response and b"import annotations" not in response, (line, response)
    for text in SMUGGLED:
        statuses = _statuses(client.raw(text % host))
        assert set(statuses) <= set(OUT), (text, statuses)
    assert client.request("GET", "/").status == 401


def test_unknown_host_names_are_refused(server, user):
    """The Host header is checked before the cookie, and no other header can override it."""
    client, cookie, secret = HttpClient(server.address), login_cookie(server), secret_of(user.store)
    name, port = client.socket_address
    for host in (
        "", "evil.example", f"evil.example:{port}", f"{name}", f"{name}:{port + 1}", f"{name}:{port}.evil.example",
        f"{name}:{port}/", f"{name}:{port}?x=", f"a@{name}:{port}", f"{name}:{port}#", f"a/?x={name}:{port}",
        f"{name}.:{port}", f"0.0.0.0:{port}", f"127.1:{port}", f"2130706433:{port}", f"localhost.evil.example:{port}",
        f"{name}:0{port}", f"[::ffff:127.0.0.1]:{port}", f"{name}:{port},evil.example",
        f"{secret[:-1]}.localhost:{port}", f"{secret}.localhost.evil.example:{port}", f"x.{secret}.localhost:{port}",
        f"{secret}.localhost.:{port}", f"{secret}:{port}", f"{secret}.localhost:{port}/", f"{secret}.localhost:x",
    ):  # fmt: skip
        for path in ("/", "/login", "/api/link", "/static/mlw.css", SOCKET + "polling"):
            assert client.request("GET", path, Host=host, Cookie=cookie).status in (400, 421), (host, path)
    for host in (f"{name}:{port}", f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}"):
        assert client.request("GET", "/", Host=host, Cookie=cookie).status == 401, (
            "a session counts at the secret address"
        )
        assert client.request("GET", "/", Host=host, Authorization=f"Bearer {token_of(user.store)}").status == 200
    for host in (f"{secret}.localhost:{port}", f"{secret.upper()}.LOCALHOST:{port}", f"{secret}.localhost:1"):
        assert client.request("GET", "/", Host=host, Cookie=cookie).status == 200
    for header in ("X_Forwarded_Host", "X_Forwarded_Prefix", "X_Original_URL", "X_Rewrite_URL", "Forwarded", "X_Host"):
        answer = client.request("GET", "/", Cookie=cookie, **{header: "evil.example/x"})
        assert answer.status == 200 and b"evil.example" not in answer.body, header
    for header in ("X_HTTP_Method_Override", "X_Forwarded_For", "X_Original_URL"):
        assert client.request("GET", "/", **{header: "/login"}).status == 401


def test_login_redirects_stay_on_the_server(server, user):
    for target in (
        "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "http:/x",
        "javascript:alert(1)", "/%09/evil.example", "/\t/evil.example", "/ /evil.example", "%2f%2fevil.example",
        "data:text/html,x", '/"><script>alert(1)</script>', "/x;url=https://evil.example", "evil.example", "",
    ):  # fmt: skip
        link = new_link(server, user.store).removeprefix(server.address) + f"&next={quote(target)}"
        body = HttpClient(server.address).request("GET", link).body.decode()
        (location,) = re.findall(r'content="0;url=([^"]*)"', body)
        assert re.match(r"/(?![/\\])[!-~]*$", location) and "<script" not in body, (target, location)


# -- other sites -------------------------------------------------------------------------------------------


class _AttackerSite(http.server.BaseHTTPRequestHandler):
    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: Any) -> None:
        return


# All requests that a page can send to another site. Each form uses a separate frame.
_ATTACK = """<title>evil</title><body><script>
const us = %s, changing = %s, reading = %s, turn = %s, got = [];
const kinds = ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"];
const settled = (one, good) => new Promise(done => {
  one.addEventListener(good, () => { got.push(good); done(); });
  one.addEventListener("error", () => done());
  setTimeout(done, 3000);
});
const put = (kind, more) => {
  const one = Object.assign(document.createElement(kind), more);
  const end = settled(one, "load");
  document.body.append(one);
  return end;
};
function post(path, enctype) {
  const frame = document.createElement("iframe");
  frame.name = "f" + Math.random();
  document.body.append(frame);
  const form = Object.assign(document.createElement("form"), {method: "POST", action: us + path, target: frame.name});
  form.enctype = enctype;
  const field = Object.assign(document.createElement("input"), {name: '{"a":"', value: '"}'});
  form.append(field);
  document.body.append(form);
  form.submit();
}
addEventListener("load", async () => {
  for (const [number, path] of changing.entries()) {
    post(path, kinds[(number + turn) %% kinds.length]);
    navigator.sendBeacon(us + path, "x");
    fetch(us + path, {method: "POST", mode: "no-cors", credentials: "include", keepalive: true}).catch(() => {});
    fetch(us + path, {method: "DELETE", credentials: "include"}).then(() => got.push("fetched"), () => {});
  }
  const waits = [];
  for (const path of reading) {
    waits.push(put("img", {src: us + path}));
    waits.push(put("script", {src: us + path}));
    waits.push(put("link", {rel: "stylesheet", href: us + path}));
    const stream = new EventSource(us + path, {withCredentials: true});
    waits.push(settled(stream, "open").then(() => stream.close()));
    fetch(us + path, {credentials: "include"}).then(() => got.push("fetched"), () => {});
  }
  await Promise.all(waits);
  document.title = "done " + got.join(" ");
});
</script></body>"""


SITES = ["127.0.0.1", "localhost", "evil.example"]


@pytest.mark.parametrize("name", SITES)
def test_requests_from_other_sites_are_refused_on_every_route(server, user, name):
    """Forms, images, and scripts of other sites are refused, even on another port, which shares the cookies.

    A form can have three body types: for each route, each site uses a different type.
    """
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _AttackerSite)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    changing = [route.filled() for route in routes() if set(CHANGING) & set(route.methods)] + ["/logout", "/login"]
    reading = ["/", "/static/mlw.css", "/api/openapi.json", SOCKET + "polling", "/logout"]
    _AttackerSite.page = (
        _ATTACK % tuple(map(json.dumps, (server.address, changing, reading, SITES.index(name))))
    ).encode()
    try:
        with chromium() as browser:
            context = browser.new_context()
            page = context.new_page()
            page.goto(server.link)
            page.get_by_text("ML Workbench").first.wait_for()
            page.goto("about:blank")
            responses: list[tuple[int, str, str]] = []
            attacker = context.new_page()
            attacker.on("response", lambda answer: responses.append((answer.status, answer.request.method, answer.url)))
            attacker.goto(f"http://{name}:{evil.server_address[1]}/")
            attacker.wait_for_function("document.title.startsWith('done')", timeout=30_000)
            assert attacker.title().split() == ["done"]
            ours = [route for route in responses if route[2].startswith(server.address)]
            assert len(ours) > len(reading) and {status for status, _, _ in ours} <= {401, 403}, ours
            assert page.goto(server.address + "/").status == 200, "the session is as it was"
    finally:
        evil.shutdown()
        evil.server_close()


def test_dns_rebinding_is_refused(server, user):
    """The name evil.example resolves to the server, so the browser treats the server as part of that site."""
    port = server.port
    with chromium() as browser:
        page = browser.new_context().new_page()
        assert page.goto(f"http://evil.example:{port}/").status == 421
        tried = page.evaluate(
            """async paths => {
              const found = [];
              for (const path of paths)
                for (const method of ["GET", "POST"]) found.push((await fetch(path, {method})).status);
              return found;
            }""",
            addresses(),
        )
        assert set(tried) == {421}
        opened = page.evaluate(
            """path => new Promise(done => {
              const one = new WebSocket("ws://" + location.host + path);
              one.onopen = () => done(true); one.onerror = () => done(false);
            })""",
            SOCKET + "websocket",
        )
        assert opened is False


# -- exposed secrets and other users -----------------------------------------------------------------------


def _tree(pid: int) -> set[int]:
    """Return this process and all its descendants."""
    pids, parents = {pid}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    while more := {child for child, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids


def _command_lines() -> bytes:
    lines = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines += (entry / "cmdline").read_bytes() + b"\n"
            except OSError:
                continue
    return lines


def test_code_token_and_cookie_are_never_exposed(user, tmp_path):
    """Secrets are only in their own files, not in other files, command lines, Referer headers, or the page."""
    root = user.project("demo", train="print(1)")
    with browser_session(user, root, tmp_path) as ui:
        requests: list[dict[str, str]] = []
        ui.page.on("request", lambda request: requests.append(request.headers))
        for route in pages():
            ui.go(route.filled()).get_by_text("ML Workbench").first.wait_for()
        cookies = ui.context.cookies()
        assert [(route["httpOnly"], route["sameSite"], route["path"]) for route in cookies] == [(True, "Strict", "/")]
        code, token = ui.server.link.partition("code=")[2], token_of(user.store)
        secrets, address = [code, token, cookies[0]["value"]], secret_of(user.store)
        visible = ui.page.evaluate(
            "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.body.innerHTML,"
            " location.href, JSON.stringify(performance.getEntries())].join()"
        )
        assert not any(secret in visible for secret in secrets)
        assert address not in ui.page.title() + ui.page.inner_text("body")
        assert requests and not any(headers.get("referer") for headers in requests)
        lines = _command_lines()
        for path in (path for path in user.store.rglob("*") if path.is_file()):
            data = path.read_bytes()
            mine = {"server.json": token, "address.json": address}.get(path.name)
            assert not any(secret.encode() in data for secret in (*secrets, address) if secret != mine), path
        assert not any(secret.encode() in lines for secret in (*secrets, address))
        listening = subprocess.run(["ss", "-Hlntup"], capture_output=True, text=True, check=True).stdout.splitlines()
        ours = _tree(ui.server.process.pid)
        places = [line.split()[4] for line in listening if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & ours]
        port = ui.server.port
        assert sorted(places) == [f"127.0.0.1:{port}", f"[::1]:{port}"]
        assert code not in ui.server.output().replace(ui.server.link, "")


@pytest.mark.skipif(os.getuid() != 0 or not os.access("/usr/bin/python3", os.X_OK), reason="only root can be nobody")
def test_other_users_of_this_machine_are_refused(server, user):
    """Another user gets 403 and cannot read the server's files, even if their parent folders are accessible."""
    for folder in (user.store, *user.store.parents):
        if not folder.stat().st_mode & stat.S_IXOTH and folder != user.store:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    script = """
import os, sys, urllib.error, urllib.request
assert os.getuid() == 65534
found = []
for path in sys.argv[2:]:
    try:
        found.append(open(path).read())
    except PermissionError:
        pass
try:
    found.append(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1]).read())
except urllib.error.HTTPError as error:
    found.append(error.code)
print(found)
"""
    files = [str(path) for path in (user.store / "ui").iterdir()] + [f"/proc/{server.process.pid}/environ"]
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", script, server.numeric + "/", *files],
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    assert done.stdout.strip() == "[403]"


# -- logout, passwords, and sessions -----------------------------------------------------------------------


def test_logout_ends_the_session_in_all_tabs(user, tmp_path):
    with browser_session(user, user.home, tmp_path, "--port", free_port()) as ui:
        server = ui.server
        other = login_cookie(server, new_link(server, user.store))
        kept = ui.context.cookies()[0]
        mine = f"{kept['name']}={kept['value']}"
        client = HttpClient(server.address)
        for given in ({}, {"Origin": "http://127.0.0.1:1"}, {"Sec_Fetch_Site": "same-site", "Origin": server.address}):
            assert client.request("POST", "/logout", Cookie=mine, **given).status == 403
        assert client.request("GET", "/logout", Cookie=mine).status == 404
        tab = ui.context.new_page()
        with tab.expect_websocket() as socket:
            tab.goto(server.address + "/runs")
        line = socket.value
        ui.page.get_by_role("button", name="Log out").click()
        ui.page.wait_for_url(server.address + "/login")
        assert "mlw ui" in ui.page.inner_text("main")
        wait_until(lambda: tab.evaluate("1") == 1 and line.is_closed(), "the end of the other tab's socket")
        assert ui.context.cookies() == []
        assert client.request("GET", "/", Cookie=mine).status == 401
        assert client.request("GET", SOCKET + "websocket", Cookie=mine, Origin=server.address, **UPGRADE).status == 403
        assert client.request("GET", "/", Cookie=other).status == 200
        port = server.port
    with ui_server(user, user.home, tmp_path, "--keep-address", "--port", port) as again:
        assert HttpClient(again.address).request("GET", "/", Cookie=mine).status == 401
        assert HttpClient(again.address).request("GET", "/", Cookie=other).status == 200


def _other_address() -> str:
    """Return an IPv4 address of this machine that is not loopback, or 127.0.0.1 if it has none.

    Over HTTP, browsers treat only loopback addresses as secure contexts.
    """
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return next((address for address in addresses if "." in address), "127.0.0.1")


def test_remote_server_requires_its_password(user, tmp_path):
    """The login form accepts the password. A wrong password, or a form on another site, is refused."""
    host = _other_address()
    asking = pexpect.spawn(
        str(MLW), ["ui", "--no-browser", "--host", host], cwd=str(user.home), env=user.env, encoding="utf-8", timeout=30
    )
    try:
        asking.expect("traffic is not encrypted")
        for _ in range(2):
            asking.expect("(browser UI|confirmation): ")
            asking.sendline("correct horse")
        asking.expect(r"http://\S+/login")
        address = asking.after.removesuffix("/login")
        with chromium() as browser:
            page = browser.new_context().new_page()
            assert page.goto(address + "/runs").status == 401
            page.goto(address + "/login?next=/runs")
            for password in ("wrong", "correct horse"):
                page.get_by_label("Password").fill(password)
                page.get_by_role("button", name="Log in").click()
                page.get_by_text("Wrong password." if password == "wrong" else "All runs").first.wait_for()
            assert page.url == address + "/runs"
            again = browser.new_context().new_page()
            again.set_content(f'<form method="post" action="{address}/login"><input name="password"></form>')
            again.evaluate("document.forms[0].password.value = 'correct horse'")
            with again.expect_response(address + "/login") as response:
                again.evaluate("document.forms[0].submit()")
            assert response.value.status == 403
    finally:
        asking.sendintr()
        asking.expect(pexpect.EOF)
        asking.close()


def test_session_fixation_is_refused(server, user):
    """A session cookie that was set before the login is not accepted and does not become the session."""
    name = f"mlw_{server.port}"
    client = HttpClient(server.address)
    answer = client.request("GET", server.link.removeprefix(server.address), Cookie=f"{name}=chosen")
    given = answer.headers["set-cookie"].partition(";")[0]
    assert given.startswith(f"{name}=") and "chosen" not in given and len(given.partition("=")[2]) >= 43
    assert client.request("GET", "/", Cookie=f"{name}=chosen").status == 401


# -- internal errors ---------------------------------------------------------------------------------------

_BROKEN = """
import sys
if "ui" in sys.argv:
    from mlworkbench.ui import worker_pool
    async def call(*_, **__):
        raise RuntimeError("MARK-OF-AN-ERROR in /root/secret, TOKEN=hunter2")
    worker_pool.WorkerPool.call = call
"""


def test_internal_errors_are_only_logged(user, tmp_path):
    """With a worker pool that always fails, no page or API response contains the internal error."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(_BROKEN)
    user.env["PYTHONPATH"] = str(tmp_path / "broken")
    root = user.project("demo", train="print(1)")
    with ui_server(user, root, tmp_path) as running, chromium() as browser:
        mine = api_client(running, user.store)
        key = key_of(root)
        met = 0
        for route in routes():
            for method in {"GET", *route.methods} - {"HEAD"}:
                body = b"{}" if method in CHANGING else None
                answer = mine.request(method, route.filled(key=key), body, Content_Type="application/json")
                content = answer.body.decode(errors="replace")
                assert "MARK-OF" not in content and "Traceback" not in content and 'File "' not in content, (
                    method,
                    route,
                    content,
                )
                assert_security_headers(answer, (method, route))
                met += answer.status == 500
        page = browser.new_page()
        page.goto(running.link)
        page.wait_for_url(running.address + "/")
        for route in pages():
            page.goto(running.address + route.filled(key=key))
            page.wait_for_load_state("networkidle")
            content = page.content() + page.inner_text("body")
            assert "MARK-OF" not in content and "Traceback" not in content and "hunter2" not in content, route
        if met:
            assert "MARK-OF" in (user.store / "ui" / "server.log").read_text()


# -- oversized and unfinished requests ---------------------------------------------------------------------


def _memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) * 1024


def _odd_bodies() -> list[tuple[str, bytes]]:
    """Return content types and bodies that the server refuses before routing."""
    fields = b"&".join(b"a%d=b" % number for number in range(10**6))
    parts = b"".join(b'--x\r\nContent-Disposition: form-data; name="a%d"\r\n\r\nb\r\n' % n for n in range(20_000))
    return [
        ("application/x-www-form-urlencoded", fields),
        ("multipart/form-data; boundary=x", parts + b"--x--\r\n"),
        ("application/json", b"[" * 10**6),
        ("application/json", b'{"text": "' + b"x" * (15 * 2**20) + b'"}'),
        ("application/json", b"\xff\xfe\x00" * 1000),
        ("application/json", b""),
    ]


def _large_values() -> list[tuple[str, bytes]]:
    """Return content types and bodies that each route must check itself."""
    return [
        ("application/json", b'{"limit": ' + b"9" * 10**6 + b"}"),
        ("application/json", b'{"text": "' + b"x" * 2**20 + b'"}'),
        ("application/json", b"{" + b",".join(b'"k%d":0' % n for n in range(10**5)) + b"}"),
    ]


def test_oversized_requests_are_refused(server, user):
    mine, before = api_client(server, user.store), _memory(server.process.pid)
    changing = [(route.filled(), method) for route in routes() for method in route.methods if method in CHANGING]
    odd, large = _odd_bodies(), _large_values()
    for number, (path, method) in enumerate(changing):
        for kind, data in (*large, odd[number % len(odd)]):
            answer = mine.request(method, path, data, Content_Type=kind)
            assert answer.status < 500 or answer.status == 502, (kind, path, answer)
            assert_security_headers(answer, path)
    host = f"Host: {server.address.removeprefix('http://')}\r\nAuthorization: Bearer {token_of(user.store)}\r\n"
    for path, _ in changing[:3]:
        for more, expected in (("Content-Length: 99999999999", {413}), ("Content-Length: 17000000", {413})):
            response = mine.raw(f"POST {path} HTTP/1.1\r\n{host}{more}\r\nConnection: close\r\n\r\n".encode())
            assert set(_statuses(response)) == expected, (path, response)
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        head = f"POST {path} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n".encode()
        response = mine.raw(head + chunk * 40 + b"0\r\n\r\n")
        assert not response or max(_statuses(response)) < 500, (path, response)
    anonymous = HttpClient(server.address)
    assert set(_statuses(anonymous.raw(b"POST /login HTTP/1.1\r\n" + host.encode() + b"\r\n" + b"x" * 2**20))) <= set(
        OUT
    )
    assert mine.request("GET", "/login?" + "&".join(f"a{n}=b" for n in range(500))).status == 200
    assert anonymous.raw(b"GET / HTTP/1.1\r\n" + b"".join(b"x%d: %s\r\n" % (n, b"y" * 999) for n in range(5000))) == b""
    for value in ("bytes=0-0," + ",".join(f"{n}-{n}" for n in range(2000)), "bytes=" + "0-," * 5000, "bytes=9-1", "x"):
        answer = mine.request("GET", "/static/mlw.css", Range=value)
        assert answer.status < 500 and len(answer.body) < 200_000, (value[:40], answer.status, len(answer.body))
    assert mine.request("GET", "/").status == 200
    assert _memory(server.process.pid) - before < 400 * 2**20


def test_unfinished_requests_do_not_block_others(server, user):
    """300 unfinished requests do not block other clients. A unit test checks that slow clients are disconnected."""
    client = HttpClient(server.address)
    slow = []
    try:
        for number in range(300):
            line = socket.create_connection(client.socket_address, timeout=20)
            line.sendall(b"GET / HTTP/1.1\r\nHost: x" if number % 2 else b"")
            slow.append(line)
        assert api_client(server, user.store).request("GET", "/runs").status == 200
    finally:
        for line in slow:
            line.close()


# -- many tabs, and a killed server ------------------------------------------------------------------------


def test_two_hundred_tabs(server, user):
    """While 200 pages are connected, and afterwards, other clients are served."""
    cookie = login_cookie(server)
    address = server.address.replace("http", "ws") + SOCKET + "websocket&implicit_handshake=true"
    headers = {"Cookie": cookie, "Origin": server.address}
    all_here = asyncio.Event()
    sockets = []

    async def tab(number: int) -> str:
        page = await asyncio.to_thread(HttpClient(server.address).request, "GET", "/", Cookie=cookie)
        (client,) = set(re.findall(rb"'client_id': '([0-9a-f-]{36})'", page.body))
        query = f"&client_id={client.decode()}&tab_id=t{number}&document_id=d{number}&next_message_id=0"
        async with websockets.connect(
            address + query, additional_headers=headers, host="127.0.0.1", port=int(server.port)
        ) as line:
            await line.recv()
            await line.send("40")
            message = str(await line.recv())
            sockets.append(number)
            if len(sockets) == 200:
                all_here.set()
            await all_here.wait()
            return message

    async def all_of_them() -> list[str]:
        coming = asyncio.gather(*(tab(number) for number in range(200)))
        await all_here.wait()
        assert (await asyncio.to_thread(api_client(server, user.store).request, "GET", "/runs")).status == 200
        return list(await coming)

    assert {one[:3] for one in asyncio.run(asyncio.wait_for(all_of_them(), 60))} == {"40{"}
    assert api_client(server, user.store).request("GET", "/runs").status == 200


def test_pages_recover_after_a_server_kill(user, tmp_path):
    """A new server starts without cleanup, and the browser stays logged in at the same address."""
    root = user.project("demo", train="print(1)")
    with browser_session(user, root, tmp_path, "--port", free_port()) as ui:
        port = ui.server.port
        ui.go("/runs?q=nothing")
        ui.page.get_by_text("ML Workbench").first.wait_for()
        ui.server.process.send_signal(signal.SIGKILL)
        ui.server.process.wait(20)
        assert (user.store / "ui" / "server.json").exists()
        with ui_server(user, root, tmp_path, "--keep-address", "--port", port) as again:
            assert again.address == ui.server.address
            ui.page.reload()
            ui.page.get_by_text("ML Workbench").first.wait_for()
            assert ui.page.url.startswith(f"{again.address}/runs?")
    assert not (user.store / "ui" / "server.json").exists()
