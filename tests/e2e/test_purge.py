"""``detach --purge`` with two laptops on one account: nothing goes that is not this laptop's, or not fetched yet."""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.e2e.elsewhere import Away, content, second_laptop
from tests.machines.network import read

PURGE = ("--purge", "--yes")
SHARING = """
import os, pathlib
pathlib.Path(os.environ["AZUREML_NATIVE_SHARE_DIRECTORY"], "checkpoint").write_text("precious")
pathlib.Path("outputs/model").write_text("x" * 9000)
print("said")
"""


@pytest.fixture
def two(shared_target, tmp_path):
    """The same account of one machine, attached by two laptops, each with a project of its own."""
    first = shared_target()
    first.write("share.py", SHARING)
    with second_laptop(tmp_path / "second") as other:
        yield first, Away(other, first.host, project=other.project("near", share=SHARING))


def leave(away, *words):
    return away.mlw("computetarget", "detach", away.name, *words)


def rows(away, *words):
    done = leave(away, "--purge", "--dry-run", "-o", "json", *words)
    assert done.code == 0, done
    return json.loads(done.out)


def of_kind(found, kind):
    return {row["name"]: row for row in found if row["kind"] == kind}


def make_old(root, days):
    """As if nothing had been written there for so long."""
    then = time.time() - days * 86400
    for path in [root, *root.rglob("*")]:
        os.utime(path, (then, then), follow_symlinks=False)


def test_results_of_another_laptop_keep_a_purge_away(two):
    first, second = two
    run = first.detach("share.py")
    first.await_end(run)
    mine = second.submit("share.py", check=True).run
    root = first.host.home / ".mlw"
    refused = leave(second, *PURGE)
    assert refused.code == 75 and "nothing was detached" in refused.err, refused
    assert run in refused.err and mine not in refused.err and "--others-older-than" in refused.err
    assert content(first.there(run) / "work/outputs/model") == b"x" * 9000
    assert (second.project / "aml_config/box.compute").exists()
    assert leave(second, *PURGE, "--force").code == 75, "it is not this laptop's to give up"

    found = rows(second)
    runs, laptops = of_kind(found, "run"), of_kind(found, "laptop")
    assert runs[run]["state"] == "not fetched" and runs[mine]["state"] == "fetched"
    assert runs[run]["project"] == "far" and runs[run]["bytes"] > 9000 and runs[run]["date"].startswith("20")
    assert len(laptops) == 2 and [row["state"] for row in laptops.values()].count("this laptop") == 1
    assert set(of_kind(found, "project")) == {"far", "near"}
    assert len(of_kind(found, "shared folder")) == 2
    shown = leave(second, "--purge", "--dry-run")
    assert shown.code == 0 and "Kind" in shown.out and "the purge would be refused: " in shown.err and run in shown.err
    for age in ("0d", "23h"):
        refused = leave(second, *PURGE, "--others-older-than", age)
        assert refused.code == 2 and "the minimum is 1d" in refused.err, refused
    assert "invalid age 'abc'" in leave(second, *PURGE, "--others-older-than", "abc").err

    first.mlw("logs", "-f", run, check=True)  # fetches, and acknowledges it there
    ticking = first.detach("work.py", "k", "--ticks")
    first.await_ticks(ticking)
    first.mlw("cancel", ticking, "--grace", "0", check=True)  # has its log by now, and there is nothing else
    gone = leave(second, *PURGE)
    assert gone.code == 0, gone
    assert not list((root / "runs").glob("*")) and not (root / "envs").exists() and not (root / "blobs").exists()
    shared = sorted(root.glob("share/*/checkpoint"))
    assert [read(path) for path in shared] == ["precious", "precious"], "shared folders have a flag of their own"
    assert "--shared-folders" in gone.err
    assert first.laptop.info(run)["status"] == "Completed"
    again = first.submit("share.py", check=True)
    assert first.laptop.info(again.run)["status"] == "Completed", "the other laptop is still attached"


def test_shared_folders_go_with_their_own_flag_and_question(two):
    first, second = two
    second.submit("share.py", check=True)
    root = first.host.home / ".mlw"
    words = ("computetarget", "detach", "box", "--purge", "--shared-folders")
    screen = second.laptop.spawn(*words, cwd=second.project)
    screen.expect(r"Delete .*\[y/N\]")
    screen.sendline("y")
    screen.expect(r"shared folder.*\[y/N\]")
    screen.sendline("n")
    screen.expect("nothing was detached")
    screen.wait()
    assert [read(path) for path in root.glob("share/*/checkpoint")] == ["precious"]
    gone = leave(second, *PURGE, "--shared-folders")
    assert gone.code == 0 and not (root / "share").exists(), gone


def test_a_laptop_that_never_returns(two):
    first, second = two
    run = first.detach("share.py")
    first.await_end(run)
    root = first.host.home / ".mlw"
    assert leave(second, *PURGE, "--others-older-than", "90d").code == 75, "it was there today"
    make_old(root, 100)
    assert leave(second, *PURGE, "--others-older-than", "120d").code == 75
    assert of_kind(rows(second, "--others-older-than", "90d"), "run")[run]["state"] == "not fetched, expired"
    gone = leave(second, *PURGE, "--others-older-than", "90d", "--shared-folders")
    assert gone.code == 0 and run in gone.err and not root.exists(), gone


def test_a_link_in_place_of_the_folder(laptop, machine):
    """What it leads to is deleted, as far as it is ours."""
    host = machine()
    disk = host.home / "disk"
    disk.mkdir()
    (disk / "thesis.txt").write_text("mine")
    (host.home / ".mlw").symlink_to(disk)
    host.run("chown", "-hR", f"{host.user}:", str(disk), str(host.home / ".mlw"))
    away = Away(laptop, host)
    away.submit("work.py", "k", check=True)
    assert (disk / "runs").is_dir()
    gone = leave(away, *PURGE)
    assert gone.code == 0 and "thesis.txt" in gone.err, gone
    assert [path.name for path in disk.iterdir()] == ["thesis.txt"]
    (disk / "thesis.txt").unlink()
    Away(laptop, host, name="again", project=away.project)
    assert away.mlw("computetarget", "detach", "again", *PURGE).code == 0
    assert not disk.exists() and not (host.home / ".mlw").is_symlink()
