"""The secret address and its file, and the discovery of the running server."""

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
from mlworkbench.ui.cookie_isolation import SecretAddress, create_address, default_style, load_address
from mlworkbench.ui.server import ServerFiles, opener_file
from mlworkbench.ui.server_discovery import find_server, running_link, server_record

SECRET = SecretAddress("0123456789abcdef" * 2)
CODE = "A-_z" + "0" * 39
ADDRESS = "http://127.0.0.1:8521"


def test_each_secret_is_new_and_private(tmp_path):
    file = tmp_path / "address.json"
    assert load_address(file) is None
    first = create_address(file)
    assert len(first.text) == 32 and load_address(file) == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert create_address(file) != first != load_address(file)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"secret": 1}', '{"secret": "ABC"}', '{"secret": "%s/x"}' % ("0" * 32)]
)
def test_invalid_address_file_is_ignored(tmp_path, text):
    file = tmp_path / "address.json"
    file.write_text(text)
    file.chmod(0o600)
    assert load_address(file) is None
    assert create_address(file) == load_address(file)


def test_address_file_of_others_is_ignored(tmp_path):
    file, elsewhere = tmp_path / "address.json", tmp_path / "elsewhere"
    create_address(file)
    file.chmod(0o640)
    assert load_address(file) is None
    create_address(file)
    assert file.stat().st_mode & 0o777 == 0o600
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert load_address(file) is None
    create_address(file)
    assert not file.is_symlink()


def test_links(monkeypatch):
    assert SECRET.link("hostname", ADDRESS, CODE) == f"http://{SECRET.text}.localhost:8521/login?code={CODE}"
    assert SECRET.link("path", "http://[::1]:8521", CODE) == f"http://[::1]:8521/{SECRET.text}/login?code={CODE}"
    assert SECRET.link("hostname", "http://[::1]:8521", CODE).startswith(f"http://{SECRET.text}.localhost:8521/")
    assert default_style(None) == "hostname" and default_style("0.0.0.0") == "path"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_style(None) == "path"


def test_code_is_extracted_only_from_own_links():
    for style in ("hostname", "path"):
        good = SECRET.link(style, ADDRESS, CODE)
        assert SECRET.extract_code(good, ADDRESS) == CODE
        for bad in (
            good + "0", good[:-1], good + "\n", "x" + good, good.replace("8521", "8522"), good.replace("http", "https"),
            good.replace(SECRET.text, "f" * 32), good.replace("localhost", "evil.example").replace("127", "128"),
            good.replace(CODE, CODE[:-1] + "\x1b"), good.replace(CODE, CODE[:-1] + '"'), good + "#x", good + "&next=/x",
            "http://evil.example/" + good, good.replace("/login", "@evil.example/login"), "",
        ):  # fmt: skip
            assert SECRET.extract_code(bad, ADDRESS) is None, bad


def test_opener_escapes_link_and_old_openers_are_removed(tmp_path):
    old = tmp_path / "open-1.html"
    old.write_text("x")
    os.utime(old, (0, 0))
    files = ServerFiles(tmp_path)
    opener_file(files, 'http://x/"><script>')
    assert "<script>" not in files.opener.read_text() and files.opener.stat().st_mode & 0o777 == 0o600
    assert not old.exists()


# -- discovery of the running server -----------------------------------------------------------------------


class _Server(http.server.BaseHTTPRequestHandler):
    response: bytes = b""
    requests: list[str] = []

    def do_POST(self) -> None:
        self.requests.append(f"{self.path} {self.headers.get('authorization')}")
        self.send_response(200)
        self.send_header("content-length", str(len(self.response)))
        self.end_headers()
        self.wfile.write(self.response)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def run_server(host: str = "127.0.0.1", name: str | None = None):
    """Run a server in this process; yield its address."""

    class Kind(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    _Server.requests = []
    server = Kind((host, 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{name or host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def respond_with(link: str) -> None:
    _Server.response = json.dumps({"link": link}).encode()


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", None), ("::1", "[::1]"), ("0.0.0.0", "127.0.0.1")])
def test_link_from_running_server(tmp_path, host, name):
    file = tmp_path / "server.json"
    with run_server(host, name) as address:
        file.write_text(json.dumps(server_record(address, "t0ken")))
        respond_with(SECRET.link("hostname", address, CODE))
        port = int(address.rpartition(":")[2])
        assert running_link(file, SECRET, "hostname") == SECRET.link("hostname", address, CODE)
        assert running_link(file, SECRET, "path", port) == SECRET.link("path", address, CODE)
        assert running_link(file, SECRET, "path", port + 1) is None
        assert set(_Server.requests) == {"/api/link Bearer t0ken"}


def test_invalid_responses_are_ignored(tmp_path):
    file = tmp_path / "server.json"
    with run_server() as address:
        file.write_text(json.dumps(server_record(address, "t0ken")))
        good = SECRET.link("hostname", address, CODE)
        for link in ("http://evil.example/", good + "\x1b]0;x\x07", good.replace("localhost", "evil.example")):
            respond_with(link)
            assert running_link(file, SECRET, "hostname") is None
        for response in (b"", b"[]", b"null", b'{"link": 1}', b"[" * 4096, b'{"link": "' + b"x" * 10**6 + b'"}'):
            _Server.response = response
            assert running_link(file, SECRET, "hostname") is None


def test_server_file_of_another_process_is_ignored(tmp_path):
    file = tmp_path / "server.json"
    with run_server() as address:
        respond_with(SECRET.link("hostname", address, CODE))
        good = server_record(address, "t0ken")
        wrong: list[dict[str, Any]] = [
            {"pid": 2**22}, {"start": good["start"] + 1}, {"boot_id": "another"}, {"machine": "x"}, {"pid": "1"},
            {"address": "http://127.0.0.1"}, {"address": f"http://x@{address[7:]}"}, {"address": f"{address}/x"},
            {"pid": 1, "start": machine.start_time(1)},
        ]  # fmt: skip
        for change in wrong:
            file.write_text(json.dumps({**good, **change}))
            assert running_link(file, SECRET, "hostname") is None, change
        file.write_text("{")
        assert find_server(file) is None
        assert _Server.requests == []


def test_nothing_is_sent_to_another_process_on_the_port(tmp_path):
    """The process in server.json is alive, but another process of the same user uses the port."""
    script = (
        "import socket, sys; sock = socket.socket(); sock.bind(('127.0.0.1', 0)); sock.listen(); sock.settimeout(60);"
        "print(sock.getsockname()[1], flush=True); print(len(sock.accept()[0].recv(100)), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        file = tmp_path / "server.json"
        file.write_text(json.dumps(server_record(f"http://127.0.0.1:{other.stdout.readline().strip()}", "t0ken")))
        assert running_link(file, SECRET, "hostname") is None
        assert other.stdout.readline() == "0\n", "the connection was closed without a byte"


def test_port_without_listener(tmp_path):
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    file = tmp_path / "server.json"
    file.write_text(json.dumps(server_record(f"http://127.0.0.1:{port}", "t0ken")))
    assert find_server(file) is not None and running_link(file, SECRET, "hostname") is None
