"""What every host must do. One suite, run on every implementation: this machine, and another one by SSH."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attachments import Attachments
from mlworkbench.errors import HostError
from mlworkbench.hosts.host import Host
from mlworkbench.hosts.local import LocalHost
from mlworkbench.hosts.ssh import SshHost
from mlworkbench.paths import UserPaths
from mlworkbench.remote.folder import Root
from tests.supervisor.conftest import Place, end_marked, until


class DistantPlace(Place):
    """The folder of a user on a machine reached by SSH; what a test puts there is made that user's."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine.home)
        self.root = machine.home / ".mlw"
        self.machine = machine

    def run(self, run_id: str, script: str, **changes: Any) -> Path:
        folder = super().run(run_id, script, python="/usr/bin/python3", **changes)
        self.settle()
        return folder

    def settle(self) -> None:
        subprocess.run(["chown", "-R", f"{self.machine.uid}:{self.machine.uid}", str(self.root)], check=True)


@pytest.fixture(params=["local", "ssh"])
def there(request, tmp_path, monkeypatch):
    """A host and the place behind it."""
    if request.param == "local":
        place = Place(tmp_path)
        place.root.mkdir(mode=0o700)
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MLW_RUN_ID": "an-outer-run"}
        yield LocalHost(Root(str(place.root)), environment), place
        end_marked(tmp_path)
        return
    laptop, machine = request.getfixturevalue("laptop"), request.getfixturevalue("machine")()
    host = by_ssh(laptop, machine, monkeypatch)
    yield host, DistantPlace(machine)
    host.disconnect()


def by_ssh(laptop: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> SshHost:
    """A host whose user has the machine's key and has met it before."""
    become(laptop, monkeypatch)
    paths = UserPaths(laptop.store)
    what = {"address": machine.address, "username": machine.user, "port": machine.port, **changes}
    draft = Attachments(paths).draft(
        f"{what['username']}@{what['address']}:{what['port']}", **{"key": f"file:{machine.key}", **what}
    )
    draft.known_hosts.write_text(f"[{what['address']}]:{what['port']} {machine.host_key.partition(' ')[2]}")
    if what["port"] == 22:
        draft.known_hosts.write_text(machine.host_key)
    return SshHost(Attachments(paths).save(draft), paths)


def become(laptop: Any, monkeypatch: pytest.MonkeyPatch) -> UserPaths:
    """This process is that person's, with no agent of the developer's."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "MLW_HOME", "PYTHON_KEYRING_BACKEND"):
        monkeypatch.setenv(name, laptop.env[name])
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    laptop.store.mkdir(mode=0o700, exist_ok=True)
    return UserPaths(laptop.store)


def test_call_starts_a_run_and_news_tells_of_it(there):
    host, place = there
    folder = place.run("r", "print('hello')")
    assert host.call("start", "r", ["n"], {"secrets": {}})["claimed"] is True
    until(lambda: b'"finished"' in host.news("r", {"events.jsonl": 0}, 1 << 20).parts["events.jsonl"])
    news = host.news("r", {"log": 0, "events.jsonl": 0}, 1 << 20)
    assert news.parts["log"] == b"hello\n"
    assert news.exists
    assert (folder / "exit.json").exists()


def test_news_begins_at_the_offset_and_ends_at_the_limit(there):
    host, place = there
    folder = place.run("r", "")
    (folder / "log").write_bytes(b"0123456789")
    place_owned(place)
    assert host.news("r", {"log": 4}, 3).parts["log"] == b"456"
    assert host.news("r", {"log": 10}, 3).parts["log"] == b""
    assert host.news("r", {"log": 11}, 3).parts["log"] == b""


def test_news_finds_metric_files(there):
    host, place = there
    folder = place.run("r", "")
    (folder / "metrics").mkdir()
    (folder / "metrics" / "17-a").write_bytes(b"{}\n")
    place_owned(place)
    assert host.news("r", {}, 100).parts == {"metrics/17-a": b"{}\n"}
    assert host.news("r", {"metrics/17-a": 3}, 100).parts == {"metrics/17-a": b""}


def test_a_run_that_is_not_there(there):
    host, place = there
    news = host.news("nosuch", {"log": 0}, 100)
    assert (news.exists, news.claimed, news.supervised, news.parts) == (False, False, False, {"log": b""})
    assert host.call("start", "nosuch", ["n"], {})["ok"] is False
    # Without the identity of the folder that took it on, a home that is not mounted would look the same.
    assert host.call("adopt", "nosuch", [], {})["state"] == "away"
    place.run("other", "")
    assert host.call("adopt", "nosuch", [], {})["state"] == "away"


def test_supervised_as_long_as_somebody_watches(there):
    host, place = there
    folder = place.run("r", "import time; print('up'); time.sleep(1000)")
    assert not host.news("r", {}, 1).supervised
    host.call("start", "r", ["n"], {"secrets": {}})
    assert host.news("r", {}, 1).supervised
    host.call("cancel", "r", ["me", "0"], {})
    place.ended(folder)
    until(lambda: not host.news("r", {}, 1).supervised)


def test_secrets_reach_the_child_and_no_file(there):
    host, place = there
    folder = place.run("r", "import os; print(len(os.environ['TOKEN']), os.environ.get('MLW_SUPERVISOR'))")
    host.call("start", "r", ["n"], {"secrets": {"TOKEN": "canary-canary"}})
    place.ended(folder)
    assert (folder / "log").read_text() == "13 None\n"
    until(lambda: not host.news("r", {}, 1).supervised)  # it moves files until then
    assert not [one for one in place.root.rglob("*") if one.is_file() and b"canary-canary" in one.read_bytes()]


def test_news_waits_for_something_new(there):
    host, place = there
    place.run("r", "import os, time; time.sleep(0.5); os.write(1, b'late\\n'); time.sleep(1000)")
    host.call("start", "r", ["n"], {"secrets": {}})
    for _ in range(100):
        news = host.news("r", {"log": 0}, 100, wait=30)
        if news.parts["log"]:
            break
    assert news.parts["log"] == b"late\n"
    host.call("cancel", "r", ["me", "0"], {})


def test_a_spec_from_elsewhere_makes_the_run(there, tmp_path):
    host, place = there
    folder = place.run("r", "print('hello')")
    spec = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").unlink()
    folder.rmdir()
    spec["environment"]["MLW_RUN_FOLDER"] = str(folder)
    message = {"secrets": {}, "spec": spec}
    assert host.call("start", "r", ["n"], message)["claimed"] is True
    assert host.call("start", "r", ["n"], message)["claimed"] is True  # asked again: the answer may have been lost
    assert host.call("start", "r", ["other"], message)["claimed"] is False
    place.ended(folder)
    assert (folder / "log").read_text() == "hello\n"


def test_files_of_a_run(there):
    host, place = there
    folder = place.run("r", "")
    (folder / "outputs.json").write_text("0123456789")
    place_owned(place)
    assert host.read_file("r", "outputs.json", 4, 3) == b"456"
    assert host.read_file("r", "build.log", 0, 3) == b""
    with pytest.raises((HostError, ValueError)):
        host.read_file("r", "gate.json", 0, 3)


def test_outputs_come_file_after_file_from_their_offsets(there):
    host, place = there
    folder = place.run("r", "")
    outputs = folder / "work" / "outputs"
    (outputs / "deep").mkdir(parents=True)
    large = os.urandom(9 << 20)
    (outputs / "large").write_bytes(large)
    (outputs / "deep" / "small").write_bytes(b"small")
    (outputs / "link").symlink_to("/etc/passwd")
    place_owned(place)
    asked = [
        ("deep/small", 1, 4), ("gone", 0, 9), ("large", 5, 9 << 20), ("link", 0, 9), ("../../spec.json", 0, 9),
    ]  # fmt: skip
    found: dict[int, bytes] = {}
    for index, data in host.outputs("r", asked):
        found[index] = found.get(index, b"") + data
    assert found == {0: b"mal", 2: large[5:]}  # no more than was recorded, whatever has been added since
    next(iter(host.outputs("r", asked)))  # broken off
    assert host.news("r", {}, 1).exists


def test_code_gets_there(there, tmp_path):
    host, place = there
    store = Root(str(tmp_path / "store") if host.distant else str(place.root))
    digest = write_snapshot(store, {"a/b.py": b"print(1)", "again.py": b"print(1)", "large": os.urandom(5 << 20)})
    steps: list[tuple[int, int]] = []
    host.send_code(digest, store, lambda done, total: steps.append((done, total)))
    assert (Path(host.root.path) / "snapshots" / f"{digest}.json").is_file()
    assert not host.distant or steps[-1] == ((5 << 20) + 8, (5 << 20) + 8)


def write_snapshot(store: Root, files: dict[str, bytes]) -> str:
    entries = []
    for path, data in files.items():
        sha256 = hashlib.sha256(data).hexdigest()
        blob = Path(store.blob(sha256))
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        entries.append([path, sha256, len(data), 0o644])
    manifest = {"version": 1, "files": sorted(entries), "links": [], "folders": []}
    text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    Path(store.snapshots).mkdir(parents=True, exist_ok=True)
    Path(store.snapshot(digest)).write_bytes(text)
    return digest


def place_owned(place: Place) -> None:
    if isinstance(place, DistantPlace):
        place.settle()


def test_any_other_request(there):
    host, _ = there
    assert host.ask({"do": "hello"})["ok"] is True
    assert host.ask({"do": "nonsense"})["ok"] is False


def test_it_is_a_host(there):
    host: Host = there[0]
    host.warm_up()
    assert host.root.path and host.identity
    host.close()
    host.close()
    assert host.ask({"do": "hello"})["ok"] is True


def test_the_in_run_library_is_there(there):
    host, _ = there
    host.ask({"do": "hello"})
    assert os.path.isfile(os.path.join(host.inrun(), "mlworkbench", "__init__.py"))


def test_news_is_a_value(there):
    host, _ = there
    news = host.news("nosuch", {}, 1)
    assert replace(news, exists=True) != news
