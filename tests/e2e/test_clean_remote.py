"""`mlw experiment clean -t`: what it deletes from a target, and what it keeps."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest

from tests.e2e.attach_helpers import SCRIPT, submit_and_check, tree
from tests.machines.network import wait_until


@pytest.fixture
def attached_machine(shared_target):
    """A laptop, the machine that it is attached to, and the project."""
    remote = shared_target()
    remote.write("train.py", SCRIPT)
    return remote.laptop, remote.host, remote.project


def clean(laptop, project, *arguments):
    done = laptop.mlw("experiment", "clean", "-t", "box", *arguments, "-o", "json", cwd=project, check=True)
    return {row["kind"]: row for row in json.loads(done.out)}


def make_old(host) -> None:
    """Make all files two hours older, because clean keeps recent files, which may be in use soon."""
    for path in sorted((host.home / ".mlw").rglob("*"), reverse=True):
        then = path.lstat().st_mtime - 7200
        os.utime(path, (then, then), follow_symlinks=False)


def test_fetched_runs_are_deleted_from_target(attached_machine):
    laptop, host, project = attached_machine
    root = host.home / ".mlw"
    first = submit_and_check(laptop, project, host).run
    (project / "other.py").write_text(SCRIPT + "open('outputs/model', 'w').write('x' * 9000)\n")
    two = laptop.mlw("submit", "-c", "box", "other.py", cwd=project, check=True).run
    wait_until(lambda: not any("supervis" in line for line in host.processes().values()), "the end of supervisors")
    assert clean(laptop, project)["runs"]["can_go"] == 2
    assert clean(laptop, project)["code files"]["can_go"] == 0, "a submit may be about to use them"
    make_old(host)
    before = tree(root)
    shown = clean(laptop, project)
    assert shown["runs"]["can_go_bytes"] > 9000 and shown["code files"]["can_go"] > 0
    assert shown["snapshots"]["can_go"] == 2 and shown["mlw programs"]["can_go"] == 0
    assert {path: what for path, what in tree(root).items() if "/lib/" not in path} == {
        path: what for path, what in before.items() if "/lib/" not in path
    }, "nothing goes without --yes"
    listed = laptop.mlw("experiment", "clean", "-t", "box", cwd=project, check=True)
    assert "delete with: mlw experiment clean -t box --yes" in listed.err and "Deletable" in listed.out
    gone = clean(laptop, project, "--yes")
    assert gone["runs"]["things"] == 2 and gone["runs"]["bytes"] == shown["runs"]["can_go_bytes"]
    assert list((root / "runs").iterdir()) == [] and not list((root / "blobs").glob("??/*"))
    for run in (first, two):
        assert laptop.info(run)["status"] == "Completed" and laptop.mlw("logs", run).out.startswith("on ")
    assert (laptop.folder(two) / "work/outputs/model").stat().st_size == 9000
    submit_and_check(laptop, project, host)


def test_unfetched_results_stay_on_target(attached_machine):
    laptop, host, project = attached_machine
    root = host.home / ".mlw"
    config = project / "aml_config" / "box.runconfig"
    config.write_text(config.read_text().replace("FetchOutputs: all", "FetchOutputs: none"))
    (project / "other.py").write_text("open('outputs/model', 'w').write('x')\n")
    unfetched = laptop.mlw("submit", "-c", "box", "other.py", cwd=project, check=True).run
    (project / "long.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    going = laptop.mlw("submit", "--detach", "-c", "box", "long.py", cwd=project, check=True).run
    foreign = root / "runs" / "of-another-laptop"
    shutil.copytree(root / "runs" / unfetched, foreign, symlinks=True)
    spec = json.loads((foreign / "spec.json").read_text())
    (foreign / "spec.json").write_text(json.dumps({**spec, "id": foreign.name}))
    mine = [
        root / relative
        for relative in ("runs/notes.txt", "runs/folder/keep", "blobs/ab/mine", "lib/mine", "spares/mine", "x")
    ]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    host.run("chown", "-R", f"{host.user}:", str(root))  # the test created some files as root
    make_old(host)
    clean(laptop, project, "--yes")
    assert {path.name for path in (root / "runs").iterdir()} >= {unfetched, going, foreign.name, "notes.txt", "folder"}
    assert all(path.read_text() == "mine" for path in mine), "what has no mark of ours is not ours"
    assert not any(name.startswith("clean") for name in os.listdir(root))
    laptop.mlw("history", "download", unfetched, "-d", "got", cwd=project, check=True)
    assert (project / "got" / "model").read_text() == "x"
    assert clean(laptop, project)["runs"]["can_go"] == 1


LINKS = """
import os
os.makedirs("ckpt/model")
open("ckpt/best.pt", "w").write("weights")
open("ckpt/model/only", "w").write("the only copy")
os.symlink("../ckpt/best.pt", "outputs/best.pt")
os.symlink("../ckpt/model", "outputs/model\\x1b[31m")
os.symlink("/etc/hostname", "outputs/outside")
os.mkfifo("outputs/fifo")
"""


def test_linked_outputs_are_fetched_or_kept_on_target(attached_machine):
    laptop, host, project = attached_machine
    root = host.home / ".mlw"
    (project / "links.py").write_text(LINKS)
    done = laptop.mlw("submit", "-c", "box", "links.py", cwd=project, check=True)
    fetched = laptop.folder(done.run) / "work" / "outputs" / "best.pt"
    assert fetched.read_text() == "weights" and not fetched.is_symlink()
    named = ["outputs/fifo: fifo", "outputs/outside -> /etc/hostname: link that leads out of the working copy"]
    for line in [*named, "-> ../ckpt/model: link to a folder"]:
        assert line in done.err and any(line in left for left in laptop.info(done.run)["left_out"])
    assert "\x1b" not in done.err + "".join(laptop.info(done.run)["left_out"])
    assert f"files that were not collected are in ~/.mlw/runs/{done.run}/work on box" in done.err
    refused = laptop.mlw("computetarget", "detach", "box", "--purge", "--yes", cwd=project)
    assert refused.code == 75 and "history download" not in refused.err, "which cannot bring it"
    dry = laptop.mlw("computetarget", "detach", "box", "--purge", "--dry-run", cwd=project, check=True)
    assert "would be refused" in dry.err and done.run in dry.err and "scp -r" in dry.err, dry
    dry = laptop.mlw("computetarget", "detach", "box", "--purge", "--dry-run", "--force", cwd=project, check=True)
    assert "would be refused" not in dry.err
    command = re.search(r"scp -r .*-work", refused.err)
    assert command and f":.mlw/runs/{done.run}/work" in command[0] and "--force" in refused.err, refused
    make_old(host)
    wait_until(lambda: not any("supervis" in line for line in host.processes().values()), "the end of supervisors")
    [kept] = clean(laptop, project, "--yes")["runs"]["kept"]
    assert kept["things"] == 1 and "mlw experiment clean -t box --yes --unfetched" in kept["reason"]
    assert (root / "runs" / done.run / "work/ckpt/model/only").read_text() == "the only copy"
    listed = laptop.mlw("experiment", "clean", "-t", "box", cwd=project, check=True)
    assert kept["runs"] == [done.run]
    assert re.search(rf"kept: runs, 1 \(.*\) \({done.run}\): some outputs exist only on", listed.err), listed
    shown = laptop.mlw("experiment", "clean", "-t", "box", "--unfetched", "--recent", cwd=project, check=True)
    assert "delete with: mlw experiment clean -t box --unfetched --recent --yes\n" in shown.err
    assert clean(laptop, project, "--unfetched", "--yes")["runs"]["things"] == 1
    assert not (root / "runs" / done.run).exists() and fetched.exists()


def test_clean_of_unattached_target(attached_machine):
    laptop, _, project = attached_machine
    laptop.mlw("submit", "-c", "local", "train.py", cwd=project, check=True)
    laptop.mlw("computetarget", "detach", "box", "--keep-files", cwd=project, check=True)
    for name in ("docker", "box"):
        done = laptop.mlw("computetarget", "detach", name, "--purge", cwd=project)
        assert done.code != 0 and "attached" in done.err and "cannot prompt" not in done.err, done
    done = laptop.mlw("experiment", "clean", "-t", "box", "--yes", cwd=project)
    assert done.code == 69 and "mlw computetarget attach remote --name box" in done.err
    listed = laptop.mlw("experiment", "clean", "-t", "local", cwd=project)
    assert listed.code == 0 and "warm working copies" in listed.out
    listed = laptop.mlw("experiment", "clean", "--recent", cwd=project)
    assert "delete with: mlw experiment clean --recent --yes\n" in listed.err
    listed = laptop.mlw("experiment", "clean", "-t", "local", "--unfetched", cwd=project)
    assert listed.code == 2 and "hint: remove --unfetched" in listed.err
    wrong = laptop.mlw("experiment", "clean", "-t", "nosuch", cwd=project)
    assert wrong.code == 66
