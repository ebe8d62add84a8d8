"""A hostile machine at the other end: whatever it answers, the client says so in a sentence and stays usable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlworkbench.attachments import Attachment
from mlworkbench.errors import HostError, Unreachable
from mlworkbench.hosts.channel import MOST_NOISE, Channel, NotGreeted
from mlworkbench.hosts.library import SOURCE
from mlworkbench.hosts.ssh import SshHost
from mlworkbench.hosts.upload import Upload
from mlworkbench.paths import UserPaths
from mlworkbench.remote import answers
from mlworkbench.remote.shared.frames import Closed, FrameError, Silent
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.versions import PROTOCOL

HELLO = {"ok": True, "root": "/home/x/.mlw", "python": "/usr/bin/python3"}
FAKE = """
import sys, json, time
out = sys.stdout.buffer
def frame(message, body=b""):
    text = json.dumps(message).encode()
    out.write(len(text).to_bytes(4, "big") + len(body).to_bytes(4, "big") + text + body)
    out.flush()
def greet():
    out.write(b"\\nMLW-AGENT 77\\n")
    frame(HELLO)
"""


@pytest.fixture
def faking():
    made: list[Channel] = []

    def fake(code: str) -> Channel:
        text = FAKE.replace("HELLO", repr(HELLO)) + code
        made.append(Channel([sys.executable, "-c", text], "77"))
        return made[-1]

    yield fake
    for channel in made:
        channel.close()


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("mlworkbench.hosts.master.runtime_folder", lambda: Path(tmp_path))
    return SshHost(Attachment(tmp_path, "a@h:22", address="h", username="a", port=22), UserPaths(tmp_path))


def test_noise_before_the_mark(faking):
    channel = faking('out.write(b"\\x1b]0;title\\x07 welcome\\nMLW-AGENT 78\\n" * 100); greet(); sys.stdin.read()')
    channel.greet(10)
    assert channel.hello == HELLO


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('sys.stderr.write("no shell for you"); sys.exit(1)', NotGreeted),
        ('out.write(b"x" * 10**7)', NotGreeted),
        ("time.sleep(60)", Silent),
        ('out.write(b"\\nMLW-AGENT 77\\n" + b"\\xff" * 100); out.flush(); time.sleep(60)', FrameError),
        ('out.write(b"\\nMLW-AGENT 77\\n"); frame([1]); time.sleep(60)', FrameError),
        (
            'out.write(b"\\nMLW-AGENT 77\\n"); frame({"ok": False, "problem": "\\x1b[31mfull"}); time.sleep(60)',
            HostError,
        ),
        ('out.write(b"\\nMLW-AGENT 77\\n"); frame({})', HostError),
        ('out.write(b"\\nMLW-AGENT 77\\n")', Closed),
    ],
)
def test_agents_that_are_none(faking, code, kind):
    with pytest.raises(kind) as told:
        faking(code).greet(0.5 if kind is Silent else 20)
    assert "\x1b" not in str(told.value)
    assert len(str(told.value)) <= MOST_NOISE + 70000


@pytest.mark.parametrize(
    ("theirs", "hint"), [(PROTOCOL + 1, "upgrade mlw on this machine"), (PROTOCOL - 1, "~/.mlw/lib"), ("\x1b", "lib")]
)
def test_an_agent_of_another_protocol(faking, theirs, hint):
    answer = {**HELLO, "protocol": theirs}
    with pytest.raises(HostError, match="the agent on the target uses protocol .*, but this mlw uses") as told:
        faking(f'out.write(b"\\nMLW-AGENT 77\\n"); frame({answer!r}); sys.stdin.read()').greet(20)
    assert hint in str(told.value.hint)
    assert "\x1b" not in str(told.value)


def test_an_agent_refuses_a_client_of_another_protocol(tmp_path):
    """As it would answer a newer client: that one reports both numbers, and nothing was written for it."""
    talk = answers.Talk(Root(str(tmp_path / "root")), None)
    answer = answers.answer(talk, {"do": "hello", "protocol": PROTOCOL + 1, "client": {"id": "0" * 32}}, b"")
    assert (answer["ok"], answer["protocol"]) == (False, PROTOCOL)
    assert not (tmp_path / "root").exists()
    assert answers.answer(talk, {"do": "hello", "protocol": PROTOCOL}, b"")["ok"]


def test_a_newer_client_meets_this_agent(tmp_path, monkeypatch):
    """Both as they are, but for the number that the client knows."""
    monkeypatch.setattr("mlworkbench.hosts.channel.PROTOCOL", PROTOCOL + 1)
    channel = Channel([sys.executable, "-I", "-S", str(SOURCE / "agent.py"), "77", str(tmp_path)], "77")
    try:
        with pytest.raises(HostError, match=f"uses protocol {PROTOCOL}, but this mlw uses protocol {PROTOCOL + 1}"):
            channel.greet(20)
    finally:
        channel.close()


@pytest.mark.parametrize(
    "answer",
    [
        'frame({"more": True, "name": "../../etc/passwd"}, b"x")',
        'frame({"more": True, "name": "metrics/../x"}, b"x")',
        'frame({"more": True, "name": "spec.json"}, b"x")',
        'frame({"more": True}, b"x")',
        'frame({"more": True, "name": "log", "packed": True}, b"not packed")',
        'import zlib; frame({"more": True, "name": "log", "packed": True}, zlib.compress(bytes(10**8), 1))',
        'while True: frame({"more": True, "name": "log"}, bytes(4 << 20))',
        "n = 0\nwhile True:\n    n += 1\n    frame({'more': True, 'name': 'metrics/%d' % n}, b'x')",
        'out.write((9 << 20).to_bytes(4, "big") + bytes(4)); out.flush(); sys.stdin.read()',
    ],
)
def test_news_that_nobody_asked_for(faking, host, answer):
    channel = faking(f"greet()\nsys.stdin.buffer.read(8)\n{answer}\nsys.stdin.read()")
    channel.greet(20)
    with pytest.raises(FrameError) as told:
        host._read_news(channel, {"do": "news", "wait": 0}, {"log": 0})
    assert not isinstance(told.value, Closed)


def test_an_answer_without_what_it_must_hold(faking, host):
    channel = faking('greet()\nframe({"ok": False, "problem": "\\x1b[31m no"})\nsys.stdin.read()')
    channel.greet(20)
    with pytest.raises(HostError, match=r"x1b\[31m no"):
        host._read_news(channel, {"do": "news", "wait": 0}, {"log": 0})


def test_one_that_never_reads_is_given_up(faking, monkeypatch):
    monkeypatch.setattr("mlworkbench.hosts.channel.SENDING", 0.3)
    channel = faking("greet()\ntime.sleep(60)")
    channel.greet(20)
    with pytest.raises(Silent):
        send_much(channel)


def send_much(channel: Channel) -> None:
    for _ in range(20):
        channel.send({"more": True}, bytes(4 << 20))


EMPTY = 'for _ in range(500): frame({"more": True, "ok": True, "name": "log", "file": 0})'
BYTES = 'for _ in range(500): frame({"more": True, "ok": True, "name": "log", "file": 0}, b"12345")'


@pytest.mark.parametrize("answer", [EMPTY, BYTES])
@pytest.mark.parametrize("question", ["news", "ahead", "file", "outputs", "upload"])
def test_an_answer_that_never_ends_is_given_up(faking, host, monkeypatch, question, answer):
    # It stays until the question has been sent whole: who writes to one that has left hears that the connection broke.
    channel = faking(f"greet()\nsys.stdin.buffer.read(8)\n{answer}\nsys.stdin.buffer.read()")
    channel.greet(20)
    monkeypatch.setattr(host, "_open", lambda: channel)
    monkeypatch.setattr(host, "_twice", lambda do: do(channel))
    monkeypatch.setattr("mlworkbench.hosts.ssh._MOST_BYTES", 1000)
    news = {"do": "news", "run": "r", "offsets": {"log": 0}, "limit": 9, "wait": 0}
    if question == "ahead":
        host._ahead = {**news, "run": "another"}
    asked = {
        "news": lambda: host._ask_news(channel, news),
        "ahead": lambda: host._ask_news(channel, news),
        "file": lambda: host.read_file("r", "log", 0, 9),
        "outputs": lambda: list(host.outputs("r", [("model", 10, 20), ("other", 0, 5)])),
        "upload": lambda: Upload(channel, Root("/none"), None, None)._pour([], {}),
    }
    if question in ("file", "ahead"):
        channel.send({})  # the fake one waits for eight bytes of a question
    with pytest.raises((FrameError, Unreachable)) as told:
        asked[question]()
    assert not isinstance(told.value, Closed) and "lost the connection" not in str(told.value)


@pytest.mark.parametrize(
    "answer",
    [
        'for n in range(500):\n    frame({"more": True, "name": "metrics/%d" % n}, b"1"); time.sleep(0.02)',
        'out.write((400).to_bytes(4, "big") + bytes(4))\n'
        'for _ in range(400):\n    out.write(b" "); out.flush(); time.sleep(0.02)',
    ],
    ids=["frames", "bytes"],
)
def test_one_that_sends_next_to_nothing_is_given_up(faking, answer):
    channel = faking(f"greet()\n{answer}")
    channel.greet(20)
    with pytest.raises(Silent):
        for _ in channel.stream(0.5, 1 << 20):
            pass
