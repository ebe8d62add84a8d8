"""Access control of `mlw ui`: a real browser, and other programs and users of this machine."""

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

from tests.machines.browser import browser_session, chromium, ui_server
from tests.machines.network import wait_until
from tests.machines.ui_routes import free_port


@pytest.fixture
def server(user, tmp_path):
    with ui_server(user, user.home, tmp_path) as running:
        yield running


def send_request(server, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    with closing(http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=20)) as connection:
        connection.request(method, path, headers={"Host": server.address.removeprefix("http://"), **headers})
        answer = connection.getresponse()
        answer.read()
        return answer


def cookie_of(server) -> str:
    answer = send_request(server, "GET", server.link.removeprefix(server.address))
    assert answer.status == 200
    return str(answer.getheader("set-cookie")).partition(";")[0]


def test_browser_logs_in_by_link_and_stays_logged_in(server, user):
    """The link works from the opener's redirect page, but only once. The session survives a reload."""
    leading = user.home / "open.html"
    leading.write_text(f'<meta http-equiv="refresh" content="0;url={server.link}">')
    with chromium() as browser:
        page = browser.new_page()
        outside: list[str] = []
        page.on(
            "request",
            lambda request: outside.append(request.url) if not request.url.startswith(server.address) else None,
        )
        page.goto(leading.as_uri())
        page.wait_for_url(server.address + "/**")
        page.get_by_text("ML Workbench").first.wait_for()
        page.reload()
        page.get_by_text("ML Workbench").first.wait_for()
        assert [url for url in outside if not url.startswith("file:")] == []
        again = browser.new_context().new_page()
        assert again.goto(server.link).status == 401, "a link is good once"
        assert "mlw ui" in again.inner_text("main")


def test_address_and_sessions_end_with_server(user, tmp_path):
    """Another program may use the port after the server stops, so old cookies and addresses must be useless."""
    port = str(free_port())
    with browser_session(user, user.home, tmp_path, "--port", port) as ui:
        first, (cookie,) = ui.server, ui.context.cookies()
        session = f"{cookie['name']}={cookie['value']}"
        assert send_request(first, "GET", "/", Cookie=session).status == 200
        first.stop()
        with ui_server(user, user.home, tmp_path, "--port", port) as second:
            assert second.address != first.address
            assert send_request(first, "GET", "/", Cookie=session).status == 421
            assert send_request(second, "GET", "/", Cookie=session).status == 401
            expect(ui.page.get_by_role("alert")).to_contain_text("Your session has expired", timeout=20_000)
        with ui_server(user, user.home, tmp_path, "--keep-address", "--port", port) as third:
            assert third.address == second.address
            assert send_request(third, "GET", "/", Cookie=session).status == 401


def test_sessions_survive_server_restart_on_request(user, tmp_path):
    port = str(free_port())
    with ui_server(user, user.home, tmp_path, "--port", port) as first:
        session = cookie_of(first)
        assert send_request(first, "GET", "/", Cookie=session).status == 200
    with ui_server(user, user.home, tmp_path, "--keep-address", "--port", port) as second:
        assert send_request(second, "GET", "/", Cookie=session).status == 200


def test_unauthenticated_clients_are_refused(server):
    session = cookie_of(server)
    assert send_request(server, "GET", "/").status == 401
    assert send_request(server, "GET", "/", Cookie="mlw_8521=x").status == 401
    assert send_request(server, "GET", "/", Cookie=session, Host="evil.example:8521").status == 421
    assert send_request(server, "GET", "/", Authorization="Bearer x").status == 401
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert send_request(server, method, "/api/link", Cookie=session).status == 403, "without an origin"
        assert send_request(server, method, "/api/link", Cookie=session, Origin="http://127.0.0.1:1").status == 403
    assert send_request(server, "POST", "/api/link", Cookie=session, Origin=server.address).status == 200
    assert send_request(server, "OPTIONS", "/", Cookie=session, Origin=server.address).status == 403


def test_security_headers_of_every_response(server):
    session = cookie_of(server)
    for path, cookie in (
        ("/", ""),
        ("/", session),
        ("/nothing/here", session),
        ("/login", ""),
        ("/api/openapi.json", session),
    ):
        headers = {name.lower(): value for name, value in send_request(server, "GET", path, Cookie=cookie).getheaders()}
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers and not any(name.startswith("access-control") for name in headers)


def test_server_listens_on_loopback_only(server):
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[3] for line in listening.splitlines() if f"pid={server.process.pid}," in line]
    assert sorted(place.rpartition(":")[0] for place in ours) == ["127.0.0.1", "[::1]"]


def test_files_and_command_line_expose_no_secrets(server, user):
    session, code = cookie_of(server), server.link.partition("code=")[2]
    folder = user.store / "ui"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    token = json.loads((folder / "server.json").read_text())["token"]
    secret = json.loads((folder / "address.json").read_text())["secret"]
    assert server.address == f"http://{secret}.localhost:{server.port}"
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = path.read_text()
        assert code not in text and session.partition("=")[2] not in text
        assert token not in text or path.name == "server.json"
        assert secret not in text or path.name == "address.json"
    command = Path(f"/proc/{server.process.pid}/cmdline").read_text()
    assert token not in command and secret not in command


def test_second_start_opens_running_server(server, user):
    done = user.mlw("ui", "--no-browser")
    assert done.code == 0 and "already running" in done.err
    link = re.findall(r"http://\S+", done.out + done.err)[0]
    assert link.startswith(server.address) and link != server.link
    assert send_request(server, "GET", link.removeprefix(server.address)).status == 200


def test_login_link_is_not_on_the_browser_command_line(user, tmp_path):
    """The opener gets the name of a file that only its user can read."""
    record = tmp_path / "told"
    script = tmp_path / "browser"
    lines = ("#!/bin/sh", 'echo "$1" > part', 'cat "${1#file://}" >> part', "echo >> part")
    script.write_text("\n".join((*lines, 'stat -c %a "${1#file://}" >> part', f"mv part {record}", "")))
    script.chmod(0o755)
    output = tmp_path / "said"
    with open(output, "wb") as file:
        process = user.start("ui", cwd=user.home, env={"BROWSER": f"{script} %s"}, stdout=file, stderr=file)
    try:
        wait_until(record.exists, "the browser")
        command, page, mode = record.read_text().splitlines()
        secret = json.loads((user.store / "ui" / "address.json").read_text())["secret"]
        assert command.startswith("file://") and "code" not in command and secret not in command
        assert "login?code=" in page and mode == "600"
    finally:
        process.terminate()
        process.wait(20)


def test_occupied_port_is_reported_and_another_is_used(user, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = user.mlw("ui", "--no-browser", "--port", str(port))
        assert done.code != 0 and f"port {port} is already in use" in done.err and "hint:" in done.err
    other_env = {**user.env, "MLW_HOME": str(tmp_path / "other")}  # a second user, whose server needs another port
    with ui_server(user, user.home, tmp_path) as mine:
        user.env = other_env
        with ui_server(user, user.home, tmp_path) as theirs:
            assert mine.address != theirs.address
            assert send_request(theirs, "GET", "/", Cookie=cookie_of(mine)).status == 401


class _AttackerSite(http.server.BaseHTTPRequestHandler):
    """Another web application on another port of this machine."""

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
def test_other_site_cannot_use_logged_in_browser(server, place):
    evil = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _AttackerSite)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    _AttackerSite.page = (ATTACK % server.address).encode()
    name = "127.0.0.1" if place == "another port" else "evil.example"
    try:
        with chromium() as browser:
            page = browser.new_context().new_page()
            page.goto(server.link)
            page.get_by_text("ML Workbench").first.wait_for()
            responses: list[tuple[int, str]] = []
            page = page.context.new_page()  # the first page may still send its own requests
            page.on("response", lambda answer: responses.append((answer.status, answer.url)))
            page.goto(f"http://{name}:{evil.server_address[1]}/")
            page.wait_for_function("document.title.startsWith('done')", timeout=20_000)
            assert set(page.title().split()[1:]) <= {"refused", "opaque", "403", "401"}
            assert all(status in (401, 403) for status, url in responses if url.startswith(server.address)), responses
    finally:
        evil.shutdown()
        evil.server_close()


def test_other_host_name_is_refused(server):
    """DNS rebinding: the browser takes the server for evil.example."""
    port = server.port
    with chromium() as browser:
        answer = browser.new_page().goto(f"http://evil.example:{port}/login?code={server.link.partition('code=')[2]}")
        assert answer.status == 421


def test_malformed_requests_are_refused(server):
    """Malformed requests that no client library sends."""
    session = cookie_of(server)
    host, _, port = server.address.removeprefix("http://").rpartition(":")
    for line, expected in (
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: %s:%s", b"400"),
        (b"GET //evil.example/ HTTP/1.1\r\nHost: %s:%s", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a/?x=%s:%s", b"421"),
        (b"GET / HTTP/1.1\r\nHost: %s:%s\r\nHost: evil.example", b"400"),
        (b"TRACE / HTTP/1.1\r\nHost: %s:%s", b"403"),
    ):
        with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as raw:
            address = (host.encode(), port.encode())
            raw.sendall(line % address + b"\r\nCookie: " + session.encode() + b"\r\nConnection: close\r\n\r\n")
            with raw.makefile("rb") as response:
                answer = response.readline()
            assert expected in answer, (line, answer)


def test_stopped_server_leaves_nothing(user, tmp_path):
    with ui_server(user, user.home, tmp_path) as running:
        assert send_request(running, "GET", "/").status == 401
        running.stop()
    assert {path.name for path in (user.store / "ui").iterdir()} <= {"server.log", "sessions.json", "address.json"}
    assert "runs continue" in running.output()


def test_remote_access_requires_password(user):
    done = user.mlw("ui", "--no-browser", "--host", "0.0.0.0")
    assert done.code != 0 and "password" in done.err and "hint:" in done.err
    assert os.listdir(user.store / "ui") == []
