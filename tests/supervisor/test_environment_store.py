"""Listing environments with the disk space that their removal frees, and removing them during builds and runs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import mlworkbench.remote as remote
from mlworkbench.remote.disk_usage import free_space, report_usage
from mlworkbench.remote.environments import build_caches
from mlworkbench.remote.environments.environment_state import (
    find_damage,
    hold_caches,
    hold_environment_lock,
    list_environments,
    mark_used,
    use_lock_path,
)
from mlworkbench.remote.environments.environment_usage import (
    InUse,
    describe_all,
    describe_one,
    removable_leftovers,
    runs_using,
)
from mlworkbench.remote.environments.garbage_collection import IDLE_SECONDS, set_environment_aside
from mlworkbench.remote.environments.garbage_collection import handle_remove as retire
from mlworkbench.remote.root_purge import purge
from mlworkbench.remote.shared import machine
from mlworkbench.remote.shared.disk_totals import DiskUsage
from mlworkbench.remote.shared.layout import Root

from .conftest import until
from .environment_builder import PYTHON

BULK = {"bulk.py": "data = '" + "x" * 400_000 + "'\n"}
# A minimal supervisor: lock the environment, build it, and use it.
WORKER = """
import json, subprocess, sys, os
sys.path.insert(0, sys.argv[1])
from remote.environments.build import ensure
from remote.environments.environment_state import hold_environment_lock
from remote.shared.layout import Root
with open(sys.argv[3]) as file:
    lock = json.load(file)
root = Root(sys.argv[2])
for turn in range(int(sys.argv[5])):
    held = hold_environment_lock(root, lock, "run-%d" % os.getpid())
    prefix = ensure(root, lock, sys.argv[4], lambda text: None)
    for _ in range(5):
        subprocess.run([prefix + "/bin/python", "-c", "import greet"], check=True)
    os.close(held)
"""


@pytest.fixture
def root(builder) -> Root:
    return Root(str(builder.root))


def built(builder, *wheels):
    lock = builder.lock(wheels)
    code, output = builder.build(lock)
    assert code == 0, output
    return lock


@pytest.fixture
def lock(builder):
    return built(builder, builder.wheel("greet", {"greet.py": "print('hello')\n"}))


def a_run(root, name, **files):
    """Create a run on this machine; it has ended if `exit` or `events` contain an ending."""
    run = root.run(name)
    os.makedirs(run.claim)
    Path(run.owner).write_text("{}")
    for file, text in files.items():
        Path(getattr(run, file)).write_text(text)
    return run


def used(root, lock, name):
    os.close(hold_environment_lock(root, lock, name))


def age(path, days):
    then = time.time() - days * 86400
    os.utime(path, (then, then))


def make_old(root, lock, days):
    """Backdate an environment, as if it had been built and last used that long ago."""
    note = Path(root.environment(lock["digest"]) + ".json")
    record = json.loads(note.read_text())
    note.write_text(json.dumps({**record, "built": time.time() - days * 86400}))
    mark_used(root, lock)
    age(use_lock_path(root.environment(lock["digest"])), days)


# -- disk usage ----------------------------------------------------------------------------------------


def test_what_others_hold_too_is_not_freed(builder, root):
    bulk = builder.wheel("bulk", BULK)
    first = built(builder, bulk, builder.wheel("greet", {"greet.py": "print('hello')\n"}))
    second = built(builder, bulk)
    environments = {entry["digest"]: entry for entry in describe_all(root, {"sizes": True})["environments"]}
    for lock in (first, second):
        entry = environments[lock["digest"]]
        assert entry["size"] > 400_000 > entry["own"] > 0
        assert (entry["python"], entry["packages"]) == (lock["python"]["version"], len(lock["pip"]))
    before = DiskUsage().add(root.path)[0]
    shown = retire(root, {"unused": True, "dry_run": True})
    assert len(list_environments(root)) == 2, "only shown"
    done = retire(root, {"unused": True})
    assert done["removed"] == shown["removed"] and len(done["removed"]) == 2
    freed = sum(entry["bytes"] for entry in done["removed"])
    notes = 64 * 1024  # small marker files and lists, which the report does not count
    assert 0 <= before - DiskUsage().add(root.path)[0] - freed < notes
    shared = retire(root, {"caches": True})
    assert shared["others"]["cache"]["bytes"] > 400_000, "nobody else held the bulk any more"


def test_two_that_share_free_the_shared_when_both_go(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 1_000_000)
    os.link(tmp_path / "a" / "file", tmp_path / "b" / "file")
    alone = DiskUsage().add(str(tmp_path / "a"))
    assert alone[0] > 1_000_000 > alone[1]
    both = DiskUsage()
    assert both.add(str(tmp_path / "a"))[1] < 1_000_000 < both.add(str(tmp_path / "b"))[1]
    assert both.size == both.exclusive < 1_100_000


# -- use by runs ---------------------------------------------------------------------------------------


def test_runs_and_the_last_use_are_known(root, lock):
    make_old(root, lock, 3)
    a_run(root, "long-ended", exit="{}", events="")
    a_run(root, "going")
    for name in ("long-ended", "going", "going", "../../etc"):
        used(root, lock, name)
    age(use_lock_path(root.environment(lock["digest"])), 2)
    age(root.run("long-ended").events, 1)
    (entry,) = describe_all(root, {})["environments"]
    assert runs_using(root, lock["digest"]) == ["long-ended", "going"]
    assert (entry["runs"], entry["going"], entry["held"]) == (2, ["going"], False)
    assert abs(time.time() - entry["used"] - 86400) < 600, "a run uses it to its end"


def test_one_that_a_run_holds_stays(root, lock):
    held = hold_environment_lock(root, lock)
    with pytest.raises(InUse):
        set_environment_aside(root, lock["digest"])
    assert describe_all(root, {})["environments"][0]["held"]
    os.close(held)
    assert not describe_all(root, {})["environments"][0]["held"]
    assert len(retire(root, {"digests": [lock["digest"]]})["removed"]) == 1
    assert list_environments(root) == [] and removable_leftovers(root) == []


@pytest.mark.parametrize("ended", [{"exit": "{}"}, {"events": '{"kind": "finished"}\n'}])
def test_one_whose_supervisor_died_stays_until_the_run_has_ended(root, lock, ended):
    run = a_run(root, "going")
    used(root, lock, "going")
    done = retire(root, {"digests": [lock["digest"]]})
    assert done["removed"] == [] and done["kept"][0]["runs"] == ["going"]
    assert free_space(root, {"what": ["envs"], "idle": 0})["removed"]["envs"]["count"] == 0
    for file, text in ended.items():
        Path(getattr(run, file)).write_text(text)
    assert len(retire(root, {"unused": True})["removed"]) == 1
    assert runs_using(root, lock["digest"]) == [], "the next one of that name begins anew"


def test_all_about_one(builder, root, lock):
    used(root, lock, "some-run")
    environment = describe_one(root, {"digest": lock["digest"], "verify": True})["environment"]
    assert [package["name"] for package in environment["pip"]] == ["greet"] and environment["conda"] == []
    assert environment["sound"] and environment["damage"] == [] and environment["used_by"] == ["some-run"]
    path = next(builder.prefix(lock).glob("lib/python*/site-packages/greet.py"))
    path.chmod(0o644)
    path.write_text("print('other')\n")
    environment = describe_one(root, {"digest": lock["digest"], "verify": True})["environment"]
    assert not environment["sound"] and environment["damaged"] == 1 == len(find_damage(root, lock))
    assert not describe_one(root, {"digest": "f" * 64})["ok"]


# -- concurrent builds and runs ------------------------------------------------------------------------


def test_runs_start_during_concurrent_removal(builder, root, lock):
    """Every run either finds a complete environment or builds it."""
    arguments = [
        str(Path(remote.__file__).parents[1]),
        str(builder.root),
        str(builder.folder / f"{lock['digest']}.json"),
    ]
    workers = [
        subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", WORKER, *arguments, str(builder.log), "4"],
            env=builder.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(3)
    ]
    removed = 0
    while any(worker.poll() is None for worker in workers):
        removed += len(retire(root, {"unused": True})["removed"])
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], outputs
    assert removed > 0
    retire(root, {"unused": True})
    assert {path.suffix for path in (builder.root / "envs").iterdir()} <= {".lock", ".use"}


def test_one_that_is_being_built_stays(builder, root, lock):
    second = builder.lock([builder.wheel("other", {"other.py": ""})])
    building = builder.start(second, MLW_FAILPOINT="env-protected:sleep=600")
    # The build has reached the failpoint.
    until(lambda: (builder.prefix(second) / "lib").exists() and not builder.prefix(second).stat().st_mode & 0o222)
    try:
        environments = {entry["digest"]: entry for entry in describe_all(root, {"sizes": True})["environments"]}
        assert environments[second["digest"]]["building"] and not environments[lock["digest"]]["building"]
        assert describe_all(root, {})["leftovers"] == 0
        done = retire(root, {"digests": [second["digest"]], "unused": True, "caches": True})
        kept = {entry["name"]: entry["why"] for entry in done["kept"]}
        assert kept == {
            second["digest"]: "being built",
            "caches": "an environment is being built",
        }
        assert [entry["digest"] for entry in done["removed"]] == [lock["digest"]] and done["others"] == {}
        assert purge(root, {"runs": {}})["problem"] == "an environment is being built"
        assert builder.prefix(second).exists() and (builder.root / "cache" / "uv").exists()
    finally:
        building.kill()
        building.communicate()
    done = retire(root, {"unused": True})
    assert (
        done["others"]["leftover"]["count"] == 2 and removable_leftovers(root) == []
    )  # the folder and the temporary files of the killed build


# -- shared caches -------------------------------------------------------------------------------------


def test_caches_go_but_for_what_may_be_needed(builder, root, lock, monkeypatch):
    (builder.root / "tools").unlink()
    home = builder.root / "tools" / "python"
    for name in ("cpython-3.12.1-x", "cpython-3.13.1-x"):
        (home / name / "bin").mkdir(parents=True)
        (home / f"{name}.ready").touch()
        (home / name).chmod(0o500)
    (home / "cpython-3.12-x").symlink_to("cpython-3.12.1-x")
    (builder.root / "tools" / "uv-0.9.1-0a1b2c3d").mkdir()
    (builder.root / "tools" / "mine").mkdir()
    note = Path(root.environment(lock["digest"]) + ".json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "home": str(home / "cpython-3.12.1-x")}))
    (builder.root / "cache" / "digests-mine.json").write_text("{}")
    (sent,) = [path for path in (builder.root / "pkgs").iterdir() if path.is_file()]
    assert "package" not in retire(root, {"caches": True, "dry_run": True})["others"], "a run may be about to need it"
    monkeypatch.setattr(build_caches, "MIN_AGE", -1)
    done = retire(root, {"caches": True})
    assert done["problems"] == [] and done["removed"] == []
    assert {kind: sums["count"] for kind, sums in done["others"].items()} == {"cache": 1, "package": 2, "tool": 2}
    assert not sent.exists()  # the uploaded package was removed
    assert sorted(path.name for path in home.iterdir()) == [
        *("cpython-3.12-x", "cpython-3.12.1-x", "cpython-3.12.1-x.ready")
    ]
    assert [path.name for path in (builder.root / "cache").iterdir()] == ["digests-mine.json"]
    assert (builder.root / "tools" / "mine").exists()
    assert builder.python(lock, "import greet") == "hello", "what was built needs none of it"


def test_a_build_keeps_its_caches(root, lock):
    held = hold_caches(root)
    done = retire(root, {"caches": True})
    assert done["kept"][0]["why"] == "an environment is being built" and done["others"] == {}
    os.close(held)
    assert retire(root, {"caches": True})["others"]["cache"]["count"] == 1


def test_linked_tools_are_kept(builder, root, lock):
    assert "tool" not in retire(root, {"caches": True})["others"]
    assert list((builder.toolbox / "tools").iterdir())


# -- clean ---------------------------------------------------------------------------------------------


def test_clean_frees_environments_unused_for_a_month(builder, root):
    bulk = builder.wheel("bulk", BULK)
    young = built(builder, bulk)
    old = built(builder, bulk, builder.wheel("greet", {"greet.py": ""}))
    make_old(root, old, 29)
    assert report_usage(root, {})["kinds"]["envs"]["free_count"] == 0
    make_old(root, old, IDLE_SECONDS / 86400 + 1)
    kinds = report_usage(root, {})["kinds"]
    usage = kinds["envs"]
    assert (usage["count"], usage["free_count"]) == (2, 1)
    assert 0 < usage["free_bytes"] < 400_000, "the other one has the bulk too"
    assert kinds["caches"]["free_count"] == 0 and kinds["caches"]["count"] == 3
    total = usage["bytes"] + kinds["caches"]["bytes"]
    assert total <= DiskUsage().add(root.path)[0], "nothing is counted twice"
    kept = retire(root, {"unused": True, "idle": IDLE_SECONDS, "dry_run": True})
    assert [entry["digest"] for entry in kept["removed"]] == [old["digest"]]
    done = free_space(root, {})
    assert done["removed"]["envs"] == {"count": 1, "bytes": usage["free_bytes"]} and done["problems"] == []
    assert [note["digest"] for note in list_environments(root)] == [young["digest"]]
    assert (builder.root / "cache" / "uv").exists()


def test_clean_keeps_an_old_one_that_a_run_holds(root, lock):
    make_old(root, lock, 90)
    path = use_lock_path(root.environment(lock["digest"]))
    held = machine.lock_shared(path)
    assert free_space(root, {"what": ["envs"]})["removed"]["envs"]["count"] == 0
    os.close(held)
    assert free_space(root, {"what": ["envs"]})["removed"]["envs"]["count"] == 1
