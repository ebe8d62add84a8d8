"""Replies of the wrong shape, from a machine that is broken or hostile: one sentence about it, wherever they arrive."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attachments import Attachment
from mlworkbench.errors import HostError, MlwError
from mlworkbench.follow import Follower
from mlworkbench.history.store import History
from mlworkbench.hosts.channel import Channel
from mlworkbench.hosts.facts import Facts
from mlworkbench.hosts.ssh import SshHost
from mlworkbench.hosts.upload import _checked
from mlworkbench.model import Compute
from mlworkbench.paths import UserPaths
from mlworkbench.prepare import build_ahead
from mlworkbench.runfiles.clean_elsewhere import CleanerElsewhere
from mlworkbench.targets.check import judge
from mlworkbench.targets.remote import look
from mlworkbench.targets.target import Stock, Target
from tests.unit.test_channel import FAKE, HELLO
from tests.unit.test_fold import SPEC

NONSENSE: list[Any] = [None, 5, -1, 1e300, True, "x", "\ud800\0", [], [[1]], {}, {"a": {}}, 10**4000]


@pytest.fixture
def answering(tmp_path, monkeypatch):
    """An SSH host whose agent answers every request with one message."""
    monkeypatch.setattr("mlworkbench.hosts.master.runtime_folder", lambda: Path(tmp_path))
    made: list[Channel] = []

    def fake(message: Any, hello: Any = HELLO) -> SshHost:
        host = SshHost(Attachment(tmp_path, "eve@far:22", address="far", username="eve", port=22), UserPaths(tmp_path))
        code = f"greet()\nwhile sys.stdin.buffer.read(1): frame(json.loads({json.dumps(message)!r}))"
        text = FAKE.replace("HELLO", repr(hello)) + code

        def start() -> Channel:
            made.append(Channel([sys.executable, "-c", text], "77"))
            made[-1].greet(20)
            return made[-1]

        monkeypatch.setattr(host, "_greet", start)
        return host

    yield fake
    for channel in made:
        channel.close()


@pytest.mark.parametrize("answer", [{"ok": True}, {"ok": True, "exists": 1, "claimed": 1}, {"ok": True, "exists": "x"}])
def test_news_without_what_it_must_hold(answering, answer):
    with pytest.raises(HostError, match=r"eve@far:22 sent a malformed reply"):
        answering(answer).news("r", {"log": 0}, 100)


@pytest.mark.parametrize("facts", [None, 5, "x", [], [["a", 1]]])
def test_facts_that_are_none(answering, facts):
    with pytest.raises(HostError, match="malformed reply"):
        answering({"ok": True, "facts": facts}).facts()
    with pytest.raises(HostError, match="malformed reply"):
        look(answering({"ok": True, "time": 1.0, "facts": facts}), None)


@pytest.mark.parametrize("moment", ["x", [], {}, 10**4000, True], ids=lambda one: repr(one)[:20])
def test_a_clock_that_is_none(answering, moment):
    with pytest.raises(HostError, match="malformed reply"):
        look(answering({"ok": True, "time": moment, "facts": {}}), None)


def test_facts_of_the_wrong_kind_stay_unknown():
    for nonsense in NONSENSE:
        for name in Facts.__dataclass_fields__:
            inner = dict.fromkeys(("free", "total", "version", "error", "uid", "name", "way", "running"), nonsense)
            for value in (nonsense, inner):
                found = Facts.from_json({name: value})
                judge(found, Compute("far", "remotedocker", "far"), None, lambda size: f"{size:.1f} B")
    assert Facts.from_json({"user": {"uid": "0", "name": 5}, "cpu": {"count": True}}) == Facts()
    assert Facts.from_json({"memory": {"total": 5}, "os": {"name": "x"}}).memory.total == 5


@pytest.mark.parametrize("root", ["/a\0b", "/a\nb", "/\ud800", "relative", "/" + "a" * 5000, None, 5])
def test_folders_that_are_none(answering, root):
    with pytest.raises(HostError, match="invalid folder"):
        answering({}, {**HELLO, "root": root}).connect()


@pytest.mark.parametrize("heartbeat", ["x", [], 1e300, 10**4000, -5], ids=lambda one: repr(one)[:20])
def test_signs_of_life_that_are_none(tmp_path, heartbeat):
    (tmp_path / "runs").mkdir()
    history = History(UserPaths(tmp_path))
    spec, _ = history.add(SPEC)
    target = Target(Saying({"ok": True, "state": "elsewhere", "heartbeat": heartbeat}))
    follower = Follower(history, history.get(spec.id), target)
    follower.run = history.note(spec.id, lambda run: run)
    try:
        assert follower.refresh().contact.startswith(("no contact", "started on another machine"))
    finally:
        history.close()


class Saying:
    """A host that answers every request the same."""

    distant = True
    identity = "eve@far:22"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def ask(self, request: Any, body: bytes = b"", patience: float = 0.0) -> Any:
        return self._answer

    def call(self, verb: str, run_id: str, words: Any, message: Any) -> Any:
        return self._answer

    def news(self, run_id: str, offsets: Any, limit: int, wait: float = 0.0) -> Any:
        from mlworkbench.hosts.host import News

        return News({}, exists=True, claimed=True, supervised=False)

    def send_packages(self, packages: Any, progress: Any = None) -> None:
        pass


def said_by(work: Any) -> str:
    try:
        work()
    except MlwError as error:
        return error.message
    return ""


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda one: repr(one)[:20])
def test_every_other_answer(tmp_path, nonsense):
    lock = {"kind": "managed", "digest": "0" * 64, "conda": [], "pip": [], "python": {}}
    (tmp_path / "runs").mkdir()
    history = History(UserPaths(tmp_path))
    cleaner = CleanerElsewhere(history, Saying(None), lambda run: True)
    stock = Stock(history.paths.root, lambda lock, answer: {})
    for key in ("ok", "kinds", "removed", "problems", "state", "offset", "said", "problem", "lacks", "claimed"):
        for ok in (True, False):
            cleaner._host = host = Saying({"ok": ok, "kinds": {}, "removed": {}, key: nonsense})
            for work in (
                cleaner.find,
                cleaner.remove,
                lambda host=host: build_ahead(host, lock, None, stock, lambda data: None),
                lambda host=host: Target(host).adopt("r", None),
                lambda host=host: Target(host).cancel("r", "me", None),
            ):
                assert said_by(work).isprintable()
    history.close()


@pytest.mark.parametrize("have", [[[0, 1e999]], [[1e999, 0]], [[0]], 5, [[-1, 0]], [["9" * 5000, 1]], [[0, "x"]]])
def test_plans_of_an_upload(have):
    with pytest.raises(HostError, match="invalid list of missing files"):
        _checked({"missing": [[0, 1]], "have": have}, [("a" * 64, 5)])
