"""The secret address and its file; and the server that runs already: who is believed to be it."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from typing import Any

import pytest

from mlworkbench.remote.shared import machine
from mlworkbench.ui.address import SecretAddress, default_style, known_address, new_address
from mlworkbench.ui.running import find, note, running_link
from mlworkbench.ui.server import Places, opener_file

SECRET = SecretAddress("0123456789abcdef" * 2)
CODE = "A-_z" + "0" * 39
HERE = "http://127.0.0.1:8521"


def test_each_secret_is_new_and_its_users_alone(tmp_path):
    file = tmp_path / "address.json"
    assert known_address(file) is None
    first = new_address(file)
    assert len(first.text) == 32 and known_address(file) == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert new_address(file) != first != known_address(file)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"secret": 1}', '{"secret": "ABC"}', '{"secret": "%s/x"}' % ("0" * 32)]
)
def test_a_file_of_no_use_is_not_believed(tmp_path, text):
    file = tmp_path / "address.json"
    file.write_text(text)
    file.chmod(0o600)
    assert known_address(file) is None
    assert new_address(file) == known_address(file)


def test_what_others_could_read_or_choose_is_no_secret(tmp_path):
    file, elsewhere = tmp_path / "address.json", tmp_path / "elsewhere"
    new_address(file)
    file.chmod(0o640)
    assert known_address(file) is None
    new_address(file)
    assert file.stat().st_mode & 0o777 == 0o600
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert known_address(file) is None
    new_address(file)
    assert not file.is_symlink()


def test_links(monkeypatch):
    assert SECRET.link("hostname", HERE, CODE) == f"http://{SECRET.text}.localhost:8521/login?code={CODE}"
    assert SECRET.link("path", "http://[::1]:8521", CODE) == f"http://[::1]:8521/{SECRET.text}/login?code={CODE}"
    assert SECRET.link("hostname", "http://[::1]:8521", CODE).startswith(f"http://{SECRET.text}.localhost:8521/")
    assert default_style(None) == "hostname" and default_style("0.0.0.0") == "path"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_style(None) == "path"


def test_only_a_link_to_our_own_address_has_a_code():
    for style in ("hostname", "path"):
        good = SECRET.link(style, HERE, CODE)
        assert SECRET.code_of(good, HERE) == CODE
        for bad in (
            good + "0", good[:-1], good + "\n", "x" + good, good.replace("8521", "8522"), good.replace("http", "https"),
            good.replace(SECRET.text, "f" * 32), good.replace("localhost", "evil.example").replace("127", "128"),
            good.replace(CODE, CODE[:-1] + "\x1b"), good.replace(CODE, CODE[:-1] + '"'), good + "#x", good + "&next=/x",
            "http://evil.example/" + good, good.replace("/login", "@evil.example/login"), "",
        ):  # fmt: skip
            assert SECRET.code_of(bad, HERE) is None, bad


def test_the_opener_escapes_the_link_and_old_ones_go(tmp_path):
    old = tmp_path / "open-1.html"
    old.write_text("x")
    os.utime(old, (0, 0))
    files = Places(tmp_path)
    opener_file(files, 'http://x/"><script>')
    assert "<script>" not in files.opener.read_text() and files.opener.stat().st_mode & 0o777 == 0o600
    assert not old.exists()


# -- the server that runs already --------------------------------------------------------------------------


class _Server(http.server.BaseHTTPRequestHandler):
    answer: bytes = b""
    heard: list[str] = []

    def do_POST(self) -> None:
        self.heard.append(f"{self.path} {self.headers.get('authorization')}")
        self.send_response(200)
        self.send_header("content-length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def serving(host: str = "127.0.0.1", name: str | None = None):
    """A server in this process; its address."""

    class Kind(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    _Server.heard = []
    server = Kind((host, 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{name or host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def answering(link: str) -> None:
    _Server.answer = json.dumps({"link": link}).encode()


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", None), ("::1", "[::1]"), ("0.0.0.0", "127.0.0.1")])
def test_a_link_from_the_server_that_runs(tmp_path, host, name):
    file = tmp_path / "server.json"
    with serving(host, name) as address:
        file.write_text(json.dumps(note(address, "t0ken")))
        answering(SECRET.link("hostname", address, CODE))
        port = int(address.rpartition(":")[2])
        assert running_link(file, SECRET, "hostname") == SECRET.link("hostname", address, CODE)
        assert running_link(file, SECRET, "path", port) == SECRET.link("path", address, CODE)
        assert running_link(file, SECRET, "path", port + 1) is None
        assert set(_Server.heard) == {"/api/link Bearer t0ken"}


def test_answers_that_are_not_believed(tmp_path):
    file = tmp_path / "server.json"
    with serving() as address:
        file.write_text(json.dumps(note(address, "t0ken")))
        good = SECRET.link("hostname", address, CODE)
        for link in ("http://evil.example/", good + "\x1b]0;x\x07", good.replace("localhost", "evil.example")):
            answering(link)
            assert running_link(file, SECRET, "hostname") is None
        for answer in (b"", b"[]", b"null", b'{"link": 1}', b"[" * 4096, b'{"link": "' + b"x" * 10**6 + b'"}'):
            _Server.answer = answer
            assert running_link(file, SECRET, "hostname") is None


def test_a_file_whose_process_is_another_one(tmp_path):
    file = tmp_path / "server.json"
    with serving() as address:
        answering(SECRET.link("hostname", address, CODE))
        good = note(address, "t0ken")
        wrong: list[dict[str, Any]] = [
            {"pid": 2**22}, {"start": good["start"] + 1}, {"boot_id": "another"}, {"machine": "x"}, {"pid": "1"},
            {"address": "http://127.0.0.1"}, {"address": f"http://x@{address[7:]}"}, {"address": f"{address}/x"},
            {"pid": 1, "start": machine.start_time(1)},
        ]  # fmt: skip
        for change in wrong:
            file.write_text(json.dumps({**good, **change}))
            assert running_link(file, SECRET, "hostname") is None, change
        file.write_text("{")
        assert find(file) is None
        assert _Server.heard == []


def test_nothing_is_sent_to_another_process_on_the_port(tmp_path):
    """The process of the file lives, and the port is another's: of the same user even."""
    script = (
        "import socket, sys; one = socket.socket(); one.bind(('127.0.0.1', 0)); one.listen(); one.settimeout(60);"
        "print(one.getsockname()[1], flush=True); print(len(one.accept()[0].recv(100)), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        file = tmp_path / "server.json"
        file.write_text(json.dumps(note(f"http://127.0.0.1:{other.stdout.readline().strip()}", "t0ken")))
        assert running_link(file, SECRET, "hostname") is None
        assert other.stdout.readline() == "0\n", "the connection was closed without a byte"


def test_a_port_that_nobody_has(tmp_path):
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    file = tmp_path / "server.json"
    file.write_text(json.dumps(note(f"http://127.0.0.1:{port}", "t0ken")))
    assert find(file) is not None and running_link(file, SECRET, "hostname") is None
