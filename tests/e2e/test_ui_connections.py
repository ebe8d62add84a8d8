"""Other users of this machine and floods of connections, against a real `mlw ui`."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from mlworkbench.ui.answers.projects import key_of
from tests.machines.browser import Looker, Workbench, chromium, workbench
from tests.machines.doors import Caller, program, session, token_of

ROOT, NOBODY = 0, 65534
PYTHON = "/usr/bin/python3"
FLOOD = 1100
DESCRIPTORS = 192  # of the server, so that a flood of 1,100 is many times too much

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

# Sends each request on a connection of its own and prints what comes back.
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


def replay(bench: Workbench, user_id: int, host: str, requests: list[str]) -> list[str]:
    port = bench.address.rpartition(":")[2]
    done = subprocess.run(
        [PYTHON, "-I", "-c", _REPLAY, host, port, json.dumps(requests)],
        user=user_id, group=user_id, extra_groups=[], cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return list(json.loads(done.stdout))


@contextmanager
def flood(bench: Workbench, user_id: int) -> Iterator[None]:
    host, port = Caller(bench.address).place
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


def test_another_user_cannot_replay_a_session_or_the_token(user, tmp_path):
    """Over IPv4 and IPv6; a request that only acts and never reads its answer has no effect either."""
    with workbench(user, user.home, tmp_path) as bench:
        cookie, place = session(bench), bench.address.removeprefix("http://")
        head = f"HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n"
        requests = [
            f"GET / {head}Cookie: {cookie}\r\n\r\n",
            f"GET /api/projects {head}Authorization: Bearer {token_of(user.store)}\r\n\r\n",
            f"POST /api/link {head}Authorization: Bearer {token_of(user.store)}\r\n\r\n",
            f"GET /login {head}\r\n",
        ]
        for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
            statuses = [answer.split(" ")[1] for answer in replay(bench, ROOT, host, requests)]
            assert statuses == ["200", "200", "200", "401"], "the owner"
            for answer in replay(bench, NOBODY, host, requests):
                assert answer == "" or answer.startswith("HTTP/1.1 403 "), answer
                assert "Workbench" not in answer and "set-cookie" not in answer.lower()
        assert f"user ID {NOBODY}" in (user.store / "ui" / "server.log").read_text()
    with workbench(user, user.home, tmp_path, "--any-local-user") as bench:
        (answer,) = replay(bench, NOBODY, "127.0.0.1", [requests[3].replace(place, bench.address[7:])])
        assert answer.startswith("HTTP/1.1 401 ")


@contextmanager
def narrow_workbench(user, cwd, place) -> Iterator[Workbench]:
    """`mlw ui` that may open few files."""
    said = place / "narrow.txt"
    with open(said, "wb") as file:
        process = user.start(
            "ui", "--no-browser", "--any-local-user", cwd=cwd, stdout=file, stderr=file,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
        )  # fmt: skip
    try:
        yield Workbench(process, said)
    finally:
        process.terminate()
        process.wait(20)


def must_serve_its_owner(bench: Workbench, user, looker: Looker, number: int) -> None:
    """The terminal that was open before, a new page, the API, and a command that it starts."""
    looker.page.keyboard.insert_text(f"echo answer=$(({number} * 1000))")
    looker.page.keyboard.press("Enter")
    expect(looker.page.locator(".xterm-rows")).to_contain_text(f"answer={number * 1000}")
    tab = looker.tab()
    assert tab.goto(f"{bench.address}/runs").status == 200
    tab.close()
    caller = program(bench, user.store)
    (project,) = json.loads(caller.ask("GET", "/api/projects").body)
    check = caller.ask("POST", f"/api/targets/local/check?project={project['key']}")  # a process of its own
    assert check.status == 200 and json.loads(check.body), check


def test_a_flood_of_idle_connections_locks_nobody_out(user, tmp_path):
    root = user.project()
    user.env["SHELL"] = "/bin/bash"
    (user.home / ".bashrc").write_text("PS1='ready> '\n")
    with narrow_workbench(user, root, tmp_path) as bench, chromium() as browser:
        looker = Looker(browser, bench)
        page = looker.go(f"/p/{key_of(root)}/terminal")
        expect(page.locator(".xterm-rows")).to_contain_text("ready>")
        page.locator(".xterm-screen").click()
        for number, user_id in enumerate((NOBODY, ROOT), 1):
            with flood(bench, user_id):
                must_serve_its_owner(bench, user, looker, number)
        assert bench.process.poll() is None
        log = (user.store / "ui" / "server.log").read_text()
        assert "Too many open files" not in log + bench.words()
        assert len(log.splitlines()) < 20, log
