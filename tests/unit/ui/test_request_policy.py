"""Which requests the gate lets through, before anybody asks who they are from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.ui.admission import Door, Request, judge, locate, safe_next
from mlworkbench.ui.headers import policy

DOOR = Door(frozenset({"127.0.0.1:8521", "localhost:8521", "[::1]:8521"}), "mlw_8521")
OWN = {"host": "127.0.0.1:8521"}
US = {**OWN, "origin": "http://127.0.0.1:8521"}


def status(method: str, path: bytes, headers: dict[str, str], doubled: tuple[str, ...] = ()) -> int | None:
    refusal = judge(Request(method, path, b"", headers, doubled), DOOR)
    return refusal.status if refusal else None


@pytest.mark.parametrize("host", ["127.0.0.1:8521", "LOCALHOST:8521", "[::1]:8521"])
def test_our_names(host):
    assert status("GET", b"/", {"host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example:8521", "127.0.0.1", "127.0.0.1:80", "localhost:85210", "localhost:8521.evil.example"]
    + ["evil.example#127.0.0.1:8521", "127.0.0.1:8521@evil.example", "a/?x=127.0.0.1:8521", "localhost:8521 "]
    + ["0.0.0.0:8521", "[::]:8521", "127.1:8521", "2130706433:8521", "localhost.:8521"],
)
def test_names_that_are_not_ours(host):
    assert status("GET", b"/", {"host": host}) == 421


SECRET = "0123456789abcdef" * 2
PRIVATE = replace(DOOR, secret=SECRET)


def located(host: str, path: bytes = b"/runs") -> Request:
    return locate(Request("GET", path, b"", {"host": host}), PRIVATE)


@pytest.mark.parametrize("port", [":8521", ":9000", ""])
def test_the_secret_name_at_whatever_port_it_is_forwarded_to(port):
    request = located(f"{SECRET.upper()}.localhost{port}")
    assert request.private and request.base == "" and judge(request, PRIVATE) is None


@pytest.mark.parametrize("host", ["127.0.0.1:8521", "127.0.0.1:9000", "localhost:9000", "[::1]:9000"])
def test_the_secret_path_at_whatever_port_it_is_forwarded_to(host):
    request = located(host, f"/{SECRET}/runs".encode())
    assert (request.path, request.base, request.private) == (b"/runs", f"/{SECRET}", True)
    assert judge(request, PRIVATE) is None


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("127.0.0.1:8521", b"/runs"),
        ("localhost:8521", f"/{SECRET}".encode()),
        ("localhost:8521", f"/{SECRET}x/runs".encode()),
        ("localhost:8521", f"/x/{SECRET}/runs".encode()),
        ("localhost:8521", f"{SECRET}/runs".encode()),
        ("localhost:8521", f"//{SECRET}/runs".encode()),
        (f"{SECRET[:-1]}.localhost:8521", b"/"),
        (f"{SECRET}.localhost.evil.example:8521", b"/"),
        (f"x{SECRET}.localhost:8521", b"/"),
        (f"x.{SECRET}.localhost:8521", b"/"),
        (f"{SECRET}.localhost:8521@evil.example", b"/"),
        (f"{SECRET}.localhost:8521; script-src *", b"/"),
        (".localhost:8521", b"/"),
    ],
)
def test_what_is_not_the_secret_address(host, path):
    assert not located(host, path).private
    assert host.endswith("localhost:8521") or host == "127.0.0.1:8521" or judge(located(host, path), PRIVATE)


def test_without_a_secret_nothing_is_private():
    for host, path in ((".localhost:8521", b"/"), ("localhost:8521", b"//runs"), ("localhost:8521", b"/")):
        assert not locate(Request("GET", path, b"", {"host": host}), DOOR).private


def test_a_rebound_name_is_refused_also_below_the_secret_path():
    refusal = judge(located("evil.example:8521", f"/{SECRET}/runs".encode()), PRIVATE)
    assert refusal and refusal.status == 421


def test_the_policy_names_the_host_of_the_request_only():
    assert f"connect-src 'self' ws://{SECRET}.localhost:9000;" in policy(f"{SECRET}.localhost:9000")
    assert "connect-src 'self';" in policy("") and "connect-src 'self';" in policy("[::1]:8521")


def test_a_request_without_a_host():
    assert status("GET", b"/", {}) == 421


@pytest.mark.parametrize("name", ["host", "origin", "cookie", "authorization", "content-length"])
def test_headers_that_come_twice(name):
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"127.0.0.1:8521"), *2 * [(name.encode(), b"127.0.0.1:8521")]],
    }
    refusal = judge(Request.of(scope), DOOR)
    assert refusal and refusal.status == 400


@pytest.mark.parametrize(
    "path",
    [b"//evil", b"/a//b", b"/../etc/passwd", b"/a/..", b"/./a", b"/%2e%2e/x", b"/%2E/x", b"/a%2fb", b"/a%5cb", b"/a\\b"]
    + [
        b"/%00",
        b"/a%0ab",
        b"/a%7f",
        b"/%",
        b"/%2",
        b"/%zz",
        b"a",
        b"",
        b"http://evil/",
        b"/\xc3\xa9",
        b"/a b",
        b"/" + b"a" * 5000,
    ],
)
def test_paths_that_try_to_be_another(path):
    assert status("GET", path, OWN) in (400, 414)


@pytest.mark.parametrize(
    "path", [b"/", b"/runs/demo-swift.otter", b"/a%20b", b"/_nicegui/3.18.0/x.js", b"/%C3%A9", b"/.a", b"/a..b"]
)
def test_paths_of_ours(path):
    assert status("GET", path, OWN) is None


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", ""])
def test_methods_that_nobody_needs(method):
    assert status(method, b"/", US) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "WEBSOCKET"])
def test_what_changes_something_says_where_it_comes_from(method):
    assert status(method, b"/", OWN) == 403
    assert status(method, b"/", US) is None
    assert status(method, b"/", {**OWN, "authorization": "Bearer x"}) is None, "a program; its token is looked at later"
    for origin in (
        "null",
        "http://evil.example",
        "http://127.0.0.1:8522",
        "https://127.0.0.1:8521",
        "http://127.0.0.1",
        "file://",
    ):
        assert status(method, b"/", {**OWN, "origin": origin}) == 403
        assert status(method, b"/", {**OWN, "origin": origin, "authorization": "Bearer x"}) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "odd"])
def test_other_sites_may_lead_here_and_nothing_else(site):
    follow = {**OWN, "sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert status("GET", b"/", follow) is None
    for part in ("iframe", "image", "script", "empty", "embed"):
        assert status("GET", b"/", {**follow, "sec-fetch-dest": part}) == 403
    assert status("GET", b"/", {**follow, "sec-fetch-mode": "no-cors"}) == 403
    assert status("POST", b"/", {**follow, **US}) == 403


def test_our_own_pages():
    assert status("GET", b"/", {**OWN, "sec-fetch-site": "none"}) is None
    assert status("POST", b"/", {**US, "sec-fetch-site": "same-origin"}) is None


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (None, "/"),
        ("", "/"),
        ("/runs/demo?tab=log#x", "/runs/demo?tab=log#x"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("/\t/evil.example", "/"),
        ("runs", "/"),
    ],
)
def test_where_a_login_may_lead(text, target):
    assert safe_next(text) == target


@given(
    st.binary(max_size=60), st.dictionaries(st.sampled_from(["host", "origin", "sec-fetch-site"]), st.text(max_size=30))
)
def test_anything_gets_an_answer(path, headers):
    request = Request("GET", path, b"", headers)
    refusal = judge(request, DOOR)
    assert refusal is not None or headers["host"].lower() in DOOR.hosts
    assert replace(request, headers={**headers, "content-length": "x"}).length > 1 << 60
