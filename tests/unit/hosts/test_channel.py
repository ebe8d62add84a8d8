"""Hostile machines: whatever they answer, the client reports an error and stays usable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mlworkbench.attachments import Attachment
from mlworkbench.errors import HostError, Unreachable
from mlworkbench.hosts.bundle import SOURCE
from mlworkbench.hosts.channel import MAX_NOISE, AgentNotStarted, Channel
from mlworkbench.hosts.snapshot_upload import Upload
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.paths import UserPaths
from mlworkbench.remote import handlers
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.message_frames import ConnectionClosed, ConnectionTimeout, FrameError
from mlworkbench.remote.shared.protocol_versions import PROTOCOL

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
def fake_channel():
    channels: list[Channel] = []

    def start(code: str) -> Channel:
        text = FAKE.replace("HELLO", repr(HELLO)) + code
        channels.append(Channel([sys.executable, "-c", text], "77"))
        return channels[-1]

    yield start
    for channel in channels:
        channel.close()


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("mlworkbench.hosts.ssh_connection.runtime_folder", lambda: Path(tmp_path))
    return SshHost(Attachment(tmp_path, "a@h:22", address="h", username="a", port=22), UserPaths(tmp_path))


def test_output_before_the_marker_is_skipped(fake_channel):
    channel = fake_channel(
        'out.write(b"\\x1b]0;title\\x07 welcome\\nMLW-AGENT 78\\n" * 100); greet(); sys.stdin.read()'
    )
    channel.handshake(10)
    assert channel.hello == HELLO


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('sys.stderr.write("no shell for you"); sys.exit(1)', AgentNotStarted),
        ('out.write(b"x" * 10**7)', AgentNotStarted),
        ("time.sleep(60)", ConnectionTimeout),
        ('out.write(b"\\nMLW-AGENT 77\\n" + b"\\xff" * 100); out.flush(); time.sleep(60)', FrameError),
        ('out.write(b"\\nMLW-AGENT 77\\n"); frame([1]); time.sleep(60)', FrameError),
        (
            'out.write(b"\\nMLW-AGENT 77\\n"); frame({"ok": False, "problem": "\\x1b[31mfull"}); time.sleep(60)',
            HostError,
        ),
        ('out.write(b"\\nMLW-AGENT 77\\n"); frame({})', HostError),
        ('out.write(b"\\nMLW-AGENT 77\\n")', ConnectionClosed),
    ],
)
def test_invalid_agents(fake_channel, code, kind):
    with pytest.raises(kind) as raised:
        fake_channel(code).handshake(0.5 if kind is ConnectionTimeout else 20)
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) <= MAX_NOISE + 70000


@pytest.mark.parametrize(
    ("version", "hint"), [(PROTOCOL + 1, "upgrade mlw on this machine"), (PROTOCOL - 1, "~/.mlw/lib"), ("\x1b", "lib")]
)
def test_agent_with_another_protocol(fake_channel, version, hint):
    answer = {**HELLO, "protocol": version}
    with pytest.raises(HostError, match="the agent on the target uses protocol .*, but this mlw uses") as raised:
        fake_channel(f'out.write(b"\\nMLW-AGENT 77\\n"); frame({answer!r}); sys.stdin.read()').handshake(20)
    assert hint in str(raised.value.hint)
    assert "\x1b" not in str(raised.value)


def test_agent_refuses_a_client_with_another_protocol(tmp_path):
    """The agent refuses a newer client, reports its own protocol version, and writes no files."""
    talk = handlers.Connection(Root(str(tmp_path / "root")), None)
    answer = handlers.handle_request(talk, {"do": "hello", "protocol": PROTOCOL + 1, "client": {"id": "0" * 32}}, b"")
    assert (answer["ok"], answer["protocol"]) == (False, PROTOCOL)
    assert not (tmp_path / "root").exists()
    assert handlers.handle_request(talk, {"do": "hello", "protocol": PROTOCOL}, b"")["ok"]


def test_newer_client_with_this_agent(tmp_path, monkeypatch):
    """Client and agent are real; only the client's protocol version differs."""
    monkeypatch.setattr("mlworkbench.hosts.channel.PROTOCOL", PROTOCOL + 1)
    channel = Channel([sys.executable, "-I", "-S", str(SOURCE / "agent.py"), "77", str(tmp_path)], "77")
    try:
        with pytest.raises(HostError, match=f"uses protocol {PROTOCOL}, but this mlw uses protocol {PROTOCOL + 1}"):
            channel.handshake(20)
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
def test_unrequested_news(fake_channel, host, answer):
    channel = fake_channel(f"greet()\nsys.stdin.buffer.read(8)\n{answer}\nsys.stdin.read()")
    channel.handshake(20)
    with pytest.raises(FrameError) as raised:
        host._read_news(channel, {"do": "news", "wait": 0}, {"log": 0})
    assert not isinstance(raised.value, ConnectionClosed)


def test_news_with_a_reported_problem(fake_channel, host):
    channel = fake_channel('greet()\nframe({"ok": False, "problem": "\\x1b[31m no"})\nsys.stdin.read()')
    channel.handshake(20)
    with pytest.raises(HostError, match=r"\^\[\[31m no"):
        host._read_news(channel, {"do": "news", "wait": 0}, {"log": 0})


def test_agent_that_never_reads_times_out(fake_channel, monkeypatch):
    monkeypatch.setattr("mlworkbench.hosts.channel.SEND_TIMEOUT", 0.3)
    channel = fake_channel("greet()\ntime.sleep(60)")
    channel.handshake(20)
    with pytest.raises(ConnectionTimeout):
        send_many_bytes(channel)


def send_many_bytes(channel: Channel) -> None:
    for _ in range(20):
        channel.send({"more": True}, bytes(4 << 20))


EMPTY = 'for _ in range(500): frame({"more": True, "ok": True, "name": "log", "file": 0})'
BYTES = 'for _ in range(500): frame({"more": True, "ok": True, "name": "log", "file": 0}, b"12345")'


@pytest.mark.parametrize("answer", [EMPTY, BYTES])
@pytest.mark.parametrize("request_kind", ["news", "pipelined", "file", "outputs", "upload"])
def test_endless_answer_is_rejected(fake_channel, host, monkeypatch, request_kind, answer):
    # The fake agent keeps the connection open after its answer. Otherwise, the client might report a lost connection.
    channel = fake_channel(f"greet()\nsys.stdin.buffer.read(8)\n{answer}\nsys.stdin.buffer.read()")
    channel.handshake(20)
    monkeypatch.setattr(host, "_open_channel", lambda: channel)
    monkeypatch.setattr(host, "_with_retry", lambda action: action(channel))
    monkeypatch.setattr("mlworkbench.hosts.ssh_host._MAX_BYTES", 1000)
    news = {"do": "news", "run": "r", "offsets": {"log": 0}, "limit": 9, "wait": 0}
    if request_kind == "pipelined":
        host._pipelined = {**news, "run": "another"}
    requests = {
        "news": lambda: host._ask_news(channel, news),
        "pipelined": lambda: host._ask_news(channel, news),
        "file": lambda: host.read_file("r", "log", 0, 9),
        "outputs": lambda: list(host.outputs("r", [("model", 10, 20), ("other", 0, 5)])),
        "upload": lambda: Upload(channel, Root("/none"), None, None)._send_blobs([], {}),
    }
    if request_kind in ("file", "pipelined"):
        channel.send({})  # the fake agent waits for eight bytes before it answers
    with pytest.raises((FrameError, Unreachable)) as raised:
        requests[request_kind]()
    assert not isinstance(raised.value, ConnectionClosed) and "lost the connection" not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        'for n in range(500):\n    frame({"more": True, "name": "metrics/%d" % n}, b"1"); time.sleep(0.02)',
        'out.write((400).to_bytes(4, "big") + bytes(4))\n'
        'for _ in range(400):\n    out.write(b" "); out.flush(); time.sleep(0.02)',
    ],
    ids=["frames", "bytes"],
)
def test_agent_that_sends_too_slowly_times_out(fake_channel, answer):
    channel = fake_channel(f"greet()\n{answer}")
    channel.handshake(20)
    with pytest.raises(ConnectionTimeout):
        for _ in channel.stream(0.5, 1 << 20):
            pass
