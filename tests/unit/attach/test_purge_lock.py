"""A run that starts during a purge: the list of runs is outdated, and no file of the new run may be deleted."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attach.purge_plan import FETCHED, Options, make_plan
from mlworkbench.client_identity import Client
from mlworkbench.history.store import History
from mlworkbench.hosts.root_contents import fetch_survey
from mlworkbench.paths import UserPaths
from mlworkbench.remote import handlers, run_control
from mlworkbench.remote import root_purge as purging
from mlworkbench.remote.client_registry import register_client
from mlworkbench.remote.shared import machine, store_lock
from mlworkbench.remote.shared.failure import failure, failure_answer
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.store_lock import removing_from_store, using_store

ME, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A machine that two laptops use, with a finished and fetched run, code, and an environment."""
    monkeypatch.setattr(store_lock, "_TIMEOUT", 0.0)
    made = Root(str(tmp_path / "root"))
    register_client(made, {"id": ME, "name": "me@a"})
    register_client(made, {"id": OTHER, "name": "you@b"})
    put_run(made, "old", OTHER)
    Path(made.run("old").fetched).mkdir()
    (Path(made.run("old").fetched) / f"{OTHER}.json").write_text("{}")
    for place in (made.lib, made.envs):
        (Path(place) / "one").mkdir(parents=True)
    return made


def put_run(root: Root, name: str, client: str = OTHER, claimed: bool = True) -> None:
    run = root.run(name)
    Path(run.outputs).mkdir(parents=True)
    (Path(run.outputs) / "model").write_text("the only copy")
    Path(run.spec).write_text(json.dumps({"id": name, "client": client, "project_id": "p"}))
    if claimed:
        Path(run.claim).mkdir()
        Path(run.owner).write_text("{}")


class DirectHost:
    """A host that calls the agent's handlers directly, without a connection."""

    identity = "ada@far:22"

    def __init__(self, root: Root) -> None:
        self._root = root

    def ask(self, request: Any, body: bytes = b"", timeout: float = 0.0) -> dict[str, Any]:
        return handlers.handle_request(handlers.Connection(self._root, None), dict(request), body)


def plan(root: Root, tmp_path: Path):
    (tmp_path / "here" / "runs").mkdir(parents=True)
    history = History(UserPaths(tmp_path / "here"))
    try:
        return make_plan(fetch_survey(DirectHost(root), sizes=False), history, Client(ME, "me@a"), Options())
    finally:
        history.close()


@pytest.mark.parametrize("owner", [ME, OTHER])
def test_a_run_that_went_on_after_the_survey_stops_a_purge(root, tmp_path, owner):
    """The run had no results when it was listed. It ran and ended before the user confirmed the purge."""
    run = root.run("new")
    if owner == ME:
        put_run(root, "new", ME, claimed=False)
    else:
        os.makedirs(run.path)  # the submit has not written the spec yet
    found = plan(root, tmp_path)
    assert {one.run.id: one.state for one in found.runs} == {"new": FETCHED, "old": FETCHED}
    if owner == ME:
        Path(run.claim).mkdir()
        Path(run.owner).write_text("{}")
    else:
        put_run(root, "new")
    reply = DirectHost(root).ask(found.request())
    assert reply == failure_answer(failure("agent-error", "runs have changed since they were listed: new"))
    assert os.path.exists(run.outputs + "/model") and os.path.exists(root.run("old").path), "nothing was removed"


def test_a_job_that_waits_or_runs_elsewhere_stops_a_purge(root, tmp_path):
    """No process of this machine holds the lock of the run: its job waits in a queue, or runs on another node."""
    put_run(root, "job", claimed=False)
    Path(root.run("job").handle).write_text('{"starter": "slurm", "handle": {}}')
    request = plan(root, tmp_path).request()
    assert DirectHost(root).ask(request)["problem"] == "runs are active: job"
    Path(root.run("job").events).write_text('{"kind": "finished"}\n')
    assert "active" not in DirectHost(root).ask(request)["problem"]


def test_a_purge_of_what_was_listed(root, tmp_path):
    os.makedirs(root.run("empty").path)
    reply = DirectHost(root).ask(plan(root, tmp_path).request())
    assert reply["ok"] and reply["left"] == ["clients", "root.json"], reply


def test_a_run_that_starts_during_a_purge_keeps_what_it_uses(root, tmp_path, monkeypatch):
    """An older version of mlw starts the run and does not take the lock."""
    held = []

    def remove_after_start(path: str) -> None:
        put_run(root, "new")
        held.append(machine.lock(root.run("new").lock))
        remove_run(path)

    remove_run = purging.remove_run
    monkeypatch.setattr(purging, "remove_run", remove_after_start)
    reply = DirectHost(root).ask(plan(root, tmp_path).request())
    os.close(held[0])
    assert reply["ok"] is False and "new" in reply["problem"], reply
    assert os.path.isdir(root.lib + "/one") and os.path.isdir(root.envs + "/one")


def test_a_purge_keeps_starts_and_uploads_out(root, tmp_path, monkeypatch):
    was_free = []

    def look(path: str) -> None:
        with removing_from_store(root) as free:
            was_free.append(free)

    monkeypatch.setattr(purging, "remove_run", look)
    request = plan(root, tmp_path).request()
    DirectHost(root).ask(request)
    assert was_free == [False], "the purge holds the lock"
    with using_store(root):
        reply = DirectHost(root).ask(request)
    assert reply["ok"] is False and reply["problem"] == "an upload, a start, or a cleanup is in progress"


@pytest.mark.parametrize("verb", ["start", "build"])
def test_a_start_holds_the_lock_until_it_is_answered(root, monkeypatch, verb):
    was_free = []

    def act(*_: Any) -> dict[str, Any]:
        with removing_from_store(root) as free:
            was_free.append(free)
        return {"ok": True}

    monkeypatch.setitem(run_control.COMMANDS, verb, act)
    assert DirectHost(root).ask({"do": verb, "run": "old", "words": ["n"], "message": {}}) == {"ok": True}
    assert was_free == [False]
    with removing_from_store(root) as free:
        assert free


def test_whoever_waited_for_a_lock_that_was_removed_takes_the_new_one(root, monkeypatch):
    opened, holding, done = threading.Event(), threading.Event(), threading.Event()
    really_open = store_lock._open

    def tell(place: Root) -> int:
        try:
            return really_open(place)
        finally:
            opened.set()

    def rely() -> None:
        with using_store(root):
            holding.set()
            done.wait(30)

    waiter = threading.Thread(target=rely)
    with removing_from_store(root) as was_free:
        assert was_free
        monkeypatch.setattr(store_lock, "_open", tell)
        waiter.start()
        assert opened.wait(30)
        os.unlink(os.path.join(root.path, "store.lock"))
    assert holding.wait(30)
    with removing_from_store(root) as was_free:
        assert not was_free
    done.set()
    waiter.join(30)
