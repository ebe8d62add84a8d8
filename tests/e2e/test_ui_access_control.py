"""The door of `mlw ui`: who gets in, from a real browser and from whoever else is on this machine."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import socket
import stat
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.machines.browser import chromium, looking, workbench
from tests.machines.doors import free_port
from tests.machines.network import wait_until


@pytest.fixture
def bench(user, tmp_path):
    with workbench(user, user.home, tmp_path) as running:
        yield running


def ask(bench, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    with closing(http.client.HTTPConnection("127.0.0.1", int(bench.port), timeout=20)) as connection:
        connection.request(method, path, headers={"Host": bench.address.removeprefix("http://"), **headers})
        answer = connection.getresponse()
        answer.read()
        return answer


def cookie_of(bench) -> str:
    answer = ask(bench, "GET", bench.link.removeprefix(bench.address))
    assert answer.status == 200
    return str(answer.getheader("set-cookie")).partition(";")[0]


def test_a_browser_comes_in_by_the_link_and_stays_in(bench, user):
    """Also from the page that leads to the link, as the opener has it; and after the server was started anew."""
    leading = user.home / "open.html"
    leading.write_text(f'<meta http-equiv="refresh" content="0;url={bench.link}">')
    with chromium() as browser:
        page = browser.new_page()
        outside: list[str] = []
        page.on(
            "request",
            lambda request: outside.append(request.url) if not request.url.startswith(bench.address) else None,
        )
        page.goto(leading.as_uri())
        page.wait_for_url(bench.address + "/**")
        page.get_by_text("ML Workbench").first.wait_for()
        page.reload()
        page.get_by_text("ML Workbench").first.wait_for()
        assert [url for url in outside if not url.startswith("file:")] == []
        again = browser.new_context().new_page()
        assert again.goto(bench.link).status == 401, "a link is good once"
        assert "mlw ui" in again.inner_text("main")


def test_an_address_and_its_sessions_end_with_the_server(user, tmp_path):
    """Whoever had the port in between knows them, and may have left a service worker at that address."""
    port = str(free_port())
    with looking(user, user.home, tmp_path, "--port", port) as looker:
        first, (cookie,) = looker.bench, looker.context.cookies()
        session = f"{cookie['name']}={cookie['value']}"
        assert ask(first, "GET", "/", Cookie=session).status == 200
        first.stop()
        with workbench(user, user.home, tmp_path, "--port", port) as second:
            assert second.address != first.address
            assert ask(first, "GET", "/", Cookie=session).status == 421
            assert ask(second, "GET", "/", Cookie=session).status == 401
            expect(looker.page.get_by_role("alert")).to_contain_text("Your session has expired", timeout=20_000)
        with workbench(user, user.home, tmp_path, "--keep-address", "--port", port) as third:
            assert third.address == second.address
            assert ask(third, "GET", "/", Cookie=session).status == 401


def test_sessions_outlive_the_server_if_asked_for(user, tmp_path):
    port = str(free_port())
    with workbench(user, user.home, tmp_path, "--port", port) as first:
        session = cookie_of(first)
        assert ask(first, "GET", "/", Cookie=session).status == 200
    with workbench(user, user.home, tmp_path, "--keep-address", "--port", port) as second:
        assert ask(second, "GET", "/", Cookie=session).status == 200


def test_nobody_else_comes_in(bench):
    session = cookie_of(bench)
    assert ask(bench, "GET", "/").status == 401
    assert ask(bench, "GET", "/", Cookie="mlw_8521=x").status == 401
    assert ask(bench, "GET", "/", Cookie=session, Host="evil.example:8521").status == 421
    assert ask(bench, "GET", "/", Authorization="Bearer x").status == 401
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(bench, method, "/api/link", Cookie=session).status == 403, "without an origin"
        assert ask(bench, method, "/api/link", Cookie=session, Origin="http://127.0.0.1:1").status == 403
    assert ask(bench, "POST", "/api/link", Cookie=session, Origin=bench.address).status == 200
    assert ask(bench, "OPTIONS", "/", Cookie=session, Origin=bench.address).status == 403


def test_what_every_answer_carries(bench):
    session = cookie_of(bench)
    for path, cookie in (
        ("/", ""),
        ("/", session),
        ("/nothing/here", session),
        ("/login", ""),
        ("/api/openapi.json", session),
    ):
        headers = {name.lower(): value for name, value in ask(bench, "GET", path, Cookie=cookie).getheaders()}
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers and not any(name.startswith("access-control") for name in headers)


def test_it_listens_to_this_machine_only(bench):
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[3] for line in listening.splitlines() if f"pid={bench.process.pid}," in line]
    assert sorted(place.rpartition(":")[0] for place in ours) == ["127.0.0.1", "[::1]"]


def test_its_files_and_its_command_line_tell_nobody(bench, user):
    session, code = cookie_of(bench), bench.link.partition("code=")[2]
    folder = user.store / "ui"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    token = json.loads((folder / "server.json").read_text())["token"]
    secret = json.loads((folder / "address.json").read_text())["secret"]
    assert bench.address == f"http://{secret}.localhost:{bench.port}"
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = path.read_text()
        assert code not in text and session.partition("=")[2] not in text
        assert token not in text or path.name == "server.json"
        assert secret not in text or path.name == "address.json"
    command = Path(f"/proc/{bench.process.pid}/cmdline").read_text()
    assert token not in command and secret not in command


def test_a_second_one_opens_the_first(bench, user):
    done = user.mlw("ui", "--no-browser")
    assert done.code == 0 and "already running" in done.err
    link = re.findall(r"http://\S+", done.out + done.err)[0]
    assert link.startswith(bench.address) and link != bench.link
    assert ask(bench, "GET", link.removeprefix(bench.address)).status == 200


def test_the_browser_is_not_told_the_code_on_a_command_line(user, tmp_path):
    """The opener gets the name of a file that is its user's alone."""
    told = tmp_path / "told"
    script = tmp_path / "browser"
    lines = ("#!/bin/sh", 'echo "$1" > part', 'cat "${1#file://}" >> part', "echo >> part")
    script.write_text("\n".join((*lines, 'stat -c %a "${1#file://}" >> part', f"mv part {told}", "")))
    script.chmod(0o755)
    said = tmp_path / "said"
    with open(said, "wb") as file:
        process = user.start("ui", cwd=user.home, env={"BROWSER": f"{script} %s"}, stdout=file, stderr=file)
    try:
        wait_until(told.exists, "the browser")
        command, page, mode = told.read_text().splitlines()
        secret = json.loads((user.store / "ui" / "address.json").read_text())["secret"]
        assert command.startswith("file://") and "code" not in command and secret not in command
        assert "login?code=" in page and mode == "600"
    finally:
        process.terminate()
        process.wait(20)


def test_a_taken_port_is_said_and_another_one_found(user, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = user.mlw("ui", "--no-browser", "--port", str(port))
        assert done.code != 0 and f"port {port} is already in use" in done.err and "hint:" in done.err
    elsewhere = {**user.env, "MLW_HOME": str(tmp_path / "other")}  # another user, who has the first free port already
    with workbench(user, user.home, tmp_path) as mine:
        user.env = elsewhere
        with workbench(user, user.home, tmp_path) as theirs:
            assert mine.address != theirs.address
            assert ask(theirs, "GET", "/", Cookie=cookie_of(mine)).status == 401


class _Evil(http.server.BaseHTTPRequestHandler):
    """Another web application on this machine, on another port."""

    page = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: Any) -> None:
        return


ATTACK = """<title>evil</title><script>
const us = "%s", got = [];
const include = {credentials: "include"}, post = {...include, method: "POST", body: "x"};
async function ask(how) {
  try {
    const answer = await fetch(us + "/api/link", how);
    got.push(answer.type === "opaque" ? "opaque" : answer.status);
  } catch (error) { got.push("refused"); }
}
function connect(path) {
  return new Promise(done => {
    const socket = new WebSocket(us.replace("http", "ws") + path);
    socket.onopen = () => { got.push("open"); done(); };
    socket.onerror = () => { got.push("refused"); done(); };
  });
}
function frame() {
  return new Promise(done => {
    const inner = document.createElement("iframe");
    inner.onload = () => {
      let seen = "refused";
      try { if (inner.contentDocument.title === "ML Workbench") seen = "framed"; } catch (error) {}
      got.push(seen); done();
    };
    inner.src = us + "/";
    document.body.append(inner);
  });
}
addEventListener("load", async () => {
  for (const how of [{}, include, post, {...post, mode: "no-cors"}]) await ask(how);
  for (const path of ["/_nicegui_ws/socket.io/?EIO=4&transport=websocket", "/"]) await connect(path);
  await frame();
  document.title = "done " + got.join(" ");
});
</script><body></body>"""


@pytest.mark.parametrize("place", ["another port", "another name"])
def test_another_site_gets_nothing_out_of_a_browser_that_is_in(bench, place):
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    _Evil.page = (ATTACK % bench.address).encode()
    name = "127.0.0.1" if place == "another port" else "evil.example"
    try:
        with chromium() as browser:
            page = browser.new_context().new_page()
            page.goto(bench.link)
            page.get_by_text("ML Workbench").first.wait_for()
            heard: list[tuple[int, str]] = []
            page = page.context.new_page()  # what the first one still loads is not the attacker's
            page.on("response", lambda answer: heard.append((answer.status, answer.url)))
            page.goto(f"http://{name}:{evil.server_address[1]}/")
            page.wait_for_function("document.title.startsWith('done')", timeout=20_000)
            assert set(page.title().split()[1:]) <= {"refused", "opaque", "403", "401"}
            assert all(status in (401, 403) for status, url in heard if url.startswith(bench.address)), heard
    finally:
        evil.shutdown()
        evil.server_close()


def test_another_name_for_this_machine_is_refused(bench):
    """DNS rebinding: the browser believes that it speaks to evil.example."""
    port = bench.port
    with chromium() as browser:
        answer = browser.new_page().goto(f"http://evil.example:{port}/login?code={bench.link.partition('code=')[2]}")
        assert answer.status == 421


def test_raw_requests(bench):
    """What no client library sends."""
    session = cookie_of(bench)
    host, _, port = bench.address.removeprefix("http://").rpartition(":")
    for line, wanted in (
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: %s:%s", b"400"),
        (b"GET //evil.example/ HTTP/1.1\r\nHost: %s:%s", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a/?x=%s:%s", b"421"),
        (b"GET / HTTP/1.1\r\nHost: %s:%s\r\nHost: evil.example", b"400"),
        (b"TRACE / HTTP/1.1\r\nHost: %s:%s", b"403"),
    ):
        with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as raw:
            address = (host.encode(), port.encode())
            raw.sendall(line % address + b"\r\nCookie: " + session.encode() + b"\r\nConnection: close\r\n\r\n")
            with raw.makefile("rb") as said:
                answer = said.readline()
            assert wanted in answer, (line, answer)


def test_stopping_it_leaves_nothing(user, tmp_path):
    with workbench(user, user.home, tmp_path) as running:
        assert ask(running, "GET", "/").status == 401
        running.stop()
    assert {path.name for path in (user.store / "ui").iterdir()} <= {"server.log", "sessions.json", "address.json"}
    assert "runs continue" in running.words()


def test_to_other_machines_only_with_a_password(user):
    done = user.mlw("ui", "--no-browser", "--host", "0.0.0.0")
    assert done.code != 0 and "password" in done.err and "hint:" in done.err
    assert os.listdir(user.store / "ui") == []
