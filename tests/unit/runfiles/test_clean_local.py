"""Cleaning of local files: which files can be removed, and which must stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlworkbench.errors import HistoryError
from mlworkbench.history.store import History
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared import store_lock as guard
from mlworkbench.remote.shared.layout import Root
from mlworkbench.runfiles import clean_local as module
from mlworkbench.runfiles.clean_local import (
    CACHES,
    CODE,
    ENVIRONMENTS,
    INDEXES,
    KINDS,
    LEFTOVERS,
    PROGRAMS,
    WARM_COPIES,
    LocalCleaner,
    Removable,
    require_data_folder,
)
from mlworkbench.snapshot.content_store import Store
from mlworkbench.snapshot.take_snapshot import take
from tests.conftest import User, end_processes
from tests.supervisor.conftest import until

LATER = 30 * 3600.0
PROJECT = "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Create a data folder with a run, an unused snapshot, and a removable item of every kind. Keep a copy."""
    place = tmp_path_factory.mktemp("store") / "place"
    place.mkdir()
    user = User(place)
    project = user.project("demo", train="print(1)")
    run = user.mlw("submit", "train.py", cwd=project).run
    (project / "train.py").write_text("print(2)")
    assert user.mlw("submit", "--dry-run", "train.py", cwd=project).code == 0
    home = user.store
    (home / "history.db.damaged-20260101-000000-1").write_bytes(b"x" * 5000)
    (home / "lib" / ("0" * 16) / "remote").mkdir(parents=True)
    (home / "lib" / ("0" * 16) / "remote" / "__main__.py").write_text("")
    os.utime(home / "lib" / ("0" * 16), (1, 1))
    (home / "blobs" / f"part-1-{'a' * 16}").write_bytes(b"x")
    (home / "lib" / f".part-{'a' * 16}").mkdir()
    (home / "runs" / run / f"exit.json.{'a' * 16}.part").write_text("{}")
    (home / "runs" / run / "placing" / "tree").mkdir(parents=True)
    end_processes(home)
    copy_tree(place, place.with_name("copy"))
    return place, user, run


def copy_tree(source, target):
    """Copy a folder with its hard links and timestamps. This is faster than creating it again."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@pytest.fixture
def store(made):
    """Restore the data folder from the copy, at the same path."""
    place, user, run = made
    copy_tree(place.with_name("copy"), place)
    yield user, run
    end_processes(user.store)


def make_cleaner(user, later=LATER):
    return LocalCleaner(History(UserPaths(user.store)), lambda: time.time() + later)


def tree(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_every_kind_is_found_and_removed(store):
    user, run = store
    cleaner = make_cleaner(user)
    found = cleaner.find()
    assert {kind: sum(f.kind == kind for f in found) for kind in KINDS} == {
        WARM_COPIES: 1,
        CODE: 2,  # the manifest and the changed script
        PROGRAMS: 1,
        LEFTOVERS: 4,
        INDEXES: 1,
        CACHES: 2,
        ENVIRONMENTS: 0,
    }
    before = tree(user.store)
    cleaner.remove(found)
    gone = before - tree(user.store)
    assert all(any(str(path).startswith(os.path.join(f.folder, f.name)) for f in found) for path in gone)
    assert make_cleaner(user).find() == [] and cleaner.notes == []


def test_recorded_runs_still_have_everything(store, tmp_path):
    user, run = store
    before = {path: path.read_bytes() for path in user.folder(run).rglob("*") if path.is_file()}
    cleaner = make_cleaner(user)
    cleaner.remove(cleaner.find())
    after = {path: path.read_bytes() for path in user.folder(run).rglob("*") if path.is_file()}
    assert {p.name for p in before.keys() - after.keys()} == {f"exit.json.{'a' * 16}.part"}
    manifest = json.loads((user.store / "snapshots" / f"{snapshot_digest(user, run)}.json").read_text())
    for _, sha256, size, _ in manifest["files"]:
        assert (user.store / "blobs" / sha256[:2] / sha256[2:]).stat().st_size == size
    assert user.mlw("submit", "train.py", cwd=user.home / "demo").code == 0


def snapshot_digest(user, run):
    return json.loads((user.folder(run) / "spec.json").read_text())["snapshot"]


def test_recent_items_are_kept(store):
    user, run = store
    cleaner = make_cleaner(user, 0)
    with guard.using_store(Root(str(user.store))):
        kinds = {found.kind for found in cleaner.find()}
    assert kinds == {WARM_COPIES, INDEXES, CACHES}, "a submit under way has just stored the rest"
    kept = {item.kind: item for item in cleaner.kept()}
    assert kept[LEFTOVERS].things == 4 and kept[CODE].things == 2 and kept[CODE].size > 0
    assert all("mlw experiment clean --yes --recent" in item.why for item in kept.values())
    assert {found.kind for found in LocalCleaner(History(UserPaths(user.store)), recent=True).find()} == {
        WARM_COPIES, INDEXES, CACHES, CODE, PROGRAMS, LEFTOVERS,
    }  # fmt: skip


def test_leftovers_of_killed_submissions_are_removed_at_once(store):
    """No process holds the store lock, so these files are not in use."""
    user, run = store
    found = {found.folder for found in make_cleaner(user, 0).find() if found.kind == LEFTOVERS}
    assert found == {"blobs"}


def test_a_run_recorded_meanwhile_keeps_its_code(store, monkeypatch):
    user, run = store
    cleaner = make_cleaner(user)
    found = cleaner.find()
    done = user.mlw("submit", "train.py", cwd=user.home / "demo")  # uses the manifest in `found`
    assert done.code == 0, done
    cleaner.remove(found)
    digest = snapshot_digest(user, done.run)
    manifest = json.loads((user.store / "snapshots" / f"{digest}.json").read_text())
    assert all((user.store / "blobs" / s[:2] / s[2:]).exists() for _, s, _, _ in manifest["files"])


def test_code_used_again_is_recent(store):
    """Until the run is recorded, only the recent time of the manifest shows that it is in use."""
    user, run = store
    aged = time.time() - 2 * LATER
    for path in (user.store / "snapshots").iterdir():
        os.utime(path, (aged, aged))
    assert user.mlw("submit", "--dry-run", "train.py", cwd=user.home / "demo").code == 0
    young = [path for path in (user.store / "snapshots").iterdir() if path.stat().st_mtime > aged + 1]
    assert len(young) == 1


def test_files_that_a_snapshot_uses_are_kept(store, monkeypatch):
    """The cleaner runs after the snapshot has found a file in the store and before it writes its manifest."""
    user, run = store
    project = user.home / "demo"
    (project / "more.py").write_text("print(3)")  # the new manifest shares all other files
    home = UserPaths(user.store)
    cleaners = []
    real = Store.has

    def has(self, sha256, size):
        found = real(self, sha256, size)
        if found and not cleaners:
            cleaners.append(make_cleaner(user))
            cleaners[0].remove(cleaners[0].find())
        return found

    monkeypatch.setattr(Store, "has", has)
    monkeypatch.setattr(guard, "_TIMEOUT", 0.0)
    taken = take(project, "id", home.root, Path(home.digests("id")))
    manifest = json.loads(Path(home.root.snapshot(taken.digest)).read_text())
    assert all(Path(home.root.blob(sha256)).exists() for _, sha256, _, _ in manifest["files"])
    assert "a submission is storing files" in cleaners[0].notes[0]
    monkeypatch.setattr(Store, "has", real)
    again = make_cleaner(user, 0)
    again.remove(again.find())
    assert again.notes == [] and Path(home.root.snapshot(taken.digest)).exists(), "young"


def test_a_manifest_used_again_meanwhile_is_kept(store):
    """After the cleaner has found an old manifest, a snapshot uses it again. No run is recorded yet."""
    user, run = store
    aged = time.time() - 2 * LATER
    for path in (user.store / "snapshots").iterdir():
        os.utime(path, (aged, aged))
    cleaner = LocalCleaner(History(UserPaths(user.store)))
    cleaner._measure = lambda folders, kind, folder, name, age: (  # ctime cannot be set back, so only mtime counts here
        Removable(kind, folder, name, 0)
        if folder != "snapshots" or time.time() - (user.store / folder / name).stat().st_mtime > age
        else None
    )
    found = cleaner.find()
    lists = [f.name for f in found if f.folder == "snapshots"]
    assert len(lists) == 1
    assert user.mlw("submit", "--dry-run", "train.py", cwd=user.home / "demo").code == 0
    cleaner.remove(found)
    assert (user.store / "snapshots" / lists[0]).exists()


def test_a_killed_snapshot_releases_the_store(store):
    user, run = store
    code = (
        "import sys, time; from mlworkbench.remote.shared.layout import Root\n"
        "from mlworkbench.remote.shared.store_lock import *\n"
        f"with using_store(Root({str(user.store)!r})): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with guard.removing_from_store(UserPaths(user.store).root) as alone:
        assert not alone
    holder.kill()
    holder.communicate()
    cleaner = make_cleaner(user)
    assert CODE in {f.kind for f in cleaner.remove(cleaner.find())} and cleaner.notes == []


def test_a_submission_waits_for_the_cleaner(store):
    user, run = store
    with guard.removing_from_store(UserPaths(user.store).root) as alone:
        assert alone
        submit = user.start("submit", "--dry-run", "train.py", cwd=user.home / "demo")
        until(lambda: f" {submit.pid} " in waiting_for_locks())
        assert submit.poll() is None
    assert submit.wait(30) == 0
    submit.communicate()


def waiting_for_locks():
    """Return the lines of /proc/locks about processes that wait for a lock."""
    return "".join(line for line in Path("/proc/locks").read_text().splitlines(True) if "->" in line)


def test_a_killed_cleaner_is_recovered(store):
    user, run = store
    lists = user.store / "snapshots"
    manifest = lists / f"{snapshot_digest(user, run)}.json"
    manifest.rename(lists / f".clean-{manifest.name}")
    cleaner = make_cleaner(user)
    cleaner.remove(cleaner.find())
    assert manifest.exists()


def test_foreign_links_and_names_are_kept(store, tmp_path):
    user, run = store
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "placed.json").write_text("{}")
    (precious / "thesis.tex").write_text("years")
    home = user.store
    (home / "spares" / PROJECT).symlink_to(precious)
    (home / "history.db.damaged-1").symlink_to(precious / "thesis.tex")
    (home / "lib" / ("1" * 16)).symlink_to(precious)
    inner = next((home / "spares").glob("*-*-*-*/tree"))
    (inner / "link").symlink_to(precious)
    for name in (
        "blobs/notes.txt",
        "blobs/zz/x",
        "cache/mine.json",
        "lib/mine/x",
        "spares/mine/x",
        "mine.part",
        "share/x",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine")
    cleaner = make_cleaner(user)
    cleaner.remove(cleaner.find())
    assert sorted(os.listdir(precious)) == ["placed.json", "thesis.tex"]
    for name in (
        "blobs/notes.txt",
        "blobs/zz/x",
        "cache/mine.json",
        "lib/mine/x",
        "spares/mine/x",
        "mine.part",
        "share/x",
    ):
        assert (home / name).read_text() == "mine"
    for name in (f"spares/{PROJECT}", "history.db.damaged-1", f"lib/{'1' * 16}"):
        assert (home / name).is_symlink(), "we make no links there, so it is not ours"


@pytest.mark.parametrize("folder", ["blobs", "spares", "lib", "snapshots", "cache"])
def test_a_folder_that_is_a_link_is_not_entered(store, tmp_path, folder):
    user, run = store
    shutil.move(user.store / folder, tmp_path / "away")
    (user.store / folder).symlink_to(tmp_path / "away")
    before = tree(tmp_path / "away")
    cleaner = make_cleaner(user)
    cleaner.remove(cleaner.find())
    assert tree(tmp_path / "away") == before


def test_an_unreadable_manifest_keeps_all_files(store):
    user, run = store
    (user.store / "snapshots" / f"{snapshot_digest(user, run)}.json").write_text("{")
    cleaner = make_cleaner(user)
    assert [f for f in cleaner.find() if f.folder.startswith("blobs/")] == []
    assert "cannot be read" in cleaner.notes[0]


def test_programs_in_use_are_kept(store, monkeypatch):
    user, run = store
    assert [f.name for f in make_cleaner(user).find() if f.kind == PROGRAMS] == ["0" * 16]
    place = user.store / "lib" / ("0" * 16) / "remote" / "__main__.py"
    sleeper = subprocess.Popen([str(place), "30"], executable="/bin/sleep")
    try:
        until(lambda: Path(f"/proc/{sleeper.pid}/cmdline").read_bytes())  # it is empty for a moment after exec
        assert [f.name for f in make_cleaner(user).find() if f.kind == PROGRAMS] == []
    finally:
        sleeper.kill()
        sleeper.wait()
    monkeypatch.setattr(module, "_command_lines", lambda: None)
    assert [f.name for f in make_cleaner(user).find() if f.kind == PROGRAMS] == ["0" * 16], "no run is unfinished"


def test_a_folder_without_an_index_is_refused(tmp_path):
    with pytest.raises(HistoryError, match="contains no run history"):
        require_data_folder(str(tmp_path), str(tmp_path / "history.db"))
