"""Requests that are accepted or refused before authentication."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlworkbench.ui.request_policy import AccessPolicy, Request, check_request, safe_next, strip_secret
from mlworkbench.ui.security_headers import content_security_policy

POLICY = AccessPolicy(frozenset({"127.0.0.1:8521", "localhost:8521", "[::1]:8521"}), "mlw_8521")
HEADERS = {"host": "127.0.0.1:8521"}
SAME_ORIGIN = {**HEADERS, "origin": "http://127.0.0.1:8521"}


def status(method: str, path: bytes, headers: dict[str, str], duplicates: tuple[str, ...] = ()) -> int | None:
    refusal = check_request(Request(method, path, b"", headers, duplicates), POLICY)
    return refusal.status if refusal else None


@pytest.mark.parametrize("host", ["127.0.0.1:8521", "LOCALHOST:8521", "[::1]:8521"])
def test_accepted_host_names(host):
    assert status("GET", b"/", {"host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example:8521", "127.0.0.1", "127.0.0.1:80", "localhost:85210", "localhost:8521.evil.example"]
    + ["evil.example#127.0.0.1:8521", "127.0.0.1:8521@evil.example", "a/?x=127.0.0.1:8521", "localhost:8521 "]
    + ["0.0.0.0:8521", "[::]:8521", "127.1:8521", "2130706433:8521", "localhost.:8521"],
)
def test_foreign_host_names_are_refused(host):
    assert status("GET", b"/", {"host": host}) == 421


SECRET = "0123456789abcdef" * 2
SECRET_POLICY = replace(POLICY, secret=SECRET)


def resolve(host: str, path: bytes = b"/runs") -> Request:
    return strip_secret(Request("GET", path, b"", {"host": host}), SECRET_POLICY)


@pytest.mark.parametrize("port", [":8521", ":9000", ""])
def test_secret_host_name_at_forwarded_port(port):
    request = resolve(f"{SECRET.upper()}.localhost{port}")
    assert request.private and request.base == "" and check_request(request, SECRET_POLICY) is None


@pytest.mark.parametrize("host", ["127.0.0.1:8521", "127.0.0.1:9000", "localhost:9000", "[::1]:9000"])
def test_secret_path_at_forwarded_port(host):
    request = resolve(host, f"/{SECRET}/runs".encode())
    assert (request.path, request.base, request.private) == (b"/runs", f"/{SECRET}", True)
    assert check_request(request, SECRET_POLICY) is None


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
def test_other_addresses_are_not_private(host, path):
    assert not resolve(host, path).private
    assert (
        host.endswith("localhost:8521") or host == "127.0.0.1:8521" or check_request(resolve(host, path), SECRET_POLICY)
    )


def test_nothing_is_private_without_a_secret():
    for host, path in ((".localhost:8521", b"/"), ("localhost:8521", b"//runs"), ("localhost:8521", b"/")):
        assert not strip_secret(Request("GET", path, b"", {"host": host}), POLICY).private


def test_rebound_name_is_refused_below_secret_path():
    refusal = check_request(resolve("evil.example:8521", f"/{SECRET}/runs".encode()), SECRET_POLICY)
    assert refusal and refusal.status == 421


def test_csp_names_only_the_host_of_the_request():
    assert f"connect-src 'self' ws://{SECRET}.localhost:9000;" in content_security_policy(f"{SECRET}.localhost:9000")
    assert "connect-src 'self';" in content_security_policy("") and "connect-src 'self';" in content_security_policy(
        "[::1]:8521"
    )


def test_request_without_host():
    assert status("GET", b"/", {}) == 421


@pytest.mark.parametrize("name", ["host", "origin", "cookie", "authorization", "content-length"])
def test_duplicate_headers_are_refused(name):
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", b"127.0.0.1:8521"), *2 * [(name.encode(), b"127.0.0.1:8521")]],
    }
    refusal = check_request(Request.from_scope(scope), POLICY)
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
def test_ambiguous_paths_are_refused(path):
    assert status("GET", path, HEADERS) in (400, 414)


@pytest.mark.parametrize(
    "path", [b"/", b"/runs/demo-swift.otter", b"/a%20b", b"/_nicegui/3.18.0/x.js", b"/%C3%A9", b"/.a", b"/a..b"]
)
def test_accepted_paths(path):
    assert status("GET", path, HEADERS) is None


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", ""])
def test_unsupported_methods_are_refused(method):
    assert status(method, b"/", SAME_ORIGIN) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "WEBSOCKET"])
def test_unsafe_methods_need_origin_or_token(method):
    assert status(method, b"/", HEADERS) == 403
    assert status(method, b"/", SAME_ORIGIN) is None
    assert status(method, b"/", {**HEADERS, "authorization": "Bearer x"}) is None, (
        "a program; its token is checked later"
    )
    for origin in (
        "null",
        "http://evil.example",
        "http://127.0.0.1:8522",
        "https://127.0.0.1:8521",
        "http://127.0.0.1",
        "file://",
    ):
        assert status(method, b"/", {**HEADERS, "origin": origin}) == 403
        assert status(method, b"/", {**HEADERS, "origin": origin, "authorization": "Bearer x"}) == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "odd"])
def test_other_sites_may_only_link_to_pages(site):
    follow = {**HEADERS, "sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert status("GET", b"/", follow) is None
    for part in ("iframe", "image", "script", "empty", "embed"):
        assert status("GET", b"/", {**follow, "sec-fetch-dest": part}) == 403
    assert status("GET", b"/", {**follow, "sec-fetch-mode": "no-cors"}) == 403
    assert status("POST", b"/", {**follow, **SAME_ORIGIN}) == 403


def test_same_origin_requests_are_accepted():
    assert status("GET", b"/", {**HEADERS, "sec-fetch-site": "none"}) is None
    assert status("POST", b"/", {**SAME_ORIGIN, "sec-fetch-site": "same-origin"}) is None


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
def test_redirect_target_after_login(text, target):
    assert safe_next(text) == target


@given(
    st.binary(max_size=60), st.dictionaries(st.sampled_from(["host", "origin", "sec-fetch-site"]), st.text(max_size=30))
)
def test_any_request_is_checked(path, headers):
    request = Request("GET", path, b"", headers)
    refusal = check_request(request, POLICY)
    assert refusal is not None or headers["host"].lower() in POLICY.hosts
    assert replace(request, headers={**headers, "content-length": "x"}).length > 1 << 60
