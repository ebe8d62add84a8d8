"""Credentials of a package index go to the scheme, host, and port that they were configured for."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import threading
from pathlib import Path

import pytest

from mlworkbench.environments.credentials import credentials_in, headers_for, with_keyring, with_netrc
from mlworkbench.environments.dependencies import Dependencies, Option
from mlworkbench.environments.package_sources import user_indexes
from mlworkbench.environments.pip_solve import PipRequest, PipResult, _fetch, solve_pip
from mlworkbench.environments.platforms import Platform
from mlworkbench.environments.url_variables import AllowedVariables, expand_credentials
from mlworkbench.errors import NotFetched, SolveError
from tests.e2e.package_index import serve_index, wheel

KNOWN = ["https://ada:pass%2Fword@packages.example.com/simple", "http://bob:plain@mirror.example.com:8080/"]


def sent(url: str, addresses=KNOWN, environ=None) -> str | None:
    header = headers_for(url, credentials_in(addresses), environ or {"NETRC": "/nowhere"}).get("Authorization")
    return base64.b64decode(header.partition(" ")[2]).decode() if header else None


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://packages.example.com/files/one.whl", "ada:pass/word"),
        ("https://packages.example.com:443/files/one.whl", "ada:pass/word"),
        ("http://packages.example.com/files/one.whl", None),
        ("http://packages.example.com:443/files/one.whl", None),
        ("https://packages.example.com:8443/files/one.whl", None),
        ("https://files.packages.example.com/one.whl", None),
        ("http://mirror.example.com:8080/one.whl", "bob:plain"),
        ("https://mirror.example.com:8080/one.whl", None),
        ("http://mirror.example.com/one.whl", None),
        ("https://mirror.example.com:port/one.whl", None),
        ("file:///srv/one.whl", None),
    ],
)
def test_scheme_and_port_distinguish_servers(url, key):
    assert sent(url) == key


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "netrc").write_text(
        "machine packages.example.com login ada password p@ss\nmachine 127.0.0.1 login ada password p@ss\n"
        "default login anybody password default-secret\n"
    )
    return {"NETRC": str(tmp_path / "netrc"), "PIP_CONFIG_FILE": "/dev/null"}


def test_netrc_is_for_https_at_the_standard_port(environ):
    assert sent("https://packages.example.com/one.whl", [], environ) == "ada:p@ss"
    for url in ("http://packages.example.com/", "https://packages.example.com:8443/", "https://elsewhere.example/"):
        assert sent(url, [], environ) is None, url
        assert with_netrc(url, environ, configured=False) == url
    assert (
        with_netrc("https://packages.example.com/s", environ, configured=False)
        == "https://ada:p%40ss@packages.example.com/s"
    )
    ambiguous = "https://packages.example.com\\@elsewhere.example/"
    assert with_netrc(ambiguous, environ, configured=True) == ambiguous


def test_netrc_is_for_configured_addresses(environ):
    indexes = user_indexes({**environ, "PIP_INDEX_URL": "http://packages.example.com:8080/simple"}, Path())
    assert indexes.index_url == "http://ada:p%40ss@packages.example.com:8080/simple"
    address = "https://packages.example.com:8443/simple"
    dependencies = Dependencies(options=(Option("", "f", 1, "--index-url", address),))
    assert expand_credentials(dependencies, AllowedVariables(environ)).index_url == address
    allowed = AllowedVariables(environ, frozenset({"packages.example.com:8443"}))
    assert expand_credentials(dependencies, allowed).index_url == "https://ada:p%40ss@packages.example.com:8443/simple"


def test_a_redirect_gets_no_password(tmp_path, environ):
    """The redirect target receives neither the password of the index nor its own password from .netrc."""

    class RedirectHandler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"{index.url}/main/{path.name}")
            self.end_headers()

        def log_message(self, *_):
            pass

    path = wheel(tmp_path / "index/main", "closed", "1.0", "elsewhere")
    with serve_index(tmp_path / "index") as index:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RedirectHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            first = f"http://ada:hush@127.0.0.1:{server.server_port}"
            _fetch(f"{first}/one.whl", tmp_path / "one.whl", [first], environ)
        finally:
            server.shutdown()
            server.server_close()
    assert (tmp_path / "one.whl").read_bytes() == path.read_bytes()
    assert [request.partition(" ")[2] for request in index.asked] == [""]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/one.whl", "data:,one"])
def test_only_server_addresses_are_filled(tmp_path, environ, url):
    with pytest.raises(NotFetched, match="url type"):
        _fetch(url, tmp_path / "one.whl", [], environ)
    assert not (tmp_path / "one.whl").exists()


@pytest.fixture
def keyring(tmp_path: Path) -> dict[str, str]:
    """A keyring with a password of ada for this machine, for any scheme and port."""
    program = tmp_path / "bin" / "keyring"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ncase "$*" in *127.0.0.1*ada|*packages.example.com*ada) echo p@ss;; *) exit 1;; esac\n'
    )
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "UV_KEYRING_PROVIDER": "subprocess", "PIP_CONFIG_FILE": os.devnull, "NO_PROXY": "127.0.0.1"}


def solve_package(tmp_path: Path, environ: dict[str, str], index: str) -> PipResult:
    environ = {**environ, "PIP_INDEX_URL": index, "UV_CACHE_DIR": str(tmp_path / "cache")}
    indexes = user_indexes(environ, tmp_path)
    return solve_pip(PipRequest(["closed"], Platform("linux-64", "2.36"), "3.12", indexes, root=tmp_path), environ)


def test_an_index_of_the_user_gets_the_password_of_the_keyring(tmp_path, keyring):
    wheel(tmp_path / "index/main", "closed", "1.0", "index")
    with serve_index(tmp_path / "index", key="ada:p@ss") as index:
        result = solve_package(tmp_path, keyring, f"http://ada@127.0.0.1:{index.port}/main/simple")
    assert [package["version"] for package in result.packages] == ["1.0"] and result.packages[0]["private"]


def test_no_link_of_an_index_gets_a_password_of_the_keyring(tmp_path, keyring):
    """uv would query a keyring for the host of any link, and send the password with the scheme of the link."""
    path = wheel(tmp_path / "index/main", "closed", "1.0", "index")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with serve_index(tmp_path / "index") as hostile, serve_index(tmp_path / "index", key="ada:p@ss") as closed:
        link = f"http://ada@127.0.0.1:{closed.port}/main/{path.name}#sha256={digest}"
        hostile.page = lambda _: f'<a href="{link}">{path.name}</a>'
        with pytest.raises(SolveError):
            solve_package(tmp_path, keyring, f"{hostile.url}/main/simple")
    assert closed.asked and not [request for request in closed.asked if "p@ss" in request]


def test_keyring_is_for_https_and_configured_addresses(keyring):
    filled = "https://ada:p%40ss@packages.example.com/simple"
    assert with_keyring("https://ada@packages.example.com/simple", keyring, configured=False) == filled
    plain = "http://ada@packages.example.com:8080/simple"
    assert with_keyring(plain, keyring, configured=True) == plain.replace("ada@", "ada:p%40ss@")
    unchanged = [plain, "https://bob@packages.example.com/", "https://packages.example.com/", filled]
    for address in [*unchanged, "https://ada@elsewhere.example\\@packages.example.com/"]:
        assert with_keyring(address, keyring, configured=False) == address
    off = {**keyring, "UV_KEYRING_PROVIDER": "disabled"}
    assert with_keyring(plain, off, configured=True) == plain
