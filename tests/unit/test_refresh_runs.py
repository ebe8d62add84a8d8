"""Updating many finished runs takes few transactions, because each transaction waits for the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench import refresh_runs as module
from mlworkbench.history.database import generation
from mlworkbench.history.history_api import History
from mlworkbench.history.store import append_all
from mlworkbench.model import Status
from mlworkbench.refresh_runs import refresh
from mlworkbench.targets.target import Target
from mlworkbench.targets.types import SLURM
from mlworkbench.testing import FakeHost
from tests.unit.history.test_store import paths, spec, write_files

COUNT = 200


@pytest.fixture
def history(tmp_path):
    """Create a history whose index does not contain the events in the run folders. Every tenth run is unfinished."""
    made = History(paths(tmp_path / "store"))
    for number in range(1, COUNT + 1):
        stored, _ = made.add(spec(number))
        write_files(made.paths.root.run(stored.id).path, number)
    yield made
    made.close()


def writes(history):
    return history._database.read(generation)


def test_many_runs_are_taken_in_by_few_transactions(history):
    before = writes(history)
    runs = refresh(history, history.unfinished(), 60.0)
    ended = [run for run in runs if run.status is Status.COMPLETED]
    assert len(ended) == COUNT - COUNT // 10 and len(runs) == COUNT
    assert {run.id: run.metrics["accuracy"] for run in ended} == {
        run.id: int(run.id.rpartition("-")[2]) / 100 for run in ended
    }
    # Each unfinished run has no supervisor and is updated separately. All others share a few transactions.
    assert writes(history) - before <= COUNT // 20 + 2 * (COUNT // 10)
    assert {run.id for run in history.unfinished()} == {run.id for run in runs if not run.status.final}


class Cluster(FakeHost):
    """A login node: the runs have handles of a scheduler, and nobody holds their locks."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked: list[dict] = []

    def ask(self, request, body=b"", timeout=60.0):
        self.asked.append(dict(request))
        states = [{"state": "queued", "job": "7", "reason": "Priority"}, {"state": "ended"}]
        return {"ok": True, "runs": {name: states[name.endswith("3")] for name in request["runs"]}}


def test_runs_of_a_cluster_need_one_request(tmp_path, monkeypatch):
    history = History(paths(tmp_path))
    for number in range(1, 6):
        stored, _ = history.add(spec(number, starter="slurm"))
        folder = Path(history.paths.root.run(stored.id).path)
        folder.mkdir(exist_ok=True)
        (folder / "spec.json").write_text("{}")
        (folder / "starter.json").write_text('{"starter": "slurm", "handle": {}}')
    cluster = Cluster(tmp_path)
    monkeypatch.setattr(module, "open_target", lambda compute, paths: Target(cluster, SLURM))
    runs = refresh(history, history.unfinished(), 60.0)
    assert [sorted(request["runs"]) for request in cluster.asked] == [[f"demo-0000{number}" for number in range(1, 6)]]
    assert [run.detail for run in runs].count("in Slurm: Priority") == 4
    assert [(call.verb, call.run_id) for call in cluster.calls] == [("adopt", "demo-00003")], "only an ended job"
    history.close()


def test_a_run_that_is_removed_meanwhile_costs_only_itself(history, monkeypatch):
    runs = history.unfinished()
    other = History(history.paths)

    def removed_first(store, news):
        if len(news) > 1 and any(one[0] == "demo-00003" for one in news) and other.by_key("key-3"):
            other.remove("demo-00003")
        return append_all(store, news)

    monkeypatch.setattr(module, "append_all", removed_first)
    told: list[str] = []
    found = refresh(history, runs, 60.0, told.append)
    assert told == ["run demo-00003 was removed"]
    assert sum(run.status.final for run in found) == COUNT - COUNT // 10 - 1
