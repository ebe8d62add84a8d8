"""Import of runs from a target. Forged specs can name any run, but have no effect on runs that belong to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench import import_runs as importing
from mlworkbench.export.run_data import with_children
from mlworkbench.history.child_runs import children_of_sweep
from mlworkbench.history.store import History
from mlworkbench.hosts.local_host import LocalHost
from mlworkbench.hosts.root_contents import Survey
from mlworkbench.import_runs import Destination, import_runs
from mlworkbench.model import Compute, RunSpec, Status
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.shared.run_endings import TARGET_LOST
from mlworkbench.runs.result_download import SweepChildren
from mlworkbench.runs.submission_frontend import Frontend
from mlworkbench.targets.target import Target
from tests.unit.attach.test_purge_plan import OTHER, target_run
from tests.unit.history.test_run_state import SPEC

GOOD, EVIL = Compute("good", "remote", "good.example", "ada"), Compute("evil", "remote", "evil.example", "ada")


def sweep_of(*children: str) -> dict[str, Any]:
    made = {"way": "grid", "axes": {}, "parallel": 1, "metric": "acc", "goal": "max", "seed": None}
    return {**made, "children": list(children)}


def own_spec(name: str, compute: Compute = GOOD, **changes: Any) -> RunSpec:
    return replace(SPEC, id=name, key=name, compute=compute, **changes)


def imported_spec(name: str, compute: Compute = EVIL, **changes: Any) -> RunSpec:
    """Create a spec as earlier versions recorded it during an import."""
    return own_spec(name, compute, client=OTHER, origin="eve@laptop", **changes)


@pytest.fixture
def history(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    made = History(UserPaths(tmp_path))
    yield made
    made.close()


class ForgedHost(LocalHost):
    """A machine with forged files on its disk."""

    identity, is_remote = "ada@evil.example", True

    def ask(self, request: Any, body: bytes = b"", timeout: float = 0.0) -> dict[str, Any]:
        return {"ok": True}

    def close(self) -> None:
        pass


def evil_target(folder: Path, *specs: RunSpec) -> Target:
    """Create a hostile target on which each of these runs has ended and has a forged log."""
    root = Root(str(folder))
    for spec in specs:
        run = root.run(spec.id)
        os.makedirs(run.metrics)
        os.makedirs(os.path.dirname(run.owner), exist_ok=True)
        Path(run.owner).write_text("{}")
        Path(run.spec).write_text(json.dumps(spec.to_json()))
        Path(run.log).write_text("FORGED\n")
        ended = {"ending": "succeeded", "exit": 0, "outputs": 0, "output_bytes": 0, "log_size": 7}
        told = [("accepted", {"protocol": 1}), ("started", {"pid": 1, "time": 1.0}), ("finished", ended)]
        lines = [{"w": "sup", "seq": n, "t": 1.0, "kind": kind, "data": data} for n, (kind, data) in enumerate(told, 1)]
        Path(run.events).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Target(ForgedHost(root, {}))


def test_an_import_names_only_runs_of_its_own_target(history, tmp_path, monkeypatch):
    history.add(own_spec("mine-1"))
    history.add(own_spec("mine-2", EVIL))
    history.add(own_spec("my-sweep", sweep=sweep_of("mine-1")))
    history.add(imported_spec("others-1", GOOD))
    history.add(imported_spec("theirs-1"))
    named = ("mine-1", "mine-2", "others-1", "theirs-1", "theirs-2", "mine-1.inner")
    offered = [
        own_spec("evil-sweep", EVIL, client=OTHER, sweep=sweep_of(*named)),
        own_spec("theirs-2", EVIL, client=OTHER, parent="evil-sweep"),
        own_spec("evil-child", EVIL, client=OTHER, parent="my-sweep"),
    ]
    target = evil_target(tmp_path / "evil", *offered)
    survey = Survey(1.0, tuple(target_run(one.id) for one in offered), ())
    monkeypatch.setattr(importing, "open_target", lambda *_: target)
    monkeypatch.setattr(importing, "fetch_survey", lambda *_, **__: survey)
    done = import_runs(history, Destination(EVIL, "p", "/here"), lambda *_: None)
    assert [(one.problem, one.new) for one in done] == [(None, True)] * 3
    assert history.get("evil-sweep").spec.sweep == sweep_of("theirs-1", "theirs-2")
    assert history.get("theirs-2").spec.parent == "evil-sweep"
    assert history.get("evil-child").spec.parent is None


def test_the_machine_of_a_sweep_is_not_asked_about_runs_of_others(history, tmp_path):
    """Even runs that were submitted after the import of the sweep are not fetched from its machine."""
    names = ("mine-1", "mine-2", "others-1", "theirs-1")
    history.add(imported_spec("evil-sweep", sweep=sweep_of(*names)))
    history.add(own_spec("mine-1"))
    history.add(own_spec("mine-2", EVIL))
    history.add(imported_spec("others-1", GOOD))
    history.add(imported_spec("theirs-1", parent="evil-sweep"))
    sweep = history.get("evil-sweep").spec
    target = evil_target(tmp_path / "evil", *(history.get(name).spec for name in names))
    children = SweepChildren(history, sweep, target, Frontend())
    children.feed(b"".join(b"1/4 x %s\n" % name.encode() for name in names))
    children.fetch_all()
    found = {name: history.get(name).status for name in names}
    going = Status.SUBMITTING
    assert found == {"mine-1": going, "mine-2": going, "others-1": going, "theirs-1": Status.COMPLETED}
    assert not os.path.exists(history.paths.root.run("mine-1").log)
    assert [one.id for one in children_of_sweep(history, sweep)] == ["theirs-1"]


def mlw(history: History, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MLW_HOME": str(history.paths.home)}
    return subprocess.run([sys.executable, "-m", "mlworkbench", *words], env=environ, capture_output=True, text=True)


def test_giving_up_a_sweep_gives_up_no_run_of_another_machine(history):
    history.add(own_spec("mine-1"))
    history.add(imported_spec("theirs-1", parent="evil-sweep"))
    history.add(imported_spec("evil-sweep", sweep=sweep_of("mine-1", "theirs-1")))
    done = mlw(history, "cancel", "--forget", "evil-sweep")
    assert done.returncode == 0, done
    assert history.get("mine-1").ending is None
    assert history.get("theirs-1").ending == TARGET_LOST


def test_a_run_of_another_machine_joins_no_sweep(history):
    mine = own_spec("my-sweep", sweep=sweep_of("my-1"))
    history.add(mine, [own_spec("my-1", parent="my-sweep")])
    history.add(imported_spec("evil-child", parent="my-sweep"))
    for name in ("my-sweep", "my-1", "evil-child"):
        history.update(name, lambda run: replace(run, status=Status.COMPLETED, metrics={"acc": 1.0}))
    assert [one.id for one in with_children(history, [history.get("my-sweep")])] == ["my-sweep", "my-1"]
    shown = mlw(history, "show", "my-sweep")
    assert "Children (1)" in shown.stdout and "evil-child" not in shown.stdout, shown
    done = mlw(history, "history", "archive", "my-sweep")
    assert "with its 1 child" in done.stderr and "archived run" in done.stderr, done
    done = mlw(history, "history", "remove", "--yes", "my-sweep")
    assert "deleted run my-sweep and its 1 child" in done.stderr, done
    assert history.get("evil-child").id == "evil-child"
