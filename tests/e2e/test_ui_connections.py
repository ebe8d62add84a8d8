"""Other users of this machine and connection floods against a real `mlw ui`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from mlworkbench.ui.queries.projects import key_of
from tests.machines.browser import BrowserSession, UiServer, chromium, ui_server
from tests.machines.ui_routes import HttpClient, api_client, login_cookie, token_of

ROOT_USER, NOBODY_USER = 0, 65534
PYTHON = "/usr/bin/python3"
FLOOD = 1100
DESCRIPTORS = 192  # limit of the server, far below a flood of 1,100 connections

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

# Sends each request over a separate connection and prints the responses.
_REPLAY = """
import json, socket, sys
host, port, requests = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
answers = []
for request in requests:
    answer = b""
    try:
        with socket.create_connection((host, port), timeout=20) as connection:
            connection.sendall(request.encode())
            while data := connection.recv(65536):
                answer += data
    except ConnectionError:
        pass
    answers.append(answer.decode("latin-1"))
print(json.dumps(answers))
"""

# Opens idle connections and holds them until its standard input ends.
_HOLD = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
for _ in range(int(sys.argv[3])):
    try:
        held.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2))
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""


def replay(server: UiServer, user_id: int, host: str, requests: list[str]) -> list[str]:
    port = server.address.rpartition(":")[2]
    done = subprocess.run(
        [PYTHON, "-I", "-c", _REPLAY, host, port, json.dumps(requests)],
        user=user_id, group=user_id, extra_groups=[], cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return list(json.loads(done.stdout))


@contextmanager
def flood(server: UiServer, user_id: int) -> Iterator[None]:
    host, port = HttpClient(server.address).socket_address
    process = subprocess.Popen(
        [PYTHON, "-I", "-c", _HOLD, host, str(port), str(FLOOD)],
        user=user_id, group=user_id, extra_groups=[], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def test_another_user_cannot_replay_session_or_token(user, tmp_path):
    """Tested over IPv4 and IPv6. The server logs the other user's ID. `--any-local-user` lifts the restriction."""
    with ui_server(user, user.home, tmp_path) as server:
        cookie, place = login_cookie(server), server.address.removeprefix("http://")
        head = f"HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n"
        requests = [
            f"GET / {head}Cookie: {cookie}\r\n\r\n",
            f"GET /api/projects {head}Authorization: Bearer {token_of(user.store)}\r\n\r\n",
            f"POST /api/link {head}Authorization: Bearer {token_of(user.store)}\r\n\r\n",
            f"GET /login {head}\r\n",
        ]
        for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
            statuses = [answer.split(" ")[1] for answer in replay(server, ROOT_USER, host, requests)]
            assert statuses == ["200", "200", "200", "401"], "the owner"
            for answer in replay(server, NOBODY_USER, host, requests):
                assert answer == "" or answer.startswith("HTTP/1.1 403 "), answer
                assert "Workbench" not in answer and "set-cookie" not in answer.lower()
        assert f"user ID {NOBODY_USER}" in (user.store / "ui" / "server.log").read_text()
    with ui_server(user, user.home, tmp_path, "--any-local-user") as server:
        (answer,) = replay(server, NOBODY_USER, "127.0.0.1", [requests[3].replace(place, server.address[7:])])
        assert answer.startswith("HTTP/1.1 401 ")


@contextmanager
def limited_ui_server(user, cwd, place) -> Iterator[UiServer]:
    """Start `mlw ui` with a low limit of open files."""
    output = place / "narrow.txt"
    with open(output, "wb") as file:
        process = user.start(
            "ui", "--no-browser", "--any-local-user", cwd=cwd, stdout=file, stderr=file,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
        )  # fmt: skip
    try:
        yield UiServer(process, output)
    finally:
        process.terminate()
        process.wait(20)


def assert_owner_is_served(server: UiServer, user, ui: BrowserSession, number: int) -> None:
    """The open terminal, a new page, the API, and a new operation still work."""
    ui.page.keyboard.insert_text(f"echo answer=$(({number} * 1000))")
    ui.page.keyboard.press("Enter")
    expect(ui.page.locator(".xterm-rows")).to_contain_text(f"answer={number * 1000}")
    tab = ui.new_tab()
    assert tab.goto(f"{server.address}/runs").status == 200
    tab.close()
    client = api_client(server, user.store)
    (project,) = json.loads(client.request("GET", "/api/projects").body)
    check = client.request("POST", f"/api/targets/local/check?project={project['key']}")  # starts a process
    assert check.status == 200 and json.loads(check.body), check


def test_flood_of_idle_connections_does_not_block_owner(user, tmp_path):
    root = user.project()
    user.env["SHELL"] = "/bin/bash"
    (user.home / ".bashrc").write_text("PS1='ready> '\n")
    with limited_ui_server(user, root, tmp_path) as server, chromium() as browser:
        ui = BrowserSession(browser, server)
        page = ui.go(f"/p/{key_of(root)}/terminal")
        expect(page.locator(".xterm-rows")).to_contain_text("ready>")
        page.locator(".xterm-screen").click()
        for number, user_id in enumerate((NOBODY_USER, ROOT_USER), 1):
            with flood(server, user_id):
                assert_owner_is_served(server, user, ui, number)
        assert server.process.poll() is None
        log = (user.store / "ui" / "server.log").read_text()
        assert "Too many open files" not in log + server.output()
        assert len(log.splitlines()) < 20, log
