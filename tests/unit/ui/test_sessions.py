"""Who comes in, and with what: cookies beside those of others, passwords in any script, names of a machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.ui.admission import Door, Request, judge
from mlworkbench.ui.errands import Errands
from mlworkbench.ui.login import Login, Password
from mlworkbench.ui.sessions import Sessions


def asking(**headers: str) -> Request:
    return Request("GET", b"/", b"", headers, private=True)


def test_cookies_of_other_programs_keep_nobody_out(tmp_path):
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    ours = f"mlw_8521={sessions.begin()}"
    for cookie in (ours, f'prefs={{"a": 1}}; {ours}', f"a[0]=1; {ours}; b", f"=; ;{ours}", f'x="a;b"; {ours}'):
        assert sessions.knows(asking(cookie=cookie)), cookie
    for cookie in ("", "mlw_8521=", "mlw_8521=x", f"{ours}x", ours.replace("8521", "8522")):
        assert not sessions.knows(asking(cookie=cookie)), cookie


def test_cookies_of_our_name_keep_nobody_out(tmp_path):
    """Another port of this machine can set some for a longer path, and the browser sends those first."""
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    ours = f"mlw_8521={sessions.begin()}"
    tossed = "; ".join(f"mlw_8521=x{number}" for number in range(200))
    for cookie in (f"{tossed}; {ours}", f"{ours}; {tossed}", f"mlw_8521=; {ours}"):
        assert sessions.knows(asking(cookie=cookie))
    assert not sessions.knows(asking(cookie=tossed))
    sessions.end(asking(cookie=f"{tossed}; {ours}"))
    assert not sessions.knows(asking(cookie=ours))


def test_a_session_counts_at_the_secret_address_only(tmp_path):
    sessions = Sessions(tmp_path / "sessions.json", "mlw_8521")
    request = asking(cookie=f"mlw_8521={sessions.begin()}")
    assert sessions.knows(request) and not sessions.knows(replace(request, private=False))
    token = replace(request, headers={"authorization": f"Bearer {sessions.token}"}, private=False)
    assert sessions.knows(token), "programs use the numeric address"


def test_a_session_counts_at_its_own_port_and_ends_for_good(tmp_path):
    file = tmp_path / "sessions.json"
    here, there = Sessions(file, "mlw_8521"), Sessions(file, "mlw_8522")
    value, other = here.begin(), there.begin()
    assert not Sessions(file, "mlw_8522").knows(asking(cookie=f"mlw_8522={value}"))
    here.end(asking(cookie=f"mlw_8521={value}"))
    there.begin()  # which must not bring back what the other has ended
    assert not Sessions(file, "mlw_8521").knows(asking(cookie=f"mlw_8521={value}"))
    assert Sessions(file, "mlw_8522").knows(asking(cookie=f"mlw_8522={other}"))


def test_a_server_that_starts_ends_no_session_of_one_that_runs(tmp_path):
    file = tmp_path / "sessions.json"
    sessions = Sessions(file, "mlw_8521")
    value = sessions.begin()
    file.unlink()  # another server starts
    sessions.begin()
    assert sessions.knows(asking(cookie=f"mlw_8521={value}"))


@pytest.mark.parametrize("password", ["plain", "pässwörd", "п€-密", "a+b %&=;"])
def test_a_password_may_have_any_letters(tmp_path, password):
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
def test_wrong_passwords_do_not_pile_up(tmp_path, monkeypatch, guesses, other):
    """Of one machine, a few may wait; the others are refused at once. Other machines are not kept out.

    A machine has a whole /64 network of IPv6 addresses.
    """
    monkeypatch.setattr("mlworkbench.ui.login._PAUSE", 1000.0)
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
        while sum(one.done() for one in flood) < 96:
            await asyncio.wait([one for one in flood if not one.done()], return_when=asyncio.FIRST_COMPLETED)
        assert {one.result() for one in flood if one.done()} == {429}
        assert await status(guesses[0], "right") == 429 and await status(other, "right") == 200
        for one in (guess, *flood):
            one.cancel()
        await asyncio.gather(guess, *flood, return_exceptions=True)
        assert await status(guesses[0], "right") == 200

    asyncio.run(asyncio.wait_for(all_of_them(), 60))


def test_a_machine_is_spoken_to_by_the_address_that_was_asked():
    anywhere = Door(frozenset({"box:8521"}), "mlw_8521", anywhere=True)
    one = Door(frozenset({"box:8521"}), "mlw_8521")

    def status(door: Door, host: str, server: str, origin: str | None = None) -> int | None:
        headers = {"host": host, **({"origin": origin} if origin else {})}
        refusal = judge(Request("GET", b"/", b"", headers, server=server), door)
        return refusal.status if refusal else None

    assert status(anywhere, "10.0.0.7:8521", "10.0.0.7:8521") is None
    assert status(anywhere, "10.0.0.7:8521", "10.0.0.7:8521", "http://10.0.0.7:8521") is None
    assert status(anywhere, "10.0.0.8:8521", "10.0.0.7:8521") == 421
    assert status(anywhere, "evil.example:8521", "10.0.0.7:8521") == 421
    assert status(anywhere, "box:8521", "10.0.0.7:8521", "http://10.0.0.7:8521") == 403
    assert status(one, "10.0.0.7:8521", "10.0.0.7:8521") == 421


@pytest.mark.parametrize("word", ["a\0b", "a\ud800b", "x" * 10_000_000])
def test_words_that_no_program_can_be_given_are_refused(word):
    with pytest.raises(UsageError):
        asyncio.run(Errands().start("history", "rename", "x", word))
    with pytest.raises(UsageError):
        asyncio.run(Errands().start("computetarget", "attach", word, secret=word))
