"""The user's mirrors: which addresses are sent with a lock."""

from __future__ import annotations

import os
from urllib.parse import unquote

import pytest

from mlworkbench.environments import solve
from mlworkbench.environments.dependencies import Dependencies
from mlworkbench.environments.interpreter_choice import find_uv_python, refresh_address
from mlworkbench.environments.lock_check import validate_lock
from mlworkbench.environments.mirrors import with_mirrors
from mlworkbench.environments.platforms import Platform
from mlworkbench.environments.solve import Request, SolveResult
from mlworkbench.errors import NotFetched, SolveError
from mlworkbench.remote.environments.mirrors import index_variables, python_variables
from mlworkbench.remote.environments.missing_packages import find_missing
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root
from tests.e2e.package_index import serve_index
from tests.machines.channel import VERSION
from tests.machines.python_mirror import KEY, NAME, write_mirror

NAMES_OF_UV = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_PYTHON_INSTALL_MIRROR")
LINUX = Platform("linux-64", "2.36")
SECRET = "hush-31bd"
LOCK = {
    **{"kind": "managed", "format": 1, "platform": "linux-64", "glibc": "2.17", "cuda": None, "conda": [], "pip": []},
    "python": {"source": "uv", "version": VERSION, "key": KEY, "url": "https://example.org/1/x.tar.gz"},
}
LOCK["digest"] = digest_of(LOCK)


@pytest.fixture
def environ(tmp_path):
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "UV_HTTP_RETRIES": "0"}


def test_addresses_are_sent_without_credentials(tmp_path, environ):
    environ |= {
        "UV_PYTHON_INSTALL_MIRROR": f"https://ada:{SECRET}@mirror.example/pythons",
        "UV_DEFAULT_INDEX": f"own=https://{SECRET}@index.example/simple",
        "UV_INDEX": "https://more.example/simple",
        "UV_FIND_LINKS": f"{tmp_path},https://links.example/",
    }
    lock = with_mirrors(LOCK, environ, tmp_path)
    assert lock["mirrors"] == {
        "pythons": ["https://mirror.example/pythons"],
        "index": ["https://index.example/simple"],
        "extra": ["https://more.example/simple"],
        "links": ["https://links.example/"],
    }
    assert digest_of(lock) == LOCK["digest"], "the environment is the same one"
    assert index_variables(lock)["UV_DEFAULT_INDEX"] == "https://index.example/simple"
    assert python_variables(Root(str(tmp_path)), lock, str(tmp_path)) == {
        "UV_PYTHON_INSTALL_MIRROR": "https://mirror.example/pythons"
    }
    assert "mirrors" not in with_mirrors(lock, {"PIP_CONFIG_FILE": os.devnull, "HOME": "/nowhere"}, tmp_path)


@pytest.mark.parametrize(
    "address",
    [
        "https://index.example/${TOK}/simple",
        "https://ada:${TOK}@index.example/${TOK}/simple",
        "https://${TOK}.index.example/simple",
        "https://${NOT_SET}.index.example/simple",
        f"https://index.example/simple?token={SECRET}",
        f"https://index.example/simple?jwt={SECRET}",
        f"https://index.example/simple?{SECRET}",
        f"https://index.example/simple#{SECRET}",
        f"https://index.example/simple;{SECRET}/x",
    ],
)
@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", *NAMES_OF_UV])
def test_addresses_with_possible_secrets_are_not_sent(tmp_path, environ, name, address):
    lock = with_mirrors(LOCK, {**environ, "TOK": SECRET, name: address}, tmp_path)
    assert lock == LOCK
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {address}\nextra-index-url = https://more.example/\n")
    lock = with_mirrors(LOCK, {**environ, "TOK": SECRET, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}, tmp_path)
    assert lock["mirrors"] == {"extra": ["https://more.example/"]}


def test_credential_variables_are_removed(tmp_path, environ):
    environ |= {"TOK": SECRET, "PIP_INDEX_URL": "https://ada:${TOK}@index.example/simple"}
    assert with_mirrors(LOCK, environ, tmp_path)["mirrors"] == {"index": ["https://index.example/simple"]}


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "127.1",
            "localhost",
            "LOCALHOST.",
            "pypi.localhost",
            "0.0.0.0",
            "0",
            "2130706433",
            "0x7f000001",
        ),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]"),
    ],
)
def test_loopback_addresses(tmp_path, environ, host):
    environ["PIP_INDEX_URL"] = f"http://{host}:3141/simple"
    assert "mirrors" not in with_mirrors(LOCK, environ, tmp_path)
    assert "mirrors" in with_mirrors(LOCK, environ, tmp_path, is_local=True)


@pytest.mark.parametrize("host", ["10.0.0.1", "localhost.example", "[fd00::1]", "mirror"])
def test_other_addresses(tmp_path, environ, host):
    environ["PIP_INDEX_URL"] = f"http://{host}:3141/simple"
    assert "mirrors" in with_mirrors(LOCK, environ, tmp_path)


def test_loopback_servers_are_for_local_builds_only(tmp_path, environ):
    environ |= {"PIP_INDEX_URL": "http://127.0.0.1:3141/simple", "PIP_EXTRA_INDEX_URL": "http://localhost/simple"}
    assert "mirrors" not in with_mirrors(LOCK, environ, tmp_path)
    mirrors = with_mirrors(LOCK, environ, tmp_path, is_local=True)["mirrors"]
    assert mirrors == {"index": ["http://127.0.0.1:3141/simple"], "extra": ["http://localhost/simple"]}


def test_recorded_lock_cannot_set_mirrors():
    evil = {"pythons": ["https://evil.example"]}
    python = {**LOCK["python"], "listed": {"sha256": None}, "private": True}
    lock = validate_lock({**LOCK, "python": python, "mirrors": evil}, contained=False)
    assert "mirrors" not in lock and lock["python"] == LOCK["python"]


def test_unreachable_mirror_does_not_change_python(tmp_path, environ):
    """The error is reported. A former version used a conda package of Python instead, and cached that for a week."""
    environ["UV_PYTHON_DOWNLOADS_JSON_URL"] = f"http://ada:{SECRET}@127.0.0.1:9/downloads.json"
    with pytest.raises(NotFetched, match="Python versions from http://127.0.0.1:9/downloads.json: Connection refused"):
        solve.solve(Request(Dependencies(), LINUX, tmp_path), tmp_path / "cache", environ)
    assert list((tmp_path / "cache").rglob("*.json")) == []
    assert refresh_address(LOCK["python"], LINUX, environ, tmp_path) == LOCK["python"]
    broken = tmp_path / "list.json"
    broken.write_text("<html>")
    with pytest.raises(SolveError, match="set in UV_PYTHON_DOWNLOADS_JSON_URL, is not a list of Python versions"):
        find_uv_python(LINUX, None, {**environ, "UV_PYTHON_DOWNLOADS_JSON_URL": str(broken)}, tmp_path)


def test_private_python_is_uploaded(tmp_path, environ):
    (tmp_path / "mirror/pythons").mkdir(parents=True)
    with serve_index(tmp_path / "mirror", key=f"ada:{SECRET}") as mirror:
        write_mirror(tmp_path / "mirror/pythons", f"{mirror.url}/pythons")
        environ["UV_PYTHON_DOWNLOADS_JSON_URL"] = f"{mirror.url_with_key}/pythons/downloads.json"
        python = refresh_address(LOCK["python"], LINUX, environ, tmp_path)
    assert unquote(python["url"]) == f"{mirror.url}/pythons/20240107/{NAME}" and python["private"]
    assert find_missing(Root(str(tmp_path / "root")), {**LOCK, "python": python}) == {"digests": [], "python": True}
    assert mirror.seen == [], "command lines"


def test_missing_tool_is_searched_again(tmp_path, environ, monkeypatch):
    tool = {"name": "uv", "version": "1", "file": "uv.whl", "sha256": "0" * 64}
    monkeypatch.setattr(solve, "_solve", lambda *_: SolveResult(dict(LOCK)))
    request = Request(Dependencies(), LINUX, tmp_path)
    monkeypatch.setattr(solve, "find_tools", lambda *_, **__: ([tool], {}))
    assert "url" not in solve.solve(request, tmp_path / "cache", environ).lock["tools"][0]
    available = {**tool, "url": "https://index.example/uv.whl"}
    monkeypatch.setattr(solve, "find_tools", lambda *_, **__: ([available], {}))
    assert solve.solve(request, tmp_path / "cache", environ).lock["tools"] == [available]
    assert solve.solve(request, tmp_path / "cache", environ).cached
