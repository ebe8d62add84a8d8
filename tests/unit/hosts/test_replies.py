"""Malformed replies of a broken or hostile machine raise a clear error everywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attachments import Attachment
from mlworkbench.environment_builds import build_in_advance
from mlworkbench.errors import HostError, MlwError
from mlworkbench.follow import Follower
from mlworkbench.history.store import History
from mlworkbench.hosts.channel import Channel
from mlworkbench.hosts.host_facts import Facts
from mlworkbench.hosts.snapshot_upload import _check_plan
from mlworkbench.hosts.ssh_host import SshHost
from mlworkbench.model import Compute
from mlworkbench.paths import UserPaths
from mlworkbench.runfiles.clean_remote import RemoteCleaner
from mlworkbench.targets.machine_check import machine_findings
from mlworkbench.targets.machine_probe import probe_machine
from mlworkbench.targets.target import Target, UploadSource
from tests.unit.history.test_run_state import SPEC
from tests.unit.hosts.test_channel import FAKE, HELLO

NONSENSE: list[Any] = [None, 5, -1, 1e300, True, "x", "\ud800\0", [], [[1]], {}, {"a": {}}, 10**4000]


@pytest.fixture
def answering_host(tmp_path, monkeypatch):
    """Return a function that creates an SSH host whose agent answers every request with one message."""
    monkeypatch.setattr("mlworkbench.hosts.ssh_connection.runtime_folder", lambda: Path(tmp_path))
    channels: list[Channel] = []

    def fake(message: Any, hello: Any = HELLO) -> SshHost:
        host = SshHost(Attachment(tmp_path, "eve@far:22", address="far", username="eve", port=22), UserPaths(tmp_path))
        code = f"greet()\nwhile sys.stdin.buffer.read(1): frame(json.loads({json.dumps(message)!r}))"
        text = FAKE.replace("HELLO", repr(hello)) + code

        def start() -> Channel:
            channels.append(Channel([sys.executable, "-c", text], "77"))
            channels[-1].handshake(20)
            return channels[-1]

        monkeypatch.setattr(host, "_connect_agent", start)
        return host

    yield fake
    for channel in channels:
        channel.close()


@pytest.mark.parametrize("answer", [{"ok": True}, {"ok": True, "exists": 1, "claimed": 1}, {"ok": True, "exists": "x"}])
def test_news_with_missing_fields(answering_host, answer):
    with pytest.raises(HostError, match=r"eve@far:22 sent a malformed reply"):
        answering_host(answer).news("r", {"log": 0}, 100)


@pytest.mark.parametrize("facts", [None, 5, "x", [], [["a", 1]]])
def test_malformed_facts(answering_host, facts):
    with pytest.raises(HostError, match="malformed reply"):
        answering_host({"ok": True, "facts": facts}).facts()
    with pytest.raises(HostError, match="malformed reply"):
        probe_machine(answering_host({"ok": True, "time": 1.0, "facts": facts}), None)


@pytest.mark.parametrize("moment", ["x", [], {}, 10**4000, True], ids=lambda value: repr(value)[:20])
def test_malformed_clock(answering_host, moment):
    with pytest.raises(HostError, match="malformed reply"):
        probe_machine(answering_host({"ok": True, "time": moment, "facts": {}}), None)


def test_facts_of_a_wrong_type_stay_unknown():
    for nonsense in NONSENSE:
        for name in Facts.__dataclass_fields__:
            inner = dict.fromkeys(("free", "total", "version", "error", "uid", "name", "way", "running"), nonsense)
            for value in (nonsense, inner):
                facts = Facts.from_json({name: value})
                machine_findings(facts, Compute("far", "remotedocker", "far"), None, lambda size: f"{size:.1f} B")
    assert Facts.from_json({"user": {"uid": "0", "name": 5}, "cpu": {"count": True}}) == Facts()
    assert Facts.from_json({"memory": {"total": 5}, "os": {"name": "x"}}).memory.total == 5


@pytest.mark.parametrize("root", ["/a\0b", "/a\nb", "/\ud800", "relative", "/" + "a" * 5000, None, 5])
def test_malformed_folders(answering_host, root):
    with pytest.raises(HostError, match="invalid folder"):
        answering_host({}, {**HELLO, "root": root}).connect()


@pytest.mark.parametrize("heartbeat", ["x", [], 1e300, 10**4000, -5], ids=lambda value: repr(value)[:20])
def test_malformed_heartbeats(tmp_path, heartbeat):
    (tmp_path / "runs").mkdir()
    history = History(UserPaths(tmp_path))
    spec, _ = history.add(SPEC)
    target = Target(ConstantHost({"ok": True, "state": "elsewhere", "heartbeat": heartbeat}))
    follower = Follower(history, history.get(spec.id), target)
    follower.run = history.update(spec.id, lambda run: run)
    try:
        assert follower.refresh().contact.startswith(("no contact", "started on another machine"))
    finally:
        history.close()


class ConstantHost:
    """A host that answers every request with the same message."""

    is_remote = True
    identity = "eve@far:22"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def ask(self, request: Any, body: bytes = b"", timeout: float = 0.0) -> Any:
        return self._answer

    def call(self, verb: str, run_id: str, arguments: Any, message: Any) -> Any:
        return self._answer

    def news(self, run_id: str, offsets: Any, limit: int, wait: float = 0.0) -> Any:
        from mlworkbench.hosts.host import News

        return News({}, exists=True, claimed=True, supervised=False)

    def send_packages(self, packages: Any, progress: Any = None) -> None:
        pass


def error_message(action: Any) -> str:
    try:
        action()
    except MlwError as error:
        return error.message
    return ""


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda value: repr(value)[:20])
def test_all_other_answers(tmp_path, nonsense):
    lock = {"kind": "managed", "digest": "0" * 64, "conda": [], "pip": [], "python": {}}
    (tmp_path / "runs").mkdir()
    history = History(UserPaths(tmp_path))
    cleaner = RemoteCleaner(history, ConstantHost(None), lambda run: True)
    uploads = UploadSource(history.paths.root, lambda lock, answer: {})
    for key in ("ok", "kinds", "removed", "problems", "state", "offset", "said", "problem", "lacks", "claimed"):
        for ok in (True, False):
            cleaner._host = host = ConstantHost({"ok": ok, "kinds": {}, "removed": {}, key: nonsense})
            for action in (
                cleaner.find,
                cleaner.remove,
                lambda host=host: build_in_advance(host, lock, None, uploads, lambda data: None),
                lambda host=host: Target(host).adopt("r", None),
                lambda host=host: Target(host).cancel("r", "me", None),
            ):
                assert error_message(action).isprintable()
    history.close()


@pytest.mark.parametrize("have", [[[0, 1e999]], [[1e999, 0]], [[0]], 5, [[-1, 0]], [["9" * 5000, 1]], [[0, "x"]]])
def test_malformed_upload_plans(have):
    with pytest.raises(HostError, match="invalid list of missing files"):
        _check_plan({"missing": [[0, 1]], "have": have}, [("a" * 64, 5)])
