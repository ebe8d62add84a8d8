"""A purge and a run that starts meanwhile: the survey is old by then, and nothing of the run may be deleted."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attach.purge import FETCHED, Options, make_plan
from mlworkbench.client_identity import Client
from mlworkbench.history.store import History
from mlworkbench.hosts.survey import ask_survey
from mlworkbench.paths import UserPaths
from mlworkbench.remote import answers, verbs
from mlworkbench.remote import purge as purging
from mlworkbench.remote.clients import greet
from mlworkbench.remote.shared import machine, store_lock
from mlworkbench.remote.shared.failure import failure, refusal
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.store_lock import relying_on_store, removing_from_store

ME, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    """A machine that two laptops use, with one run that has ended and is fetched, code and an environment."""
    monkeypatch.setattr(store_lock, "_PATIENCE", 0.0)
    made = Root(str(tmp_path / "root"))
    greet(made, {"id": ME, "name": "me@a"})
    greet(made, {"id": OTHER, "name": "you@b"})
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


class Here:
    """The agent, without a connection."""

    identity = "ada@far:22"

    def __init__(self, root: Root) -> None:
        self._root = root

    def ask(self, request: Any, body: bytes = b"", patience: float = 0.0) -> dict[str, Any]:
        return answers.answer(answers.Talk(self._root, None), dict(request), body)


def plan(root: Root, tmp_path: Path):
    (tmp_path / "here" / "runs").mkdir(parents=True)
    history = History(UserPaths(tmp_path / "here"))
    try:
        return make_plan(ask_survey(Here(root), sizes=False), history, Client(ME, "me@a"), Options())
    finally:
        history.close()


@pytest.mark.parametrize("owner", [ME, OTHER])
def test_a_run_that_went_on_after_the_survey_stops_a_purge(root, tmp_path, owner):
    """It had nothing to fetch, then ran and ended while the user read the question."""
    run = root.run("new")
    if owner == ME:
        put_run(root, "new", ME, claimed=False)
    else:
        os.makedirs(run.path)  # its submit has not written the spec yet
    found = plan(root, tmp_path)
    assert {one.run.id: one.state for one in found.runs} == {"new": FETCHED, "old": FETCHED}
    if owner == ME:
        Path(run.claim).mkdir()
        Path(run.owner).write_text("{}")
    else:
        put_run(root, "new")
    reply = Here(root).ask(found.request())
    assert reply == refusal(failure("agent-error", "runs have changed since they were listed: new"))
    assert os.path.exists(run.outputs + "/model") and os.path.exists(root.run("old").path), "nothing was removed"


def test_a_purge_of_what_was_listed(root, tmp_path):
    os.makedirs(root.run("empty").path)
    reply = Here(root).ask(plan(root, tmp_path).request())
    assert reply["ok"] and reply["left"] == ["clients", "root.json"], reply


def test_a_run_that_starts_during_a_purge_keeps_what_it_uses(root, tmp_path, monkeypatch):
    """One that an older mlw starts, which takes no lock."""
    held = []

    def slowly(path: str) -> None:
        put_run(root, "new")
        held.append(machine.lock(root.run("new").lock))
        remove_run(path)

    remove_run = purging.remove_run
    monkeypatch.setattr(purging, "remove_run", slowly)
    reply = Here(root).ask(plan(root, tmp_path).request())
    os.close(held[0])
    assert reply["ok"] is False and "new" in reply["problem"], reply
    assert os.path.isdir(root.lib + "/one") and os.path.isdir(root.envs + "/one")


def test_a_purge_keeps_starts_and_uploads_out(root, tmp_path, monkeypatch):
    alone = []

    def look(path: str) -> None:
        with removing_from_store(root) as free:
            alone.append(free)

    monkeypatch.setattr(purging, "remove_run", look)
    request = plan(root, tmp_path).request()
    Here(root).ask(request)
    assert alone == [False], "the purge holds the lock"
    with relying_on_store(root):
        reply = Here(root).ask(request)
    assert reply["ok"] is False and reply["problem"] == "an upload, a start, or a cleanup is in progress"


@pytest.mark.parametrize("verb", ["start", "build"])
def test_a_start_holds_the_lock_until_it_is_answered(root, monkeypatch, verb):
    alone = []

    def act(*_: Any) -> dict[str, Any]:
        with removing_from_store(root) as free:
            alone.append(free)
        return {"ok": True}

    monkeypatch.setitem(verbs.VERBS, verb, act)
    assert Here(root).ask({"do": verb, "run": "old", "words": ["n"], "message": {}}) == {"ok": True}
    assert alone == [False]
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
        with relying_on_store(root):
            holding.set()
            done.wait(30)

    waiter = threading.Thread(target=rely)
    with removing_from_store(root) as alone:
        assert alone
        monkeypatch.setattr(store_lock, "_open", tell)
        waiter.start()
        assert opened.wait(30)
        os.unlink(os.path.join(root.path, "store.lock"))
    assert holding.wait(30)
    with removing_from_store(root) as alone:
        assert not alone
    done.set()
    waiter.join(30)
