"""`mlw ui` against everybody who should not be in: on every way in that it has, whatever ways come later."""

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

from mlworkbench.ui.answers.projects import key_of
from tests.conftest import MLW
from tests.machines.browser import chromium, looking, workbench
from tests.machines.doors import (
    CHANGING,
    METHODS,
    SOCKET,
    Caller,
    addresses,
    free_port,
    new_link,
    pages,
    program,
    routes,
    secret_of,
    session,
    token_of,
)
from tests.machines.network import wait_until

OUT = (400, 401, 403, 414, 421)
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.fixture
def bench(user, tmp_path):
    with workbench(user, user.home, tmp_path) as running:
        yield running


def must_be_hardened(answer, where: object) -> None:
    headers = answer.headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"], where
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY", where
    assert headers["referrer-policy"] == "no-referrer" and "cache-control" in headers, where
    assert headers["cross-origin-resource-policy"] == "same-origin", where
    assert "server" not in headers and not any(name.startswith("access-control") for name in headers), where
    assert answer.doubled == (), where


# -- every way in ------------------------------------------------------------------------------------------


def test_every_way_in_is_closed(bench, user):
    """All routes, files, sub-applications and sockets, by every method, with nothing to show or the wrong thing.

    Each way in meets each stranger and each method, and each method meets each stranger, but not all three together.
    """
    cookie = bench.port
    caller = Caller(bench.address)
    strangers: list[dict[str, str]] = [
        {},
        {"Origin": bench.address, "Sec_Fetch_Site": "same-origin"},
        {"Authorization": f"Bearer {token_of(user.store)[:-1]}", "Origin": bench.address},
        {"Authorization": f"Basic {token_of(user.store)}", "Origin": bench.address},
        {"Cookie": f"mlw_{cookie}={token_of(user.store)}", "Origin": bench.address},
        {"Cookie": f"mlw_{cookie}=; mlw_{cookie}=x", "Origin": bench.address},
    ]
    tried = 0
    for row, path in enumerate(addresses()):
        for column, method in enumerate(METHODS):
            given = strangers[(row + column) % len(strangers)]
            answer = caller.ask(method, path, **given)
            assert answer.status in (401, 403), (method, path, given, answer)
            must_be_hardened(answer, (method, path))
            assert b"ML Workbench" not in answer.body or path == "/login", (method, path)
            tried += 1
        assert caller.ask(METHODS[row % len(METHODS)], path, Host="evil.example").status == 421
        for given in strangers:
            assert caller.ask("GET", path, **{**UPGRADE, **given}).status == 403, (path, given)
    assert tried > 8 * 30 and len(METHODS) >= len(strangers)


def test_the_same_ways_are_open_to_their_user(bench, user):
    """Else the test before would prove nothing. Nothing goes wrong inside, whatever is asked for."""
    mine = program(bench, user.store)
    opened = set()
    for path in addresses():
        for method in ("GET", "HEAD"):
            answer = mine.ask(method, path)
            assert answer.status not in (401, 403, 421) or path == "/login", (method, path, answer)
            assert answer.status < 500, (method, path, answer)
            must_be_hardened(answer, (method, path))
            if answer.status == 200:
                opened.add(path)
    assert {"/", "/runs", "/static/mlw.css", "/api/openapi.json"} <= opened
    assert mine.ask("GET", "/docs").status == mine.ask("GET", "/openapi.json").status == 404
    assert mine.ask("GET", SOCKET + "websocket", **UPGRADE).status == 101


def test_what_has_expired_opens_nothing(user, tmp_path):
    """A session of seven days and a moment; one that ends while the server looks on; a link that was used."""
    folder = user.store / "ui"
    folder.mkdir(parents=True, mode=0o700)
    user.store.chmod(0o700)
    week, port = 7 * 86400, free_port()
    ages = {"old": week + 1, "aging": week - 10, "young": 60}
    kept = {sha256(f"mlw_{port}={name}".encode()).hexdigest(): time.time() - age for name, age in ages.items()}
    (folder / "sessions.json").write_text(json.dumps(kept))
    with workbench(user, user.home, tmp_path, "--keep-address", "--port", port) as running:
        caller = Caller(running.address)

        def opens(name: str) -> bool:
            return caller.ask("GET", "/", Cookie=f"mlw_{running.port}={name}").status == 200

        assert opens("young") and not opens("old") and not opens("none")
        wait_until(lambda: not opens("aging"), "the end of a session")
        assert opens("young")
        session(running)
        assert caller.ask("GET", running.link.removeprefix(running.address)).status == 401
        before = token_of(user.store)
        port = running.port
    with workbench(user, user.home, tmp_path, "--port", port) as again:
        for word in (before, ""):
            answer = Caller(again.address).ask("POST", "/api/link", Authorization=f"Bearer {word}")
            assert answer.status in (401, 403), "the token of a server that has ended"


# -- what no browser sends ---------------------------------------------------------------------------------

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


def test_odd_requests(bench, user):
    caller = Caller(bench.address)
    host = b"Host: %s\r\n" % bench.address.removeprefix("http://").encode()
    cookie = b"Cookie: %s\r\n" % session(bench).encode()
    for line in ODD:
        said = caller.raw(line + b"\r\n" + host + b"Connection: close\r\n\r\n")
        assert set(_statuses(said)) <= {*OUT, 505}, (line, said)
        said = caller.raw(line + b"\r\n" + host + cookie + b"Connection: close\r\n\r\n")
        assert max(_statuses(said), default=400) < 500 or b"505" in said, (line, said)
        assert b"root:x:0" not in said and b"import annotations" not in said, (line, said)
    for text in SMUGGLED:
        statuses = _statuses(caller.raw(text % host))
        assert set(statuses) <= set(OUT), (text, statuses)
    assert caller.ask("GET", "/").status == 401


def test_names_that_are_not_ours(bench, user):
    """Before anything else is looked at, the cookie too; and no header talks the server into another name."""
    caller, cookie, secret = Caller(bench.address), session(bench), secret_of(user.store)
    name, port = caller.place
    for host in (
        "", "evil.example", f"evil.example:{port}", f"{name}", f"{name}:{port + 1}", f"{name}:{port}.evil.example",
        f"{name}:{port}/", f"{name}:{port}?x=", f"a@{name}:{port}", f"{name}:{port}#", f"a/?x={name}:{port}",
        f"{name}.:{port}", f"0.0.0.0:{port}", f"127.1:{port}", f"2130706433:{port}", f"localhost.evil.example:{port}",
        f"{name}:0{port}", f"[::ffff:127.0.0.1]:{port}", f"{name}:{port},evil.example",
        f"{secret[:-1]}.localhost:{port}", f"{secret}.localhost.evil.example:{port}", f"x.{secret}.localhost:{port}",
        f"{secret}.localhost.:{port}", f"{secret}:{port}", f"{secret}.localhost:{port}/", f"{secret}.localhost:x",
    ):  # fmt: skip
        for path in ("/", "/login", "/api/link", "/static/mlw.css", SOCKET + "polling"):
            assert caller.ask("GET", path, Host=host, Cookie=cookie).status in (400, 421), (host, path)
    for host in (f"{name}:{port}", f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}"):
        assert caller.ask("GET", "/", Host=host, Cookie=cookie).status == 401, "a session counts at the secret address"
        assert caller.ask("GET", "/", Host=host, Authorization=f"Bearer {token_of(user.store)}").status == 200
    for host in (f"{secret}.localhost:{port}", f"{secret.upper()}.LOCALHOST:{port}", f"{secret}.localhost:1"):
        assert caller.ask("GET", "/", Host=host, Cookie=cookie).status == 200
    for header in ("X_Forwarded_Host", "X_Forwarded_Prefix", "X_Original_URL", "X_Rewrite_URL", "Forwarded", "X_Host"):
        answer = caller.ask("GET", "/", Cookie=cookie, **{header: "evil.example/x"})
        assert answer.status == 200 and b"evil.example" not in answer.body, header
    for header in ("X_HTTP_Method_Override", "X_Forwarded_For", "X_Original_URL"):
        assert caller.ask("GET", "/", **{header: "/login"}).status == 401


def test_where_a_login_leads(bench, user):
    for target in (
        "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "http:/x",
        "javascript:alert(1)", "/%09/evil.example", "/\t/evil.example", "/ /evil.example", "%2f%2fevil.example",
        "data:text/html,x", '/"><script>alert(1)</script>', "/x;url=https://evil.example", "evil.example", "",
    ):  # fmt: skip
        link = new_link(bench, user.store).removeprefix(bench.address) + f"&next={quote(target)}"
        body = Caller(bench.address).ask("GET", link).body.decode()
        (found,) = re.findall(r'content="0;url=([^"]*)"', body)
        assert re.match(r"/(?![/\\])[!-~]*$", found) and "<script" not in body, (target, found)


# -- other sites -------------------------------------------------------------------------------------------


class _Evil(http.server.BaseHTTPRequestHandler):
    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: Any) -> None:
        return


# Whatever a page can ask of another site without its leave. Each form goes to a frame of its own.
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
def test_no_other_site_reaches_any_way_in(bench, user, name):
    """Also from another port of this machine, whose cookies a browser shares with us; by forms, pictures, scripts.

    A form has three kinds of body: each of the sites sends another one to each way in.
    """
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    changing = [one.filled() for one in routes() if set(CHANGING) & set(one.methods)] + ["/logout", "/login"]
    reading = ["/", "/static/mlw.css", "/api/openapi.json", SOCKET + "polling", "/logout"]
    _Evil.page = (_ATTACK % tuple(map(json.dumps, (bench.address, changing, reading, SITES.index(name))))).encode()
    try:
        with chromium() as browser:
            context = browser.new_context()
            page = context.new_page()
            page.goto(bench.link)
            page.get_by_text("ML Workbench").first.wait_for()
            page.goto("about:blank")
            heard: list[tuple[int, str, str]] = []
            attacker = context.new_page()
            attacker.on("response", lambda answer: heard.append((answer.status, answer.request.method, answer.url)))
            attacker.goto(f"http://{name}:{evil.server_address[1]}/")
            attacker.wait_for_function("document.title.startsWith('done')", timeout=30_000)
            assert attacker.title().split() == ["done"]
            ours = [one for one in heard if one[2].startswith(bench.address)]
            assert len(ours) > len(reading) and {status for status, _, _ in ours} <= {401, 403}, ours
            assert page.goto(bench.address + "/").status == 200, "the session is as it was"
    finally:
        evil.shutdown()
        evil.server_close()


def test_a_rebound_name_gets_nothing(bench, user):
    """The browser believes that all of this server is evil.example's own."""
    port = bench.port
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


# -- what gets out -----------------------------------------------------------------------------------------


def _tree(pid: int) -> set[int]:
    """This process and all below it."""
    found, parents = {pid}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _command_lines() -> bytes:
    found = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += (entry / "cmdline").read_bytes() + b"\n"
            except OSError:
                continue
    return found


def test_nothing_tells_the_code_the_token_or_the_cookie(user, tmp_path):
    """While every page is looked at: no file of ours, no log, no command line, no Referer, no address, no script."""
    root = user.project("demo", train="print(1)")
    with looking(user, root, tmp_path) as looker:
        asked: list[dict[str, str]] = []
        looker.page.on("request", lambda request: asked.append(request.headers))
        for one in pages():
            looker.go(one.filled()).get_by_text("ML Workbench").first.wait_for()
        cookies = looker.context.cookies()
        assert [(one["httpOnly"], one["sameSite"], one["path"]) for one in cookies] == [(True, "Strict", "/")]
        code, token = looker.bench.link.partition("code=")[2], token_of(user.store)
        secrets, address = [code, token, cookies[0]["value"]], secret_of(user.store)
        told = looker.page.evaluate(
            "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.body.innerHTML,"
            " location.href, JSON.stringify(performance.getEntries())].join()"
        )
        assert not any(secret in told for secret in secrets)
        assert address not in looker.page.title() + looker.page.inner_text("body")
        assert asked and not any(headers.get("referer") for headers in asked)
        lines = _command_lines()
        for path in (path for path in user.store.rglob("*") if path.is_file()):
            data = path.read_bytes()
            mine = {"server.json": token, "address.json": address}.get(path.name)
            assert not any(secret.encode() in data for secret in (*secrets, address) if secret != mine), path
        assert not any(secret.encode() in lines for secret in (*secrets, address))
        listening = subprocess.run(["ss", "-Hlntup"], capture_output=True, text=True, check=True).stdout.splitlines()
        ours = _tree(looker.bench.process.pid)
        places = [line.split()[4] for line in listening if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & ours]
        port = looker.bench.port
        assert sorted(places) == [f"127.0.0.1:{port}", f"[::1]:{port}"]
        assert code not in looker.bench.words().replace(looker.bench.link, "")


@pytest.mark.skipif(os.getuid() != 0 or not os.access("/usr/bin/python3", os.X_OK), reason="only root can be nobody")
def test_another_user_of_this_machine(bench, user):
    """Is refused whatever they ask for; the files are closed even if the folders above them are open."""
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
    files = [str(path) for path in (user.store / "ui").iterdir()] + [f"/proc/{bench.process.pid}/environ"]
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", script, bench.numeric + "/", *files],
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    assert done.stdout.strip() == "[403]"


# -- leaving -----------------------------------------------------------------------------------------------


def test_leaving_ends_the_session_everywhere_and_for_good(user, tmp_path):
    with looking(user, user.home, tmp_path, "--port", free_port()) as looker:
        bench = looker.bench
        other = session(bench, new_link(bench, user.store))
        kept = looker.context.cookies()[0]
        mine = f"{kept['name']}={kept['value']}"
        caller = Caller(bench.address)
        for given in ({}, {"Origin": "http://127.0.0.1:1"}, {"Sec_Fetch_Site": "same-site", "Origin": bench.address}):
            assert caller.ask("POST", "/logout", Cookie=mine, **given).status == 403
        assert caller.ask("GET", "/logout", Cookie=mine).status == 404
        tab = looker.context.new_page()
        with tab.expect_websocket() as told:
            tab.goto(bench.address + "/runs")
        line = told.value
        looker.page.get_by_role("button", name="Log out").click()
        looker.page.wait_for_url(bench.address + "/login")
        assert "mlw ui" in looker.page.inner_text("main")
        wait_until(lambda: tab.evaluate("1") == 1 and line.is_closed(), "the end of the other tab's socket")
        assert looker.context.cookies() == []
        assert caller.ask("GET", "/", Cookie=mine).status == 401
        assert caller.ask("GET", SOCKET + "websocket", Cookie=mine, Origin=bench.address, **UPGRADE).status == 403
        assert caller.ask("GET", "/", Cookie=other).status == 200
        port = bench.port
    with workbench(user, user.home, tmp_path, "--keep-address", "--port", port) as again:
        assert Caller(again.address).ask("GET", "/", Cookie=mine).status == 401
        assert Caller(again.address).ask("GET", "/", Cookie=other).status == 200


def _other_address() -> str:
    """One of this machine's that is not its loopback: browsers trust those less."""
    told = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return next((one for one in told if "." in one), "127.0.0.1")


def test_the_password_of_a_server_for_other_machines(user, tmp_path):
    """Typed into the form by a browser; a wrong one, and a form on another site, let nobody in."""
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
            for word in ("wrong", "correct horse"):
                page.get_by_label("Password").fill(word)
                page.get_by_role("button", name="Log in").click()
                page.get_by_text("Wrong password." if word == "wrong" else "All runs").first.wait_for()
            assert page.url == address + "/runs"
            again = browser.new_context().new_page()
            again.set_content(f'<form method="post" action="{address}/login"><input name="password"></form>')
            again.evaluate("document.forms[0].password.value = 'correct horse'")
            with again.expect_response(address + "/login") as told:
                again.evaluate("document.forms[0].submit()")
            assert told.value.status == 403
    finally:
        asking.sendintr()
        asking.expect(pexpect.EOF)
        asking.close()


def test_a_session_is_never_the_visitors_choice(bench, user):
    """A value that somebody else put into the browser beforehand stays worthless."""
    name = f"mlw_{bench.port}"
    caller = Caller(bench.address)
    answer = caller.ask("GET", bench.link.removeprefix(bench.address), Cookie=f"{name}=chosen")
    given = answer.headers["set-cookie"].partition(";")[0]
    assert given.startswith(f"{name}=") and "chosen" not in given and len(given.partition("=")[2]) >= 43
    assert caller.ask("GET", "/", Cookie=f"{name}=chosen").status == 401


# -- what goes wrong inside --------------------------------------------------------------------------------

_BROKEN = """
import sys
if "ui" in sys.argv:
    import mlworkbench.ui.hands as hands
    async def ask(*_, **__):
        raise RuntimeError("MARK-OF-AN-ERROR in /root/secret, TOKEN=hunter2")
    hands.Hands.ask = ask
"""


def test_errors_inside_are_told_to_the_log_only(user, tmp_path):
    """Every page and every address of the API, with all that they ask for broken."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(_BROKEN)
    user.env["PYTHONPATH"] = str(tmp_path / "broken")
    root = user.project("demo", train="print(1)")
    with workbench(user, root, tmp_path) as running, chromium() as browser:
        mine = program(running, user.store)
        key = key_of(root)
        met = 0
        for one in routes():
            for method in {"GET", *one.methods} - {"HEAD"}:
                body = b"{}" if method in CHANGING else None
                answer = mine.ask(method, one.filled(key=key), body, Content_Type="application/json")
                told = answer.body.decode(errors="replace")
                assert "MARK-OF" not in told and "Traceback" not in told and 'File "' not in told, (method, one, told)
                must_be_hardened(answer, (method, one))
                met += answer.status == 500
        page = browser.new_page()
        page.goto(running.link)
        page.wait_for_url(running.address + "/")
        for one in pages():
            page.goto(running.address + one.filled(key=key))
            page.wait_for_load_state("networkidle")
            told = page.content() + page.inner_text("body")
            assert "MARK-OF" not in told and "Traceback" not in told and "hunter2" not in told, one
        if met:
            assert "MARK-OF" in (user.store / "ui" / "server.log").read_text()


# -- too much ----------------------------------------------------------------------------------------------


def _memory(pid: int) -> int:
    """Bytes."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) * 1024


def _odd_bodies() -> list[tuple[str, bytes]]:
    """Those that are refused before a route looks at them."""
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
    """Those that each route has to judge itself."""
    return [
        ("application/json", b'{"limit": ' + b"9" * 10**6 + b"}"),
        ("application/json", b'{"text": "' + b"x" * 2**20 + b'"}'),
        ("application/json", b"{" + b",".join(b'"k%d":0' % n for n in range(10**5)) + b"}"),
    ]


def test_too_much_of_anything(bench, user):
    mine, before = program(bench, user.store), _memory(bench.process.pid)
    changing = [(one.filled(), method) for one in routes() for method in one.methods if method in CHANGING]
    odd, large = _odd_bodies(), _large_values()
    for number, (path, method) in enumerate(changing):
        for kind, data in (*large, odd[number % len(odd)]):
            answer = mine.ask(method, path, data, Content_Type=kind)
            assert answer.status < 500 or answer.status == 502, (kind, path, answer)
            must_be_hardened(answer, path)
    host = f"Host: {bench.address.removeprefix('http://')}\r\nAuthorization: Bearer {token_of(user.store)}\r\n"
    for path, _ in changing[:3]:
        for more, wanted in (("Content-Length: 99999999999", {413}), ("Content-Length: 17000000", {413})):
            said = mine.raw(f"POST {path} HTTP/1.1\r\n{host}{more}\r\nConnection: close\r\n\r\n".encode())
            assert set(_statuses(said)) == wanted, (path, said)
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        head = f"POST {path} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n".encode()
        said = mine.raw(head + chunk * 40 + b"0\r\n\r\n")
        assert not said or max(_statuses(said)) < 500, (path, said)
    stranger = Caller(bench.address)
    assert set(_statuses(stranger.raw(b"POST /login HTTP/1.1\r\n" + host.encode() + b"\r\n" + b"x" * 2**20))) <= set(
        OUT
    )
    assert mine.ask("GET", "/login?" + "&".join(f"a{n}=b" for n in range(500))).status == 200
    assert stranger.raw(b"GET / HTTP/1.1\r\n" + b"".join(b"x%d: %s\r\n" % (n, b"y" * 999) for n in range(5000))) == b""
    for value in ("bytes=0-0," + ",".join(f"{n}-{n}" for n in range(2000)), "bytes=" + "0-," * 5000, "bytes=9-1", "x"):
        answer = mine.ask("GET", "/static/mlw.css", Range=value)
        assert answer.status < 500 and len(answer.body) < 200_000, (value[:40], answer.status, len(answer.body))
    assert mine.ask("GET", "/").status == 200
    assert _memory(bench.process.pid) - before < 400 * 2**20


def test_many_who_never_finish_their_request(bench, user):
    """The others are served meanwhile. (That they are sent away in the end is a unit test.)"""
    caller = Caller(bench.address)
    slow = []
    try:
        for number in range(300):
            line = socket.create_connection(caller.place, timeout=20)
            line.sendall(b"GET / HTTP/1.1\r\nHost: x" if number % 2 else b"")
            slow.append(line)
        assert program(bench, user.store).ask("GET", "/runs").status == 200
    finally:
        for line in slow:
            line.close()


# -- tabs, kills -------------------------------------------------------------------------------------------


def test_two_hundred_tabs(bench, user):
    """As many pages that are open and listen at the same time; somebody else is served meanwhile, and afterwards."""
    cookie = session(bench)
    address = bench.address.replace("http", "ws") + SOCKET + "websocket&implicit_handshake=true"
    headers = {"Cookie": cookie, "Origin": bench.address}
    all_here = asyncio.Event()
    here = []

    async def tab(number: int) -> str:
        page = await asyncio.to_thread(Caller(bench.address).ask, "GET", "/", Cookie=cookie)
        (client,) = set(re.findall(rb"'client_id': '([0-9a-f-]{36})'", page.body))
        own = f"&client_id={client.decode()}&tab_id=t{number}&document_id=d{number}&next_message_id=0"
        async with websockets.connect(
            address + own, additional_headers=headers, host="127.0.0.1", port=int(bench.port)
        ) as line:
            await line.recv()
            await line.send("40")
            said = str(await line.recv())
            here.append(number)
            if len(here) == 200:
                all_here.set()
            await all_here.wait()
            return said

    async def all_of_them() -> list[str]:
        coming = asyncio.gather(*(tab(number) for number in range(200)))
        await all_here.wait()
        assert (await asyncio.to_thread(program(bench, user.store).ask, "GET", "/runs")).status == 200
        return list(await coming)

    assert {one[:3] for one in asyncio.run(asyncio.wait_for(all_of_them(), 60))} == {"40{"}
    assert program(bench, user.store).ask("GET", "/runs").status == 200


def test_killed_and_started_anew(user, tmp_path):
    """Nothing has to be tidied up; the page comes back by its address, in the browser that was in."""
    root = user.project("demo", train="print(1)")
    with looking(user, root, tmp_path, "--port", free_port()) as looker:
        port = looker.bench.port
        looker.go("/runs?q=nothing")
        looker.page.get_by_text("ML Workbench").first.wait_for()
        looker.bench.process.send_signal(signal.SIGKILL)
        looker.bench.process.wait(20)
        assert (user.store / "ui" / "server.json").exists()
        with workbench(user, root, tmp_path, "--keep-address", "--port", port) as again:
            assert again.address == looker.bench.address
            looker.page.reload()
            looker.page.get_by_text("ML Workbench").first.wait_for()
            assert looker.page.url.startswith(f"{again.address}/runs?")
    assert not (user.store / "ui" / "server.json").exists()
