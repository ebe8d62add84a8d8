"""Invariants under local faults, as seen on the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from tests.conftest import MLW, end_processes
from tests.supervisor.conftest import alive, until


@pytest.mark.parametrize("fault", ["recorded:kill", "recorded:sleep=1.5"])
def test_listing_between_row_and_folder_creation_changes_nothing(user, fault):
    project = user.project("demo", train="print('ran')")
    first = user.start("submit", "--key", "k", "train.py", cwd=project, env={"MLW_FAILPOINT": fault})
    until(lambda: user.runs())
    for _ in range(3):
        user.mlw("ps", cwd=project)
    first.communicate()
    done = user.mlw("submit", "--key", "k", "train.py", cwd=project)
    assert (done.code, done.out) == (0, "ran\n"), done
    assert [run["status"] for run in user.runs()] == ["Completed"]


def test_cancel_of_submit_that_died_before_creating_its_folder(user, tmp_path):
    project = user.project("demo", train=f"open({str(tmp_path / 'ran')!r}, 'w')")
    user.mlw("submit", "train.py", cwd=project, env={"MLW_FAILPOINT": "recorded:kill"})
    run = user.runs()[0]["run_id"]
    assert user.mlw("cancel", run, cwd=project).code == 0
    assert user.info(run)["status"] == "Canceled"
    assert not (tmp_path / "ran").exists()


def test_large_metrics_are_complete(user):
    script = "from mlworkbench import log\nfor n in range(150000): log('loss', n)\nlog('final', 1)"
    project = user.project("demo", train=script)
    run = user.mlw("submit", "--detach", "train.py", cwd=project).run
    until(lambda: user.info(run)["status"] == "Completed")
    record = user.info(run)
    assert (record["loss"], record["final"]) == (149999, 1)
    user.mlw("history", "rebuild")
    assert user.info(run)["loss"] == 149999


HOSTILE = """
import os
from mlworkbench import log

log("loss", 0.5)
metrics = os.environ["MLW_RUN_FOLDER"] + "/metrics/"
sparse = {f"{metrics}junk{n}": 4 * 2**20 - 1 for n in range(18)}
for path, size in {**sparse, metrics + "vast": 2**42, "outputs/vast": 2**42}.items():
    open(path, "w").close()
    os.truncate(path, size)
os.mkdir(metrics + "folder")
os.mkfifo(metrics + "fifo")
os.symlink("/etc/passwd", metrics + "link")
print("said")
"""


def test_script_with_junk_in_run_folder_ends_normally(user):
    """Sparse files cost the script nothing, but they once blocked the end event and hung every command."""
    project = user.project("demo", train=HOSTILE)
    done = user.mlw("submit", "train.py", cwd=project)
    assert (done.code, done.out) == (0, "said\n"), done
    record = user.info(done.run)
    assert (record["status"], record["loss"]) == ("Completed", 0.5)
    left = "\n".join(record["left_out"])
    for message in ("metrics/folder: not a file", "metrics/fifo: not a file", "metrics/link: not a file"):
        assert message in left
    assert "metrics/vast: skipped a line longer than 4 MiB" in left and "outputs/vast: not hashed" in left
    assert re.search("2[01] files with", left), left  # with or without the list of packages, which may come later
    assert "Skipped:" in done.err and "outputs/vast: not hashed" in done.err
    assert user.mlw("history", "rebuild").code == 0
    assert user.info(done.run)["loss"] == 0.5


@pytest.mark.parametrize(
    "damage",
    ["created", "folder", "nested", "fifo", "seq", "time"],
)
def test_damaged_run_folder_affects_only_itself(user, damage):
    project = user.project("demo", train="print(1)")
    good, bad = (user.mlw("submit", "train.py", cwd=project).run for _ in range(2))
    folder = user.folder(bad)
    spec = json.loads((folder / "spec.json").read_text())
    if damage == "created":
        (folder / "spec.json").write_text(json.dumps({**spec, "created": "now"}))
    elif damage == "folder":
        (folder / "spec.json").unlink()
        (folder / "spec.json").mkdir()
    elif damage == "nested":
        (folder / "spec.json").write_text("[" * 100_000)
    elif damage == "fifo":
        os.mkfifo(folder / "metrics" / "1-a")
    elif damage == "seq":
        (folder / "events.jsonl").write_text('{"w": "sup", "seq": 1e999, "t": 1, "kind": "accepted", "data": {}}\n')
    elif damage == "time":
        (folder / "events.jsonl").write_text('{"w": "sup", "seq": 1, "t": 1e20, "kind": "accepted", "data": {}}\n')
    assert user.mlw("history", "rebuild").code == 0
    listed = [row["run_id"] for row in user.runs()]
    assert good in listed
    assert user.mlw("submit", "train.py", cwd=project).code == 0


def test_current_folder_is_not_imported(user, tmp_path):
    project = user.project("demo", train="print('fine')")
    for name in ("click", "yaml", "apsw", "typing", "json"):
        (project / f"{name}.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')")
    (project / "x.dist-info").mkdir()
    (project / "x.dist-info" / "entry_points.txt").write_text("[mlworkbench.targets]\nlocal = click:evil\n")
    done = user.mlw("ps", cwd=project, env={"PYTHONPATH": ":/nowhere"})
    assert done.code == 0, done
    if (tmp_path / "PWNED").exists():
        pytest.fail("a module of the project was imported")


def test_restored_contact_is_reported(user):
    project = user.project("demo", train="import time; print('up'); time.sleep(1000)")
    run = user.mlw("submit", "--detach", "train.py", cwd=project).run
    owner = user.folder(run) / "claim" / "owner.json"
    supervisor = json.loads(owner.read_text())["pid"]
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not alive(supervisor))  # until then, it holds the lock of the run
    truth = owner.read_text()
    owner.write_text(json.dumps({**json.loads(truth), "machine": "elsewhere"}))
    assert "started on another machine" in user.info(run)["contact"]
    refused = user.mlw("cancel", run)
    assert refused.code == 69
    assert f"mlw cancel --forget {run}" in refused.err
    owner.write_text(truth)
    assert user.info(run)["contact"] == "in contact"
    assert user.mlw("cancel", run).code == 0


def test_permanently_lost_machine(user):
    project = user.project("demo", train="import time; print('up'); time.sleep(1000)")
    run = user.mlw("submit", "--detach", "train.py", cwd=project).run
    assert user.mlw("cancel", "--forget", run).code == 0
    record = user.info(run)
    assert (record["status"], record["ending"]) == ("Failed", "target lost the run")


def test_account_without_home(user):
    project = user.project("demo", train="import time; print('up'); time.sleep(1000)")
    env = {name: value for name, value in user.env.items() if name != "MLW_HOME"}
    done = subprocess.run([str(MLW), "ps"], cwd=project, env={**env, "HOME": ""}, capture_output=True)
    assert b"Traceback" not in done.stderr


def test_script_exit_code_130_is_not_ctrl_c(user):
    project = user.project("demo", train="import sys; sys.exit(130)")
    assert user.mlw("submit", "train.py", cwd=project).code == 130


def test_ctrl_c_during_launch_reports_run_state(user):
    project = user.project("demo", train="import time; print('up'); time.sleep(1000)")
    first = user.start("submit", "train.py", cwd=project, env={"MLW_FAILPOINT": "launching:sleep=5"})
    assert first.stderr.readline().startswith(b"RunId: ")
    first.send_signal(signal.SIGINT)
    _, stderr = first.communicate()
    assert b"was not started; start it with 'mlw experiment resume" in stderr
    assert first.returncode == -signal.SIGINT


def test_same_key_with_other_script_is_refused(user):
    project = user.project("demo", train="print(1)", other="print(2)")
    user.mlw("submit", "--key", "k", "train.py", cwd=project)
    assert user.mlw("submit", "--key", "k", "other.py", cwd=project).code == 2


def test_damaged_mlw_program_is_repaired(user):
    project = user.project("demo", train="print('fine')")
    user.mlw("submit", "train.py", cwd=project)
    (installed,) = user.store.glob("lib/*/remote/supervisor.py")
    installed.write_text("def broken(")
    for cached in installed.parent.glob("__pycache__/supervisor*"):
        cached.unlink()
    assert user.mlw("submit", "train.py", cwd=project).out == "fine\n"


def fill(path):
    with open(path, "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            continue


@pytest.fixture
def small_store(user):
    """Put the user's store on a separate disk of 8 MB, unmounted after the test."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    user.store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(user.store)], check=True)
    yield user.store
    end_processes(user.store)  # they would keep using the unmounted disk
    while os.path.ismount(user.store):
        subprocess.run(["umount", "-l", str(user.store)], check=True)


def test_full_disk_is_reported(user, small_store):
    project = user.project("demo", train="print(1)")
    user.mlw("submit", "train.py", cwd=project)
    with pytest.raises(OSError, match="No space"):
        fill(small_store / "filler")
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 74, done
    assert "full" in done.err or "No space" in done.err, done
    assert "Traceback" not in done.err
    (small_store / "filler").unlink()
    assert user.mlw("submit", "train.py", cwd=project).out == "1\n"


def test_remove_run(user):
    project = user.project("demo", train="print(1)")
    first, second = (user.mlw("submit", "train.py", cwd=project).run for _ in range(2))
    assert user.mlw("history", "remove", first, cwd=project).code != 0, "asks first, and there is nobody to answer"
    assert len(user.runs()) == 2
    assert user.mlw("history", "remove", "--yes", first, cwd=project).code == 0
    assert [run["run_id"] for run in user.runs()] == [second]
    assert not user.folder(first).exists()


def test_follower_started_while_another_reads_the_end(user):
    """The recorded state and the read position must match. Otherwise this follower waits forever."""
    from mlworkbench.follow import Follower
    from mlworkbench.history.store import History
    from mlworkbench.paths import UserPaths
    from mlworkbench.targets.target_factory import open_target

    waits = f"import os, time\nwhile not os.path.exists({str(user.home / 'go')!r}): time.sleep(0.01)\nprint('done')"
    project = user.project("demo", train=waits)
    done = user.mlw("submit", "--detach", "train.py", cwd=project)
    history = History(UserPaths(user.store))
    before = history.get(done.run)
    (user.home / "go").write_text("")
    until(lambda: user.info(done.run)["status"] == "Completed")  # another process has read the end in the meantime
    assert not before.status.final
    follower = Follower(history, before, open_target(before.spec.compute, history.paths))
    assert b"".join(follower.chunks()) == b"done\n"
    assert follower.run.status.final
    history.close()


def test_cancel_while_supervisor_is_stopped(user):
    """SIGSTOP, as from a debugger or a scheduler, does not delay the cancel."""
    project = user.project("demo", train="import time\nprint('up', flush=True)\ntime.sleep(1000)")
    run = user.mlw("submit", "--detach", "train.py", cwd=project).run
    folder = user.folder(run)
    until(lambda: (folder / "started.json").exists())
    pid = json.loads((folder / "claim/owner.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    done = user.mlw("cancel", run, cwd=project)
    assert done.code == 0 and "has ended: Canceled" in done.err, done
