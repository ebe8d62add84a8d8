"""Which runs a purge may delete, depending on their owner and results, and validation of specs from a target."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.attach.collect_results import copy_command
from mlworkbench.attach.purge_plan import EXPIRED, FETCHED, HOME_KEPT, NOT_FETCHED, RUNNING, Options, Plan, make_plan
from mlworkbench.attachments import Attachment
from mlworkbench.client_identity import Client, client_of
from mlworkbench.errors import HostError
from mlworkbench.history.store import History
from mlworkbench.hosts.replies import MalformedReply
from mlworkbench.hosts.root_contents import Survey, TargetClient, TargetFolder, TargetRun, fetch_survey
from mlworkbench.import_runs import Destination, read_spec
from mlworkbench.model import Compute, Container, Run, Status
from mlworkbench.paths import UserPaths
from mlworkbench.remote.root_purge import purge
from mlworkbench.remote.shared.layout import Root
from tests.unit.history.test_run_state import SPEC

ME, OTHER = "1" * 32, "2" * 32
NOW, DAY = 1_800_000_000.0, 86400.0
FAR = Compute("far", "remote", "far", "ada")


def target_run(name: str, client: str | None = OTHER, **changes: Any) -> TargetRun:
    given = TargetRun(name, client, "demo", "p", NOW - DAY, NOW - DAY, 5, True, True, False, False, ())
    return replace(given, **changes)


@pytest.fixture
def history(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    made = History(UserPaths(tmp_path))
    yield made
    made.close()


def make_test_plan(history: History, *runs: TargetRun, seen: float = NOW, **options: Any) -> Plan:
    clients = (TargetClient(ME, "me", NOW), TargetClient(OTHER, "other", seen))
    homes = (TargetFolder("p", 1, NOW), TargetFolder("q", 1, NOW))
    survey = Survey(NOW, runs, clients, shared=(TargetFolder("demo-1", 1, NOW),), homes=homes)
    return make_plan(survey, history, Client(ME, "me"), Options(**options))


@pytest.mark.parametrize(
    ("run", "mine", "state"),
    [
        (target_run("a"), False, NOT_FETCHED),
        (target_run("a", fetched=(OTHER,)), False, FETCHED),
        (target_run("a", fetched=(ME,)), False, NOT_FETCHED),  # only the laptop that owns the run counts
        (target_run("a", client=None), False, NOT_FETCHED),  # without an owner, the run counts as another laptop's
        (target_run("a", client=None, fetched=(OTHER,)), False, NOT_FETCHED),
        (target_run("a", client=None, empty=True), False, FETCHED),
        (target_run("a", client=ME), True, NOT_FETCHED),  # the run was removed from this laptop's history
        (target_run("a", client=ME, fetched=(ME,)), True, FETCHED),
        (target_run("a", client=ME, claimed=False), True, FETCHED),  # never started
        (target_run("a", claimed=False), False, NOT_FETCHED),  # may be about to start
        (target_run("a", is_supervised=True, fetched=(OTHER,)), False, RUNNING),
    ],
)
def test_whose_a_run_is_and_where_its_results_are(history, run, mine, state):
    [judged] = make_test_plan(history, run).runs
    assert (judged.mine, judged.state) == (mine, state)


def test_age_counts_for_laptop_and_run(history):
    old, limit = NOW - 100 * DAY, {"others": 90 * DAY}
    for run, seen, state in (
        (target_run("a", changed=old), old, EXPIRED),
        (target_run("a"), old, NOT_FETCHED),
        (target_run("a", changed=old), NOW, NOT_FETCHED),
        (target_run("a", client="3" * 32, changed=old), NOW, EXPIRED),  # its laptop is not registered
        (target_run("a", client=None, changed=old), NOW, EXPIRED),
        (target_run("a", client=ME, changed=old), old, NOT_FETCHED),
        (target_run("a", changed=NOW + DAY), old, NOT_FETCHED),  # the time is in the future: the clock was set back
    ):
        assert make_test_plan(history, run, seen=seen, **limit).runs[0].state == state, (run, seen)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "scp -r ada@far:"),
        ({"port": 2222}, "scp -r -P 2222 ada@far:"),
        ({"jump": "gate", "key": "file:/k e y"}, "scp -r -J gate -i '/k e y' ada@far:"),
        ({"address": "fe80::1"}, "scp -r 'ada@[fe80::1]:"),
    ],
)
def test_how_what_was_not_collected_is_copied(changes, words):
    found = Attachment(
        Path("/nowhere"), **{"identity": "far", "address": "far", "username": "ada", "port": 22, **changes}
    )
    run = Run(replace(SPEC, id="r", compute=FAR))
    assert copy_command(run, found).startswith(f"{words}.mlw/runs/{run.spec.folder}/work")


def test_what_is_asked_for(history):
    request = make_test_plan(history, target_run("a", fetched=(OTHER,))).request()
    assert request["runs"] == {"a": "ended"} and request["shared"] == [] and request["clients"] == [ME]
    old = NOW - 100 * DAY
    request = make_test_plan(history, target_run("a", changed=old), seen=old, others=90 * DAY, shared=True).request()
    assert request["homes"] == ["p", "q"] and request["shared"] == ["demo-1"] and request["clients"] == [ME, OTHER]


def contained(history: History, number: int, project: str, compute: Compute = FAR, origin: str | None = None) -> None:
    container = Container("docker", "docker", "image", "mlw-x", "/work")
    spec = replace(SPEC, id=f"demo-{number}", key=f"k{number}", project_id=project, compute=compute, origin=origin)
    history.add(replace(spec, container=container))


def test_container_homes_that_may_be_of_another_laptop_stay(history):
    """Another laptop uses the machine. Its runs may have been cleaned, so that only their container home is left."""
    plan = make_test_plan(history)
    assert plan.request()["homes"] == []
    assert {row["state"] for row in plan.rows() if row["kind"] == "container home"} == {HOME_KEPT}
    contained(history, 1, "p", origin="other")
    contained(history, 2, "p", compute=replace(FAR, type="local", address=None))
    assert make_test_plan(history).request()["homes"] == [], "no run of this laptop made that home"
    contained(history, 3, "p")
    assert make_test_plan(history).request()["homes"] == ["p"]
    assert make_test_plan(history, target_run("a", fetched=(OTHER,))).request()["homes"] == [], (
        "another laptop has runs of it"
    )
    assert make_test_plan(history, seen=NOW - 100 * DAY, others=90 * DAY).request()["homes"] == ["p", "q"], (
        "nobody else"
    )


def test_a_run_of_this_history_is_judged_by_what_is_here(history):
    history.add(replace(SPEC, compute=FAR))
    unmarked = target_run(SPEC.id, client=None)
    assert (
        make_test_plan(history, unmarked).runs[0].state == NOT_FETCHED
        and make_test_plan(history, unmarked).runs[0].mine
    )
    history.update(SPEC.id, lambda run: replace(run, status=Status.COMPLETED))
    assert make_test_plan(history, unmarked).runs[0].state == FETCHED
    taken = replace(SPEC, id="demo-calm-owl-2222", key="k2", compute=FAR, client=OTHER, origin="other")
    history.add(taken)
    history.update(taken.id, lambda run: replace(run, status=Status.COMPLETED))
    [judged] = make_test_plan(history, target_run(taken.id)).runs
    assert (judged.mine, judged.state) == (False, NOT_FETCHED), "a copy here does not make it ours"


def test_a_copied_data_folder_is_another_client(tmp_path):
    first = client_of(UserPaths(tmp_path))
    assert len(first.id) == 32 and client_of(UserPaths(tmp_path)).id == first.id and "@" in first.name
    file = tmp_path / "client.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "machine": "another"}))
    assert client_of(UserPaths(tmp_path)).id not in ("", first.id)


class PagedHost:
    """A machine that returns one page per request. All its files have the same content."""

    identity = "eve@far:22"

    def __init__(self, *pages: dict[str, Any], data: bytes = b"") -> None:
        self._pages, self._data = list(pages), data

    def ask(self, request: Any, body: bytes = b"", timeout: float = 0.0) -> dict[str, Any]:
        return {"ok": True, **(self._pages.pop(0) if len(self._pages) > 1 else self._pages[0])}

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        return self._data[:limit]


def test_pages_of_runs():
    pages = {"now": NOW, "runs": [{"id": "a"}], "more": True}, {"runs": [{"id": "b"}, {"id": "c"}]}
    assert [one.id for one in fetch_survey(PagedHost(*pages), sizes=False).runs] == ["a", "b", "c"]
    for endless in ({"runs": [{"id": "a"}], "more": True}, {"runs": [], "more": True}, {"runs": [7]}, {"runs": 7}):
        with pytest.raises(MalformedReply):
            fetch_survey(PagedHost(endless), sizes=False)


def read(given: object, run_id: str = SPEC.id):
    return read_spec(PagedHost({}, data=json.dumps(given).encode()), Destination(FAR, "p", "/here"), run_id, "ada@old")


def test_a_spec_from_a_target_only_describes(tmp_path):
    told = {
        **SPEC.to_json(),
        "client": OTHER,
        "fetch": "all",
        "given": {"LD_PRELOAD": "x"},
        "lock": {"kind": "managed"},
    }
    made = read({**told, "compute": {**told["compute"], "type": "local"}})
    assert made.compute == FAR and made.origin == "ada@old" and made.client == OTHER
    assert (made.secrets, made.environment, made.given, made.inherit, made.lock) == ((), {}, {}, (), None)
    assert made.key != SPEC.key and made.fetch == "none" and made.project_path == "/here"
    assert read({**told, "project_id": "q"}).project_path != SPEC.project_path


@pytest.mark.parametrize(
    "change",
    [
        {"id": "another"},
        {"spec": 99},
        {"snapshot": "../../x"},
        {"project_id": "../x"},
        {"parent": "../x"},
        {"created": 1e300},
        {"entry": 5},
        {"tags": [5]},
        {"sweep": {"axes": {}, "children": 5}},
        {"sweep": {"axes": {}, "children": ["../x"], "way": "grid"}},
        {"sweep": 5},
    ],
)
def test_a_spec_that_is_none(change):
    with pytest.raises(HostError, match="the spec of run"):
        read({**SPEC.to_json(), **change})


@pytest.mark.parametrize("name", ["../x", ".x", "a.b", "", "a/b", "local-20261115-171703-3fa9c1", "x" * 300])
def test_names_that_are_no_runs(name):
    with pytest.raises(HostError, match="is not a valid run ID"):
        read({**SPEC.to_json(), "id": name}, name)


DOCKER = """#!/bin/sh
echo "$1" >>{calls}
[ -e {stopped} ] && echo "Cannot connect to the Docker daemon" >&2 && exit 1
[ "$1" = inspect ] && echo '{{"id": "1", "state": {{"Status": "exited"}}, "labels": {{"mlw.folder": "{run}"}}}}'
exit 0
"""


def test_a_purge_takes_containers_that_only_their_run_knows(tmp_path):
    run, calls, stopped = tmp_path / "root" / "runs" / "r", tmp_path / "calls", tmp_path / "stopped"
    run.mkdir(parents=True)
    program = tmp_path / "docker"
    program.write_text(DOCKER.format(calls=calls, stopped=stopped, run=run))
    program.chmod(0o755)
    container = {"engine": "docker", "program": str(program), "name": "mlw-r"}
    (run / "spec.json").write_text(json.dumps({"id": "r", "container": container}))
    (run / "container.json").write_text("{}")
    stopped.touch()
    with pytest.raises(OSError, match="the run's container mlw-r still exists, and the engine does not respond"):
        purge(Root(str(tmp_path / "root")), {"runs": {"r": "unclaimed"}})
    assert run.exists()
    stopped.unlink()
    assert purge(Root(str(tmp_path / "root")), {"runs": {"r": "unclaimed"}})["ok"]
    assert calls.read_text().split() == ["inspect", "inspect", "rm"] and not run.exists()
