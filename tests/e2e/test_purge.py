"""``detach --purge`` with two laptops on one account deletes only files of this laptop that were fetched."""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.e2e.remote_target import RemoteTarget, content, second_laptop
from tests.machines.network import read

PURGE = ("--purge", "--yes")
SHARING = """
import os, pathlib
pathlib.Path(os.environ["AZUREML_NATIVE_SHARE_DIRECTORY"], "checkpoint").write_text("precious")
pathlib.Path("outputs/model").write_text("x" * 9000)
print("said")
"""


@pytest.fixture
def two_laptops(shared_target, tmp_path):
    """Two laptops with separate projects, attached to the same account of one machine."""
    first = shared_target()
    first.write("share.py", SHARING)
    with second_laptop(tmp_path / "second") as other:
        yield first, RemoteTarget(other, first.host, project=other.project("near", share=SHARING))


def detach(remote, *arguments):
    return remote.mlw("computetarget", "detach", remote.name, *arguments)


def rows(remote, *arguments):
    done = detach(remote, "--purge", "--dry-run", "-o", "json", *arguments)
    assert done.code == 0, done
    return json.loads(done.out)


def of_kind(entries, kind):
    return {row["name"]: row for row in entries if row["kind"] == kind}


def make_old(root, days):
    """Backdate the modification times of a folder."""
    then = time.time() - days * 86400
    for path in [root, *root.rglob("*")]:
        os.utime(path, (then, then), follow_symlinks=False)


def test_unfetched_results_of_another_laptop_prevent_purge(two_laptops):
    first, second = two_laptops
    run = first.detach("share.py")
    first.await_end(run)
    mine = second.submit("share.py", check=True).run
    root = first.host.home / ".mlw"
    refused = detach(second, *PURGE)
    assert refused.code == 75 and "nothing was detached" in refused.err, refused
    assert run in refused.err and mine not in refused.err and "--others-older-than" in refused.err
    assert content(first.target_folder(run) / "work/outputs/model") == b"x" * 9000
    assert (second.project / "aml_config/box.compute").exists()
    assert detach(second, *PURGE, "--force").code == 75, "it is not this laptop's to give up"

    entries = rows(second)
    runs, laptops = of_kind(entries, "run"), of_kind(entries, "laptop")
    assert runs[run]["state"] == "not fetched" and runs[mine]["state"] == "fetched"
    assert runs[run]["project"] == "far" and runs[run]["bytes"] > 9000 and runs[run]["date"].startswith("20")
    assert len(laptops) == 2 and [row["state"] for row in laptops.values()].count("this laptop") == 1
    assert set(of_kind(entries, "project")) == {"far", "near"}
    assert len(of_kind(entries, "shared folder")) == 2
    shown = detach(second, "--purge", "--dry-run")
    assert shown.code == 0 and "Kind" in shown.out and "the purge would be refused: " in shown.err and run in shown.err
    for age in ("0d", "23h"):
        refused = detach(second, *PURGE, "--others-older-than", age)
        assert refused.code == 2 and "the minimum is 1d" in refused.err, refused
    assert "invalid age 'abc'" in detach(second, *PURGE, "--others-older-than", "abc").err

    first.mlw("logs", "-f", run, check=True)  # fetches the results and acknowledges them on the target
    ticking = first.detach("work.py", "k", "--ticks")
    first.await_ticks(ticking)
    first.mlw("cancel", ticking, "--grace", "0", check=True)  # the log is fetched, and nothing else remains to fetch
    gone = detach(second, *PURGE)
    assert gone.code == 0, gone
    assert not list((root / "runs").glob("*")) and not (root / "envs").exists() and not (root / "blobs").exists()
    shared = sorted(root.glob("share/*/checkpoint"))
    assert [read(path) for path in shared] == ["precious", "precious"], "shared folders have a flag of their own"
    assert "--shared-folders" in gone.err
    assert first.laptop.info(run)["status"] == "Completed"
    again = first.submit("share.py", check=True)
    assert first.laptop.info(again.run)["status"] == "Completed", "the other laptop is still attached"


def test_shared_folders_need_a_separate_flag_and_confirmation(two_laptops):
    first, second = two_laptops
    second.submit("share.py", check=True)
    root = first.host.home / ".mlw"
    arguments = ("computetarget", "detach", "box", "--purge", "--shared-folders")
    screen = second.laptop.spawn(*arguments, cwd=second.project)
    screen.expect(r"Delete .*\[y/N\]")
    screen.sendline("y")
    screen.expect(r"shared folder.*\[y/N\]")
    screen.sendline("n")
    screen.expect("nothing was detached")
    screen.wait()
    assert [read(path) for path in root.glob("share/*/checkpoint")] == ["precious"]
    gone = detach(second, *PURGE, "--shared-folders")
    assert gone.code == 0 and not (root / "share").exists(), gone


def test_purge_of_expired_results_of_another_laptop(two_laptops):
    first, second = two_laptops
    run = first.detach("share.py")
    first.await_end(run)
    root = first.host.home / ".mlw"
    assert detach(second, *PURGE, "--others-older-than", "90d").code == 75, "it was there today"
    make_old(root, 100)
    assert detach(second, *PURGE, "--others-older-than", "120d").code == 75
    assert of_kind(rows(second, "--others-older-than", "90d"), "run")[run]["state"] == "not fetched, expired"
    gone = detach(second, *PURGE, "--others-older-than", "90d", "--shared-folders")
    assert gone.code == 0 and run in gone.err and not root.exists(), gone


def test_purge_of_linked_data_folder(laptop, machine):
    """~/.mlw is a link. The purge deletes mlw's files in the linked folder, and the folder if nothing else is in it."""
    host = machine()
    disk = host.home / "disk"
    disk.mkdir()
    (disk / "thesis.txt").write_text("mine")
    (host.home / ".mlw").symlink_to(disk)
    host.run("chown", "-hR", f"{host.user}:", str(disk), str(host.home / ".mlw"))
    remote = RemoteTarget(laptop, host)
    remote.submit("work.py", "k", check=True)
    assert (disk / "runs").is_dir()
    gone = detach(remote, *PURGE)
    assert gone.code == 0 and "thesis.txt" in gone.err, gone
    assert [path.name for path in disk.iterdir()] == ["thesis.txt"]
    (disk / "thesis.txt").unlink()
    RemoteTarget(laptop, host, name="again", project=remote.project)
    assert remote.mlw("computetarget", "detach", "again", *PURGE).code == 0
    assert not disk.exists() and not (host.home / ".mlw").is_symlink()
