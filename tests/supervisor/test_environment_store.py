"""Environments are listed with what their end would free, and removed while others build and start runs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import mlworkbench.remote as remote
from mlworkbench.remote.environments import caches
from mlworkbench.remote.environments.environment import damage, environments, hold, hold_caches, touch, use_of
from mlworkbench.remote.environments.retire import IDLE, take_away
from mlworkbench.remote.environments.retire import remove as retire
from mlworkbench.remote.environments.stock import InUse, broken, every, one, users
from mlworkbench.remote.purge import purge
from mlworkbench.remote.shared import machine
from mlworkbench.remote.shared.disk_tally import Tally
from mlworkbench.remote.shared.layout import Root
from mlworkbench.remote.space import free, space

from .building import PYTHON
from .conftest import until

BULK = {"bulk.py": "data = '" + "x" * 400_000 + "'\n"}
# A supervisor in short: hold the environment, have it built, use it.
WORKER = """
import json, subprocess, sys, os
sys.path.insert(0, sys.argv[1])
from remote.environments.build import ensure
from remote.environments.environment import hold
from remote.shared.layout import Root
with open(sys.argv[3]) as file:
    lock = json.load(file)
root = Root(sys.argv[2])
for turn in range(int(sys.argv[5])):
    held = hold(root, lock, "run-%d" % os.getpid())
    prefix = ensure(root, lock, sys.argv[4], lambda text: None)
    for _ in range(5):
        subprocess.run([prefix + "/bin/python", "-c", "import greet"], check=True)
    os.close(held)
"""


@pytest.fixture
def root(yard) -> Root:
    return Root(str(yard.root))


def built(yard, *wheels):
    lock = yard.lock(wheels)
    code, said = yard.build(lock)
    assert code == 0, said
    return lock


@pytest.fixture
def lock(yard):
    return built(yard, yard.wheel("greet", {"greet.py": "print('hello')\n"}))


def a_run(root, name, **files):
    """A run of this machine: begun, and ended if `exit` or `events` say so."""
    run = root.run(name)
    os.makedirs(run.claim)
    Path(run.owner).write_text("{}")
    for file, text in files.items():
        Path(getattr(run, file)).write_text(text)
    return run


def used(root, lock, name):
    os.close(hold(root, lock, name))


def age(path, days):
    then = time.time() - days * 86400
    os.utime(path, (then, then))


def make_old(root, lock, days):
    """As if it had been built and used so long ago."""
    note = Path(root.environment(lock["digest"]) + ".json")
    known = json.loads(note.read_text())
    note.write_text(json.dumps({**known, "built": time.time() - days * 86400}))
    touch(root, lock)
    age(use_of(root.environment(lock["digest"])), days)


# -- how large -----------------------------------------------------------------------------------------


def test_what_others_hold_too_is_not_freed(yard, root):
    bulk = yard.wheel("bulk", BULK)
    first = built(yard, bulk, yard.wheel("greet", {"greet.py": "print('hello')\n"}))
    second = built(yard, bulk)
    found = {entry["digest"]: entry for entry in every(root, {"sizes": True})["environments"]}
    for lock in (first, second):
        entry = found[lock["digest"]]
        assert entry["size"] > 400_000 > entry["own"] > 0
        assert (entry["python"], entry["packages"]) == (lock["python"]["version"], len(lock["pip"]))
    before = Tally().add(root.path)[0]
    shown = retire(root, {"unused": True, "dry_run": True})
    assert len(environments(root)) == 2, "only shown"
    done = retire(root, {"unused": True})
    assert done["removed"] == shown["removed"] and len(done["removed"]) == 2
    freed = sum(entry["bytes"] for entry in done["removed"])
    notes = 64 * 1024  # the notes and lists beside them, which are small
    assert 0 <= before - Tally().add(root.path)[0] - freed < notes
    shared = retire(root, {"caches": True})
    assert shared["others"]["cache"]["bytes"] > 400_000, "nobody else held the bulk any more"


def test_two_that_share_free_the_shared_when_both_go(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 1_000_000)
    os.link(tmp_path / "a" / "file", tmp_path / "b" / "file")
    alone = Tally().add(str(tmp_path / "a"))
    assert alone[0] > 1_000_000 > alone[1]
    both = Tally()
    assert both.add(str(tmp_path / "a"))[1] < 1_000_000 < both.add(str(tmp_path / "b"))[1]
    assert both.size == both.own < 1_100_000


# -- who uses them -------------------------------------------------------------------------------------


def test_runs_and_the_last_use_are_known(root, lock):
    make_old(root, lock, 3)
    a_run(root, "long-ended", exit="{}", events="")
    a_run(root, "going")
    for name in ("long-ended", "going", "going", "../../etc"):
        used(root, lock, name)
    age(use_of(root.environment(lock["digest"])), 2)
    age(root.run("long-ended").events, 1)
    (entry,) = every(root, {})["environments"]
    assert users(root, lock["digest"]) == ["long-ended", "going"]
    assert (entry["runs"], entry["going"], entry["held"]) == (2, ["going"], False)
    assert abs(time.time() - entry["used"] - 86400) < 600, "a run uses it to its end"


def test_one_that_a_run_holds_stays(root, lock):
    held = hold(root, lock)
    with pytest.raises(InUse):
        take_away(root, lock["digest"])
    assert every(root, {})["environments"][0]["held"]
    os.close(held)
    assert not every(root, {})["environments"][0]["held"]
    assert len(retire(root, {"digests": [lock["digest"]]})["removed"]) == 1
    assert environments(root) == [] and broken(root) == []


@pytest.mark.parametrize("ended", [{"exit": "{}"}, {"events": '{"kind": "finished"}\n'}])
def test_one_whose_supervisor_died_stays_until_the_run_has_ended(root, lock, ended):
    run = a_run(root, "going")
    used(root, lock, "going")
    done = retire(root, {"digests": [lock["digest"]]})
    assert done["removed"] == [] and done["kept"][0]["runs"] == ["going"]
    assert free(root, {"what": ["envs"], "idle": 0})["removed"]["envs"]["count"] == 0
    for file, text in ended.items():
        Path(getattr(run, file)).write_text(text)
    assert len(retire(root, {"unused": True})["removed"]) == 1
    assert users(root, lock["digest"]) == [], "the next one of that name begins anew"


def test_all_about_one(yard, root, lock):
    used(root, lock, "some-run")
    found = one(root, {"digest": lock["digest"], "verify": True})["environment"]
    assert [package["name"] for package in found["pip"]] == ["greet"] and found["conda"] == []
    assert found["sound"] and found["damage"] == [] and found["used_by"] == ["some-run"]
    path = next(yard.prefix(lock).glob("lib/python*/site-packages/greet.py"))
    path.chmod(0o644)
    path.write_text("print('other')\n")
    found = one(root, {"digest": lock["digest"], "verify": True})["environment"]
    assert not found["sound"] and found["damaged"] == 1 == len(damage(root, lock))
    assert not one(root, {"digest": "f" * 64})["ok"]


# -- others at the same moment -------------------------------------------------------------------------


def test_runs_start_while_somebody_removes(yard, root, lock):
    """Each finds it whole, or builds it."""
    words = [str(Path(remote.__file__).parents[1]), str(yard.root), str(yard.folder / f"{lock['digest']}.json")]
    workers = [
        subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", WORKER, *words, str(yard.log), "4"],
            env=yard.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(3)
    ]
    removed = 0
    while any(worker.poll() is None for worker in workers):
        removed += len(retire(root, {"unused": True})["removed"])
    said = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], said
    assert removed > 0
    retire(root, {"unused": True})
    assert {path.suffix for path in (yard.root / "envs").iterdir()} <= {".lock", ".use"}


def test_one_that_is_being_built_stays(yard, root, lock):
    second = yard.lock([yard.wheel("other", {"other.py": ""})])
    building = yard.start(second, MLW_FAILPOINT="env-protected:sleep=600")
    # at the fail point: none of its programs is left that would go on building
    until(lambda: (yard.prefix(second) / "lib").exists() and not yard.prefix(second).stat().st_mode & 0o222)
    try:
        found = {entry["digest"]: entry for entry in every(root, {"sizes": True})["environments"]}
        assert found[second["digest"]]["building"] and not found[lock["digest"]]["building"]
        assert every(root, {})["leftovers"] == 0
        done = retire(root, {"digests": [second["digest"]], "unused": True, "caches": True})
        kept = {entry["name"]: entry["why"] for entry in done["kept"]}
        assert kept == {
            second["digest"]: "being built",
            "caches": "an environment is being built",
        }
        assert [entry["digest"] for entry in done["removed"]] == [lock["digest"]] and done["others"] == {}
        assert purge(root, {"runs": {}})["problem"] == "an environment is being built"
        assert yard.prefix(second).exists() and (yard.root / "cache" / "uv").exists()
    finally:
        building.kill()
        building.communicate()
    done = retire(root, {"unused": True})
    assert done["others"]["leftover"]["count"] == 2 and broken(root) == []  # its folder, and what it worked in


# -- what builds share ---------------------------------------------------------------------------------


def test_caches_go_but_for_what_may_be_needed(yard, root, lock, monkeypatch):
    (yard.root / "tools").unlink()
    home = yard.root / "tools" / "python"
    for name in ("cpython-3.12.1-x", "cpython-3.13.1-x"):
        (home / name / "bin").mkdir(parents=True)
        (home / f"{name}.ready").touch()
        (home / name).chmod(0o500)
    (home / "cpython-3.12-x").symlink_to("cpython-3.12.1-x")
    (yard.root / "tools" / "uv-0.9.1-0a1b2c3d").mkdir()
    (yard.root / "tools" / "mine").mkdir()
    note = Path(root.environment(lock["digest"]) + ".json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "home": str(home / "cpython-3.12.1-x")}))
    (yard.root / "cache" / "digests-mine.json").write_text("{}")
    (sent,) = [path for path in (yard.root / "pkgs").iterdir() if path.is_file()]
    assert "package" not in retire(root, {"caches": True, "dry_run": True})["others"], "a run may be about to need it"
    monkeypatch.setattr(caches, "YOUNG", -1)
    done = retire(root, {"caches": True})
    assert done["problems"] == [] and done["removed"] == []
    assert {kind: sums["count"] for kind, sums in done["others"].items()} == {"cache": 1, "package": 2, "tool": 2}
    assert not sent.exists()  # nor what it was called
    assert sorted(path.name for path in home.iterdir()) == [
        *("cpython-3.12-x", "cpython-3.12.1-x", "cpython-3.12.1-x.ready")
    ]
    assert [path.name for path in (yard.root / "cache").iterdir()] == ["digests-mine.json"]
    assert (yard.root / "tools" / "mine").exists()
    assert yard.python(lock, "import greet") == "hello", "what was built needs none of it"


def test_a_build_keeps_its_caches(root, lock):
    held = hold_caches(root)
    done = retire(root, {"caches": True})
    assert done["kept"][0]["why"] == "an environment is being built" and done["others"] == {}
    os.close(held)
    assert retire(root, {"caches": True})["others"]["cache"]["count"] == 1


def test_tools_behind_a_link_are_somebodys(yard, root, lock):
    assert "tool" not in retire(root, {"caches": True})["others"]
    assert list((yard.toolbox / "tools").iterdir())


# -- clean ---------------------------------------------------------------------------------------------


def test_clean_frees_what_nobody_used_for_a_month(yard, root):
    bulk = yard.wheel("bulk", BULK)
    young = built(yard, bulk)
    old = built(yard, bulk, yard.wheel("greet", {"greet.py": ""}))
    make_old(root, old, 29)
    assert space(root, {})["kinds"]["envs"]["free_count"] == 0
    make_old(root, old, IDLE / 86400 + 1)
    kinds = space(root, {})["kinds"]
    found = kinds["envs"]
    assert (found["count"], found["free_count"]) == (2, 1)
    assert 0 < found["free_bytes"] < 400_000, "the other one has the bulk too"
    assert kinds["caches"]["free_count"] == 0 and kinds["caches"]["count"] == 3
    total = found["bytes"] + kinds["caches"]["bytes"]
    assert total <= Tally().add(root.path)[0], "nothing is counted twice"
    kept = retire(root, {"unused": True, "idle": IDLE, "dry_run": True})
    assert [entry["digest"] for entry in kept["removed"]] == [old["digest"]]
    done = free(root, {})
    assert done["removed"]["envs"] == {"count": 1, "bytes": found["free_bytes"]} and done["problems"] == []
    assert [note["digest"] for note in environments(root)] == [young["digest"]]
    assert (yard.root / "cache" / "uv").exists()


def test_clean_keeps_an_old_one_that_a_run_holds(root, lock):
    make_old(root, lock, 90)
    path = use_of(root.environment(lock["digest"]))
    held = machine.share(path)
    assert free(root, {"what": ["envs"]})["removed"]["envs"]["count"] == 0
    os.close(held)
    assert free(root, {"what": ["envs"]})["removed"]["envs"]["count"] == 1
