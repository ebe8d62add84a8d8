"""Credentials of a package index go to the scheme, host, and port that they were configured for."""

from __future__ import annotations

import base64
import http.server
import os
import threading
from pathlib import Path

import pytest

from mlworkbench.environments.channels import Indexes, user_indexes
from mlworkbench.environments.credentials import credentials_in, headers_for, with_netrc
from mlworkbench.environments.dependencies import Dependencies, Option
from mlworkbench.environments.pip import Wanted, _asks_plainly, _fetch
from mlworkbench.environments.platforms import Platform
from mlworkbench.environments.variables import Allowed, expand_credentials
from mlworkbench.errors import NotFetched
from tests.e2e.package_index import serving, wheel

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
def test_another_scheme_or_port_is_another_server(url, key):
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
        assert with_netrc(url, environ, named=False) == url
    assert (
        with_netrc("https://packages.example.com/s", environ, named=False)
        == "https://ada:p%40ss@packages.example.com/s"
    )
    odd = "https://packages.example.com\\@elsewhere.example/"
    assert with_netrc(odd, environ, named=True) == odd


def test_netrc_is_for_addresses_that_the_user_names(environ):
    own = user_indexes({**environ, "PIP_INDEX_URL": "http://packages.example.com:8080/simple"}, Path())
    assert own.index_url == "http://ada:p%40ss@packages.example.com:8080/simple"
    address = "https://packages.example.com:8443/simple"
    asked = Dependencies(options=(Option("", "f", 1, "--index-url", address),))
    assert expand_credentials(asked, Allowed(environ)).index_url == address
    named = Allowed(environ, frozenset({"packages.example.com:8443"}))
    assert expand_credentials(asked, named).index_url == "https://ada:p%40ss@packages.example.com:8443/simple"


def test_a_redirect_gets_no_password(tmp_path, environ):
    """Neither that of the index nor that of .netrc, which has one for the host."""

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"{index.url}/main/{path.name}")
            self.end_headers()

        def log_message(self, *_):
            pass

    path = wheel(tmp_path / "index/main", "closed", "1.0", "elsewhere")
    with serving(tmp_path / "index") as index:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            first = f"http://ada:hush@127.0.0.1:{server.server_port}"
            _fetch(f"{first}/one.whl", tmp_path / "one.whl", Indexes(index_url=first), environ)
        finally:
            server.shutdown()
            server.server_close()
    assert (tmp_path / "one.whl").read_bytes() == path.read_bytes()
    assert [asked.partition(" ")[2] for asked in index.asked] == [""]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/one.whl", "data:,one"])
def test_only_servers_are_asked(tmp_path, environ, url):
    with pytest.raises(NotFetched, match="url type"):
        _fetch(url, tmp_path / "one.whl", Indexes(), environ)
    assert not (tmp_path / "one.whl").exists()


@pytest.mark.parametrize(
    ("place", "lines", "kept"),
    [
        ("https://packages.example.com/simple", ["six"], True),
        ("http://ada@packages.example.com/simple", ["six"], False),
        (None, ["a @ HTTP://ada@packages.example.com/a-1-py3-none-any.whl"], False),
        (None, ["six"], True),
    ],
)
def test_a_keyring_is_not_asked_for_plain_http(tmp_path, place, lines, kept):
    """uv asks it by the host, and sends what it gets by whatever scheme the project names."""
    environ = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull}
    for own in (False, True):
        if own and place:
            environ["PIP_INDEX_URL"] = place
        wanted = Wanted(lines, Platform("linux-64", "2.36"), "3.12", Indexes(place), root=tmp_path)
        assert _asks_plainly(wanted, environ) is (not kept and not (own and place)), own
