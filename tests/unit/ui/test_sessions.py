"""Sessions and logins: foreign cookies, passwords with any characters, host names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.ui.login import Login, Password
from mlworkbench.ui.operation_runner import OperationRunner
from mlworkbench.ui.request_policy import AccessPolicy, Request, check_request
from mlworkbench.ui.sessions import Sessions


def make_request(**headers: str) -> Request:
    return Request("GET", b"/", b"", headers, private=True)


def test_cookies_of_other_programs_do_not_interfere(tmp_path):
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    ours = f"mlw_8521={sessions.create()}"
    for cookie in (ours, f'prefs={{"a": 1}}; {ours}', f"a[0]=1; {ours}; b", f"=; ;{ours}", f'x="a;b"; {ours}'):
        assert sessions.is_authenticated(make_request(cookie=cookie)), cookie
    for cookie in ("", "mlw_8521=", "mlw_8521=x", f"{ours}x", ours.replace("8521", "8522")):
        assert not sessions.is_authenticated(make_request(cookie=cookie)), cookie


def test_foreign_cookies_with_same_name_do_not_interfere(tmp_path):
    """A server on another port of this machine can set cookies for a longer path, which browsers send first."""
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    ours = f"mlw_8521={sessions.create()}"
    foreign = "; ".join(f"mlw_8521=x{number}" for number in range(200))
    for cookie in (f"{foreign}; {ours}", f"{ours}; {foreign}", f"mlw_8521=; {ours}"):
        assert sessions.is_authenticated(make_request(cookie=cookie))
    assert not sessions.is_authenticated(make_request(cookie=foreign))
    sessions.end(make_request(cookie=f"{foreign}; {ours}"))
    assert not sessions.is_authenticated(make_request(cookie=ours))


def test_session_is_valid_only_at_secret_address(tmp_path):
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    request = make_request(cookie=f"mlw_8521={sessions.create()}")
    assert sessions.is_authenticated(request) and not sessions.is_authenticated(replace(request, private=False))
    token = replace(request, headers={"authorization": f"Bearer {sessions.token}"}, private=False)
    assert sessions.is_authenticated(token), "programs use the numeric address"


def test_session_is_valid_only_at_its_port_and_ends_permanently(tmp_path):
    file = tmp_path / "sessions.json"
    first, second = Sessions(file, "mlw_8521"), Sessions(file, "mlw_8522")
    value, other = first.create(), second.create()
    assert not Sessions(file, "mlw_8522").is_authenticated(make_request(cookie=f"mlw_8522={value}"))
    first.end(make_request(cookie=f"mlw_8521={value}"))
    second.create()  # this must not restore the session that the other server ended
    assert not Sessions(file, "mlw_8521").is_authenticated(make_request(cookie=f"mlw_8521={value}"))
    assert Sessions(file, "mlw_8522").is_authenticated(make_request(cookie=f"mlw_8522={other}"))


def test_starting_server_keeps_sessions_of_running_one(tmp_path):
    file = tmp_path / "sessions.json"
    sessions = Sessions(file, "mlw_8521")
    value = sessions.create()
    file.unlink()  # a starting server deletes the file
    sessions.create()
    assert sessions.is_authenticated(make_request(cookie=f"mlw_8521={value}"))


@pytest.mark.parametrize("password", ["plain", "pässwörd", "п€-密", "a+b %&=;"])
def test_password_with_any_characters(tmp_path, password):
    login = Login(Sessions(tmp_path / "sessions.json", "mlw_1"), "/secret", Password(password))
    body = urlencode({"password": password, "next": "/runs"}).encode()
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(login(Request("POST", b"/login", b"", {}), receive, send))
    assert sent[0]["status"] == 200
    (cookie,) = [value for name, value in sent[0]["headers"] if name == b"set-cookie"]
    assert b"; Path=/secret/;" in cookie and b"url=/secret/runs" in sent[1]["body"], (
        "it was typed at the numeric address"
    )


@pytest.mark.parametrize(
    ("guesses", "other"),
    [
        (["10.0.0.1"] * 100, "10.0.0.2"),
        ([f"2001:db8:0:1::{at:x}" for at in range(1, 101)], "2001:db8:0:2::1"),
        ([f"fe80::{at:x}%eth0" for at in range(1, 101)], "10.0.0.2"),
        (["::ffff:10.0.0.1"] * 50 + ["10.0.0.1"] * 50, "::ffff:10.0.0.2"),
    ],
    ids=["IPv4", "IPv6", "link-local", "mapped"],
)
def test_wrong_passwords_are_limited(tmp_path, monkeypatch, guesses, other):
    """A few attempts of one machine may wait; further ones are refused immediately. Other machines can still log in.

    An IPv6 machine controls a whole /64 network.
    """
    monkeypatch.setattr("mlworkbench.ui.login._DELAY", 1000.0)
    login = Login(Sessions(tmp_path / "sessions.json", "mlw_1"), "/secret", Password("right"))

    async def status(client: str, password: str) -> int:
        sent = []

        async def receive():
            return {"type": "http.request", "body": urlencode({"password": password}).encode(), "more_body": False}

        async def send(message):
            sent.append(message)

        await login(Request("POST", b"/login", b"", {}, client=client), receive, send)
        return sent[0]["status"]

    async def all_of_them():
        guess = asyncio.create_task(status(guesses[0], "wrong"))
        await asyncio.wait((guess,), timeout=1)
        assert not guess.done(), "its answer waits"
        assert await asyncio.wait_for(status(guesses[0], "right"), 20) == 200, "and nothing else does"
        flood = [asyncio.create_task(status(client, "wrong")) for client in guesses]
        while sum(task.done() for task in flood) < 96:
            await asyncio.wait([task for task in flood if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in flood if task.done()} == {429}
        assert await status(guesses[0], "right") == 429 and await status(other, "right") == 200
        for task in (guess, *flood):
            task.cancel()
        await asyncio.gather(guess, *flood, return_exceptions=True)
        assert await status(guesses[0], "right") == 200

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


def test_host_must_match_connected_address():
    all_interfaces = AccessPolicy(frozenset({"box:8521"}), "mlw_8521", all_interfaces=True)
    single_host = AccessPolicy(frozenset({"box:8521"}), "mlw_8521")

    def status(policy: AccessPolicy, host: str, server: str, origin: str | None = None) -> int | None:
        headers = {"host": host, **({"origin": origin} if origin else {})}
        refusal = check_request(Request("GET", b"/", b"", headers, server=server), policy)
        return refusal.status if refusal else None

    assert status(all_interfaces, "10.0.0.7:8521", "10.0.0.7:8521") is None
    assert status(all_interfaces, "10.0.0.7:8521", "10.0.0.7:8521", "http://10.0.0.7:8521") is None
    assert status(all_interfaces, "10.0.0.8:8521", "10.0.0.7:8521") == 421
    assert status(all_interfaces, "evil.example:8521", "10.0.0.7:8521") == 421
    assert status(all_interfaces, "box:8521", "10.0.0.7:8521", "http://10.0.0.7:8521") == 403
    assert status(single_host, "10.0.0.7:8521", "10.0.0.7:8521") == 421


@pytest.mark.parametrize("argument", ["a\0b", "a\ud800b", "x" * 10_000_000])
def test_arguments_with_invalid_characters_are_refused(argument):
    with pytest.raises(UsageError):
        asyncio.run(OperationRunner().start("history", "rename", "x", argument))
    with pytest.raises(UsageError):
        asyncio.run(OperationRunner().start("computetarget", "attach", argument, secret=argument))
