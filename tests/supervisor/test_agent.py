"""The agent as a real process connected by two pipes, on the oldest and the newest Python version."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from mlworkbench.remote.root_purge import stage_of
from mlworkbench.remote.shared.message_frames import ConnectionClosed, Pipe
from tests.interpreters import oldest_and_newest
from tests.supervisor.conftest import PYTHON, REMOTE, Place, alive, environment, until

PATIENCE = 30.0


class Agent:
    def __init__(self, place: Place, python: str = PYTHON) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-S", str(REMOTE / "agent.py"), "f00d", str(place.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=place.env,
        )
        assert self.process.stdin and self.process.stdout
        self.pipe = Pipe(self.process.stdout.fileno(), self.process.stdin.fileno())
        assert self.pipe.skip_to(b"\nMLW-AGENT f00d\n", 1000, PATIENCE) == (b"", True)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.pipe.send(request)
        return self.pipe.receive(PATIENCE)[0]

    def stream(self, request: dict[str, Any]) -> list[tuple[dict[str, Any], bytes]]:
        self.pipe.send(request)
        return self.rest()

    def rest(self) -> list[tuple[dict[str, Any], bytes]]:
        messages = [self.pipe.receive(PATIENCE)]
        while messages[-1][0].get("more"):
            messages.append(self.pipe.receive(PATIENCE))
        return messages

    def close(self) -> int:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        code = self.process.wait(30)
        self.process.stdout.close()
        return code


@pytest.fixture
def agent(place: Place) -> Iterator[Agent]:
    process = Agent(place)
    yield process
    process.close()


def manifest_of(*contents: tuple[str, bytes]) -> tuple[str, bytes]:
    files = sorted([path, hashlib.sha256(data).hexdigest(), len(data), 0o644] for path, data in contents)
    text = json.dumps({"version": 1, "files": files, "links": [], "folders": []}, separators=(",", ":")).encode()
    return hashlib.sha256(text).hexdigest(), text


@pytest.mark.parametrize(("version", "python"), oldest_and_newest((3, 8)))
def test_a_run_from_another_machine_on_old_and_new_pythons(place, version, python):
    agent = Agent(place, python)
    assert agent.ask({"do": "hello"})["version"][:2] == list(version)
    digest, text = manifest_of(("main.py", b"import os; print(os.environ['TOKEN'])"))
    folder = place.run("r", "")
    spec = {**json.loads((folder / "spec.json").read_text()), "snapshot": digest}
    (folder / "spec.json").unlink()
    folder.rmdir()
    start = {"do": "start", "run": "r", "words": ["n1"], "message": {"spec": spec, "secrets": {"TOKEN": "canary"}}}
    assert agent.ask(start) == {"ok": False, "lacks": "code"}
    assert not folder.exists()
    agent.pipe.send({"do": "code", "digest": digest})
    agent.pipe.send({}, zlib.compress(text))
    assert agent.pipe.receive(PATIENCE)[0]["missing"] == [[0, 1]]
    agent.pipe.send({}, b"import os; print(os.environ['TOKEN'])")
    assert agent.rest()[-1][0] == {"ok": True}
    assert agent.ask(start)["claimed"] is True
    place.ended(folder)
    # The response to the first start may have been lost: the same nonce gets the same response again.
    assert agent.ask(start)["claimed"] is True
    *parts, last = agent.stream({"do": "news", "run": "r", "offsets": {"log": 0, "events.jsonl": 0}, "limit": 1 << 20})
    assert parts[0][0]["name"] == "events.jsonl" and b'"finished"' in parts[0][1]
    assert [(message["name"], body) for message, body in parts][-1] == ("log", b"canary\n")
    assert last[0]["pending"] is False
    assert last[0]["ok"] and last[0]["exists"] and last[0]["claimed"]
    assert agent.close() == 0


def test_the_supervisor_outlives_the_agent_and_is_marked(place):
    folder = place.run("r", "import time; time.sleep(1000)")
    agent = Agent(place)
    pid = agent.ask({"do": "start", "run": "r", "words": ["n1"], "message": {"secrets": {}}})["pid"]
    assert agent.close() == 0
    assert alive(pid)
    assert b"MLW_SUPERVISOR=1" in environment(pid)
    place.call("cancel", "r", "me", "0")
    assert place.ended(folder)["ending"].startswith("cancelled")


def test_two_starts_get_the_umask_of_the_user(place):
    place.env["HOME"] = str(place.root)
    agent = Agent(place)
    for run in ("a", "b"):
        folder = place.run(run, "import os; open('f', 'w'); print(oct(os.stat('f').st_mode & 0o777))")
        agent.ask({"do": "start", "run": run, "words": ["n1"], "message": {"secrets": {}}})
        place.ended(folder)
        assert (folder / "log").read_text() == oct(0o666 & ~_umask()) + "\n"
    agent.close()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def test_no_zombie_is_left(place, agent):
    folder = place.run("r", "")
    pid = agent.ask({"do": "start", "run": "r", "words": ["n1"], "message": {}})["pid"]
    place.ended(folder)

    def buried() -> bool:
        agent.ask({"do": "hello"})
        return not os.path.exists(f"/proc/{pid}")

    until(buried)


def test_news_waits_until_something_is_new(place, agent):
    folder = place.run("r", "import time; print('up', flush=True); time.sleep(1000)")
    agent.ask({"do": "start", "run": "r", "words": ["n1"], "message": {}})
    place.event(folder, "started")
    until(lambda: (folder / "log").read_bytes())
    size = (folder / "events.jsonl").stat().st_size
    news = {"do": "news", "run": "r", "offsets": {"log": 3, "events.jsonl": size}, "limit": 100, "wait": 30}
    agent.pipe.send(news)
    assert not agent.pipe.is_ready(0.3)
    with (folder / "log").open("ab") as log:
        log.write(b"more\n")
    answer = agent.rest()
    assert [(message.get("name"), body) for message, body in answer][0] == ("log", b"more\n")
    # The agent stops waiting for the previous request when the next one arrives.
    agent.pipe.send({**news, "offsets": {"log": 8, "events.jsonl": size}})
    assert not agent.pipe.is_ready(0.3)
    agent.pipe.send({"do": "hello"})
    assert agent.rest()[-1][0]["supervised"] is True
    assert agent.rest()[-1][0]["ok"] is True
    place.call("cancel", "r", "me", "0")


@pytest.mark.parametrize(
    "name", ["secrets.json", "../r/log", "metrics/../spec.json", "metrics/a/b", "/etc/passwd", "claim/owner.json"]
)
def test_only_files_that_are_meant_to_be_read(place, agent, name):
    place.run("r", "")
    assert agent.stream({"do": "file", "run": "r", "name": name, "limit": 10})[-1][0]["ok"] is False
    assert agent.stream({"do": "news", "run": "r", "offsets": {name: 0}, "limit": 10})[-1][0]["ok"] is False
    assert agent.ask({"do": "hello"})["ok"]


@pytest.mark.parametrize("run", ["", "..", "../x", "a/b", "-x", ".hidden", "a\0b"])
def test_only_runs(agent, run):
    assert agent.ask({"do": "cancel", "run": run})["ok"] is False


def test_no_link_is_followed(place, agent, tmp_path):
    folder = place.run("r", "")
    (tmp_path / "secret").write_text("secret")
    (folder / "work" / "outputs").mkdir(parents=True)
    (folder / "log").symlink_to(tmp_path / "secret")
    (folder / "metrics").symlink_to(tmp_path)
    (folder / "work" / "outputs" / "link").symlink_to(tmp_path / "secret")
    (folder / "work" / "outputs" / "folder").symlink_to(tmp_path)
    os.mkfifo(folder / "work" / "outputs" / "fifo")
    (folder / "work" / "outputs" / "good").write_text("good")
    assert agent.stream({"do": "news", "run": "r", "offsets": {"log": 0}, "limit": 10})[:-1] == []
    files = [[name, 0, 10] for name in ("link", "folder/secret", "fifo", "../../../secret", "good", "")]
    answer = agent.stream({"do": "outputs", "run": "r", "files": files})
    assert [(message["file"], body) for message, body in answer[:-1]] == [(4, b"good")]


def test_what_is_asked_wrongly_does_not_end_the_conversation(agent):
    for request in (
        {},
        {"do": 7},
        {"do": "news"},
        {"do": "start", "run": "r"},
        {"do": "key", "action": "x"},
        {"do": "code"},
    ):
        assert agent.ask(request)["ok"] is False
    assert agent.ask({"do": "hello"})["ok"]


def test_garbage_ends_it(place):
    agent = Agent(place)
    os.write(agent.process.stdin.fileno(), b"GET / HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionClosed):
        agent.pipe.receive(PATIENCE)
    assert agent.close() == 1


def test_an_upload_that_was_cut_goes_on_within_a_file(place):
    large = os.urandom(3 << 20)
    digest, text = manifest_of(("large", large), ("small", b"small"))
    agent = Agent(place)
    _offer(agent, digest, text)
    agent.pipe.send({"more": True}, large[: 2 << 20])
    assert agent.close() == 0
    agent = Agent(place)
    plan = _offer(agent, digest, text)
    assert plan["have"] == [[0, 2 << 20]]
    agent.pipe.send({"more": True}, large[2 << 20 :])
    agent.pipe.send({}, b"small")
    assert agent.rest()[-1][0] == {"ok": True}
    sha256 = hashlib.sha256(large).hexdigest()
    assert (place.root / "blobs" / sha256[:2] / sha256[2:]).read_bytes() == large
    assert (place.root / "snapshots" / f"{digest}.json").read_bytes() == text
    assert not [path for path in (place.root / "blobs").iterdir() if path.name.startswith("part-")]
    agent.close()


def _offer(agent: Agent, digest: str, text: bytes) -> dict[str, Any]:
    agent.pipe.send({"do": "code", "digest": digest})
    agent.pipe.send({}, zlib.compress(text))
    return agent.pipe.receive(PATIENCE)[0]


def test_file_damaged_during_upload(place, agent):
    digest, text = manifest_of(("a", b"good"))
    _offer(agent, digest, text)
    agent.pipe.send({}, b"evil")
    assert "damaged" in agent.rest()[-1][0]["problem"]
    assert not (place.root / "snapshots" / f"{digest}.json").exists()


def test_a_snapshot_that_lost_a_file_in_a_power_cut_is_asked_for_again(place, agent):
    folder = place.run("r", "print(1)")
    spec = json.loads((folder / "spec.json").read_text())
    start = {"do": "start", "run": "s", "words": ["n"], "message": {"spec": spec}}
    blob = next((place.root / "blobs").glob("??/*"))
    blob.write_bytes(b"\0" * blob.stat().st_size)
    assert agent.ask(start) == {"ok": False, "lacks": "code"}


def test_the_marked_line(place, tmp_path):
    from mlworkbench.remote import authorized_keys

    real = tmp_path / "elsewhere"
    real.write_text("# mine\nssh-rsa AAAAmine me@home")
    real.chmod(0o640)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "authorized_keys").symlink_to(real)
    line = "ssh-ed25519 AAAAours mlworkbench-1"
    assert authorized_keys.add(line, str(tmp_path)) and not authorized_keys.add(line, str(tmp_path))
    added = real.read_text()
    assert added.startswith(f"# mine\nssh-rsa AAAAmine me@home\nrestrict {line} (") and added.endswith(")\n")
    assert real.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / ".ssh" / "authorized_keys").is_symlink()
    assert authorized_keys.remove(line, str(tmp_path)) and not authorized_keys.remove(line, str(tmp_path))
    assert real.read_text() == "# mine\nssh-rsa AAAAmine me@home", "to the last byte, which is no end of a line"
    assert authorized_keys.remove("ssh-rsa AAAAmine x", str(tmp_path)) is False
    with pytest.raises(ValueError, match="public key"):
        authorized_keys.add('ssh-ed25519 AAAA x\ncommand="evil" ssh-ed25519 BBBB y', str(tmp_path))


def test_freeing_space(place, agent):
    done, going = place.run("done", "print(1)"), place.run("going", "import time; time.sleep(1000)")
    for run in ("done", "going"):
        agent.ask({"do": "start", "run": run, "words": ["n"], "message": {}})
    place.ended(done)
    place.event(going, "started")
    until(lambda: not agent.stream({"do": "news", "run": "done", "offsets": {}, "limit": 1})[-1][0]["supervised"])
    dry = agent.ask({"do": "free", "dry_run": True})
    assert dry["removed"]["runs"]["count"] == 1 and done.exists()
    assert agent.ask({"do": "free"})["removed"] == dry["removed"]
    assert not done.exists() and going.exists()
    snapshot = json.loads((going / "spec.json").read_text())["snapshot"]
    assert [path.stem for path in (place.root / "snapshots").glob("*.json")] == [snapshot]
    assert "runs are active: going" in agent.ask({"do": "purge", "runs": {"going": "ended"}})["problem"]
    place.call("cancel", "going", "me", "0")
    place.ended(going)
    until(lambda: "not listed: going" in agent.ask({"do": "purge", "runs": {}})["problem"])
    assert going.exists()
    until(lambda: agent.ask({"do": "purge", "runs": {"going": "ended"}})["ok"])
    assert not place.root.exists()


def test_an_upload_that_was_broken_off_can_go_at_once(place, agent):
    """The files of a running upload are kept. Once the sender disconnects, even new files can be deleted."""
    large, small = os.urandom(3 << 20), b"small"
    digest, text = manifest_of(("a", small), ("large", large))
    sender = Agent(place)
    missing = _offer(sender, digest, text)["missing"]
    assert missing == [[0, 2]]
    sender.pipe.send({"more": True}, small + large[: 2 << 20])
    until(lambda: list((place.root / "blobs").glob("part-*")) and list((place.root / "blobs").glob("??/*")))
    request = {"keep": [], "runs": [], "young": 3600.0}
    busy = agent.ask({"do": "space", **request})["kinds"]["blobs"]
    assert busy["free_count"] == 0 and busy["kept"]["uploading"]["count"] == 2
    assert agent.ask({"do": "free", **request})["removed"]["blobs"]["count"] == 0
    sender.close()
    assert agent.ask({"do": "space", **request})["kinds"]["blobs"]["free_count"] == 2
    assert agent.ask({"do": "free", **request})["removed"]["blobs"]["bytes"] >= 2 << 20
    assert not list((place.root / "blobs").glob("part-*")) and not list((place.root / "blobs").glob("??/*"))


def test_only_what_carries_our_mark_is_freed(place, agent):
    done = place.run("done", "print(1)")
    agent.ask({"do": "start", "run": "done", "words": ["n"], "message": {}})
    place.ended(done)
    until(lambda: not agent.stream({"do": "news", "run": "done", "offsets": {}, "limit": 1})[-1][0]["supervised"])
    names = "runs/mine/file runs/note blobs/ab/mine blobs/part snapshots/mine.json spares/mine/file lib/mine/file"
    mine = [place.root / name for name in names.split()]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    (place.root / "runs" / "link").symlink_to(place.root / "runs" / "mine")
    assert agent.ask({"do": "free"})["removed"]["runs"]["count"] == 1
    assert not done.exists() and all(path.read_text() == "mine" for path in mine)
    assert agent.ask({"do": "purge bare", "client": ME}) == {"ok": True, "bytes": 0} and mine[0].exists()


# -- clients of a run -------------------------------------------------------------------------------------------------

ME, OTHER = "1" * 32, "2" * 32


def greeted(agent, client):
    return agent.ask({"do": "hello", "client": {"id": client, "name": f"ada@{client[:4]}"}})


def finished(place, agent, name, **changes):
    folder = place.run(name, "print(1)", **changes)
    agent.ask({"do": "start", "run": name, "words": ["n"], "message": {}})
    place.ended(folder)
    until(lambda: not agent.stream({"do": "news", "run": name, "offsets": {}, "limit": 1})[-1][0]["supervised"])
    return folder


def test_clients_runs_and_what_was_fetched(place, agent):
    for client in (ME, OTHER):
        assert greeted(agent, client)["ok"]
    done = finished(place, agent, "done", client=ME, project_name="demo", created=5.0)
    (place.root / "runs" / "b-notes").mkdir()
    (place.root / "runs" / "b-notes" / "mine").write_text("x")
    (place.root / "runs" / "z-file").write_text("x")
    (place.root / "runs" / "z-link").symlink_to("/etc")
    os.mkfifo(place.root / "runs" / "z-pipe")
    (place.root / "thesis").write_text("mine")
    answer = agent.ask({"do": "survey", "sizes": True})
    assert [(entry["id"], entry["name"]) for entry in answer["clients"]] == [(ME, "ada@1111"), (OTHER, "ada@2222")]
    assert answer["other"] == ["thesis"] and answer["more"] is False
    notes, run, *odd = answer["runs"]
    assert [(entry["id"], entry["client"], entry["going"], entry["empty"]) for entry in odd] == [
        (name, None, False, False) for name in ("z-file", "z-link", "z-pipe")
    ]
    assert (notes["client"], notes["fetched"], notes["empty"]) == (None, [], False), "nobody's, so somebody else's"
    assert (run["client"], run["project"], run["ended"], run["claimed"]) == (ME, "demo", True, True)
    assert run["bytes"] > 0 and run["changed"] > 1e9
    assert agent.ask({"do": "survey", "after": "b-notes"})["runs"][0]["id"] == "done"

    size = (done / "log").stat().st_size
    fetched = {"do": "fetched", "run": "done", "client": ME}
    assert "were fetched" in agent.ask({**fetched, "log": size - 1})["problem"]
    assert agent.ask({**fetched, "client": "../../x", "log": size})["ok"] is False
    assert agent.ask({"do": "survey"})["runs"][1]["fetched"] == []
    agent.ask({"do": "leave", "client": ME})
    assert len(agent.ask({"do": "survey"})["clients"]) == 2, "whose the unfetched run is has to be known"
    assert agent.ask({**fetched, "log": size})["ok"]
    assert agent.ask({"do": "survey"})["runs"][1]["fetched"] == [ME]
    agent.ask({"do": "leave", "client": ME})
    assert [entry["id"] for entry in agent.ask({"do": "survey"})["clients"]] == [OTHER]
    every = {entry["id"]: stage_of(entry["empty"], entry["claimed"], entry["ended"]) for entry in answer["runs"]}
    assert agent.ask({"do": "purge", "runs": every, "clients": [OTHER]})["left"] == ["thesis"]
    assert os.path.isdir("/etc")


def test_a_purge_removes_what_is_named_and_keeps_the_rest(place, agent):
    for client in (ME, OTHER):
        greeted(agent, client)
    finished(place, agent, "done")
    for name in ("share/data/precious", "homes/p1/cache", "homes/p2/cache", "thesis"):
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).write_text("x")
    purge = {"do": "purge", "runs": {"done": "ended"}, "homes": ["p1", "../thesis"], "clients": [ME]}
    answer = agent.ask(purge)
    assert answer["ok"] and answer["left"] == ["clients", "homes", "root.json", "share", "thesis"], answer
    assert sorted(path.name for path in (place.root / "homes").iterdir()) == ["p2"]
    assert agent.ask({**purge, "runs": {}, "homes": ["p2"], "shared": ["data"], "clients": [OTHER]})["left"] == [
        "thesis"
    ]


def test_a_missing_run_is_lost_only_in_the_folder_that_took_it_on(place, agent):
    folder = finished(place, agent, "done")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    root = events[0]["data"]["root"]
    assert len(root) == 32
    adopt = {"do": "adopt", "run": "gone", "words": []}
    assert agent.ask({**adopt, "message": {"root": root}})["state"] == "lost"
    assert agent.ask({**adopt, "message": {"root": "0" * 32}})["state"] == "away"
    assert agent.ask({**adopt, "message": {"root": None}})["state"] == "away"
    (place.root / "root.json").unlink()
    assert agent.ask({**adopt, "message": {"root": root}})["state"] == "away"
