"""Faults on the target, reported by their cause: reboot, full disk, lost folder, dead supervisor, dead engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.conftest import need
from tests.e2e.remote_target import RemoteTarget, content, digest, second_laptop, ticks
from tests.machines.network import read, wait_until


@pytest.fixture
def remote(shared_target):
    return shared_target()


@pytest.fixture(params=["remote", "remotedocker"])
def any_target(request, shared_target):
    return shared_target(request.param)


@pytest.fixture
def contained(shared_target, engine):
    return shared_target("remotedocker")


def ending(remote, run):
    record = remote.laptop.info(run)
    return record["status"], record["ending"]


def left_over(remote, run):
    """Return processes of the run that still exist, without agents, which belong to a connection."""
    return [line for line in remote.host.processes().values() if run in line or "work.py" in line]


# -- machine ---------------------------------------------------------------------------------------------------------


def test_reboot_during_run(remote):
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    following = remote.start("logs", "-f", run)
    remote.host.reboot()
    out, err = following.communicate(timeout=90)
    assert following.returncode == 75, err
    assert ending(remote, run) == ("Failed", "target rebooted")
    assert "rebooted" in remote.laptop.info(run)["cause"]
    assert out == content(remote.target_folder(run) / "log") == content(remote.laptop.folder(run) / "log")
    assert (remote.count("start", "k"), remote.count("end", "k")) == (1, 0), "it was not started again"
    assert remote.submit("work.py", "k2").code == 0, "and the machine is as good as before"


@pytest.mark.parametrize("kind", ["remote", "remotedocker"])
def test_restart_of_container_that_is_target(laptop, machine, kind):
    """After a restart, a rented pod has the same boot ID but new processes. An engine in it has the old containers."""
    host = machine(docker="own" if kind == "remotedocker" else "no")
    image = host.load_image() if kind == "remotedocker" else None
    remote = RemoteTarget(laptop, host, kind, image=image)
    run, other = remote.detach("work.py", "k", "--ticks"), remote.detach("work.py", "k2", "--ticks")
    for run_id in (run, other):
        remote.await_ticks(run_id)
    # An open file prevents the reuse of the namespace's inode number. Test with such a file and without one.
    with open(f"/proc/{host.pid}/ns/pid") if kind == "remote" else nullcontext():
        host.restart()
    assert remote.mlw("status", run).code == 0
    assert ending(remote, run) == ("Failed", "target restarted")
    assert "restarted" in remote.laptop.info(run)["cause"]
    done = remote.mlw("cancel", other)
    assert done.code == 0 and "Failed (target restarted)" in done.err, done
    assert ending(remote, other) == ("Failed", "target restarted")
    assert remote.count("start", "k") == 1 and remote.count("end", "k") == 0
    if image:
        assert host.run("docker", "ps", "--all", "--quiet").stdout == ""
    assert remote.submit("work.py", "k3").code == 0, "and the machine is as good as before"


def test_dead_supervisor_is_replaced_at_next_contact(any_target):
    run = any_target.detach("work.py", "k", "--ticks")
    any_target.await_ticks(run)
    pid = json.loads(read(any_target.target_folder(run) / "claim/owner.json"))["pid"]
    any_target.host.run("kill", "-9", str(pid))
    [shown] = any_target.ps()
    assert (shown["status"], shown["contact"]) == ("Running", "in contact")
    any_target.release()
    assert any_target.mlw("logs", "-f", run).code == 0
    any_target.assert_complete(run, "k")


def test_remote_run_folder_is_deleted(remote):
    run, other = remote.detach("work.py", "k", "--ticks"), remote.detach("work.py", "k2", "--ticks")
    remote.await_ticks(run)
    assert remote.mlw("logs", run).code == 0
    while remote.host.run("rm", "-rf", str(remote.target_folder(run)), check=False).returncode:
        pass  # the supervisor has just written a file into the folder
    followed = remote.mlw("logs", "-f", run)
    assert followed.code == 75, followed
    assert ending(remote, run) == ("Failed", "target lost the run")
    assert "the run's folder is gone" in followed.err
    assert ticks(content(remote.laptop.folder(run) / "log")), "what had come home stays"
    assert [row["run_id"] for row in remote.ps()] == [other]
    remote.release()
    assert remote.mlw("logs", "-f", other).code == 0
    remote.assert_complete(other, "k2")


def test_temporarily_unmounted_home_loses_nothing(remote):
    """An unmounted NFS home says nothing about the state of a run."""
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    assert remote.ps()[0]["status"] == "Running"
    mlw = remote.host.home / ".mlw"
    mlw.rename(mlw.with_name(".hidden"))
    shown = remote.ps()
    assert [(row["run_id"], row["status"]) for row in shown] == [(run, "Running")], shown
    assert "is the home folder on the target mounted?" in shown[0]["contact"]
    # The folder that is visible without the mount may contain other runs.
    other = remote.detach("work.py", "k2")
    remote.await_end(other)
    assert remote.laptop.info(run)["status"] == "Running", "another folder in its place is no evidence either"
    shutil.rmtree(mlw)
    mlw.with_name(".hidden").rename(mlw)
    remote.release()
    assert remote.mlw("logs", "-f", run).code == 0
    remote.assert_complete(run, "k")


# -- disk ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow(shared_target):
    """A machine with little disk space."""
    remote = shared_target(disk="140M")
    disk = os.statvfs(remote.host.home)
    (remote.host.home / "ballast").write_bytes(bytes(disk.f_bavail * disk.f_frsize - (17 << 20)))
    return remote


def test_disk_full_during_upload(narrow):
    remote = narrow
    (remote.project / "large.bin").write_bytes(os.urandom(30 << 20))
    done = remote.submit("work.py", "k")
    assert done.code == 69, done
    assert "No space left on device" in done.err and f"the disk that holds {remote.host.home}/.mlw is full" in done.err
    assert "hint:" in done.err and done.run in done.err.split("hint:")[1]
    (remote.project / "large.bin").unlink()
    ballast = remote.host.home / "ballast"
    os.truncate(ballast, ballast.stat().st_size - (2 << 20))  # the uploaded part of large.bin uses the rest
    assert remote.mlw("cancel", done.run).code == 0
    assert ending(remote, done.run) == ("Canceled", "cancelled")
    again = remote.submit("work.py", "k2")
    assert again.code == 0, again
    remote.assert_complete(again.run, "k2")
    assert remote.count("start", "k") == 0


FILL = """
import sys
print("begun", flush=True)
file = sys.stdout if sys.argv[1] == "log" else open("outputs/large", "w")
try:
    for _ in range(40):
        file.write("x" * (1 << 20))
        file.flush()
except OSError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
"""


@pytest.mark.parametrize("where", ["log", "outputs"])
def test_disk_full_during_run(narrow, where):
    remote = narrow
    remote.write("fill.py", FILL)
    done = remote.submit("fill.py", where)
    assert done.code == 3, done.err
    record = remote.laptop.info(done.run)
    assert record["ending"] == "failed (exit 3)"
    assert f"the disk that holds {remote.target_folder(done.run)} is full" in record["cause"]
    assert digest(remote.laptop.folder(done.run) / "log") == digest(remote.target_folder(done.run) / "log")
    remote.assert_outputs_fetched(done.run)


def test_read_only_home(narrow):
    remote = narrow
    assert remote.submit("work.py", "k").code == 0
    remote.host.run("mount", "-o", "remount,ro", str(remote.host.home))
    done = remote.submit("work.py", "k2")
    assert done.code in (69, 75), done
    assert "Read-only file system" in done.err and str(remote.host.home) in done.err
    remote.host.run("mount", "-o", "remount,rw", str(remote.host.home))
    resumed = remote.mlw("experiment", "resume", done.run)
    assert resumed.code == 0, resumed
    remote.assert_complete(done.run, "k2")


# -- cancel and time limits ------------------------------------------------------------------------------------------


def test_cancel(any_target):
    run = any_target.detach("work.py", "k", "--ticks")
    any_target.await_ticks(run)
    cancelled = any_target.mlw("cancel", run)
    assert cancelled.code == 0, cancelled
    assert ending(any_target, run) == ("Canceled", "cancelled")
    assert "has ended: Canceled" in cancelled.err
    wait_until(lambda: left_over(any_target, run) == [], "the end of all its processes")
    if any_target.host.engine:
        assert any_target.host.engine.containers() == []
    followed = any_target.mlw("logs", "-f", run)
    assert followed.code == 143
    assert (
        content(any_target.laptop.folder(run) / "log")
        == content(any_target.target_folder(run) / "log")
        == followed.stdout
    )
    assert any_target.count("end", "k") == 0


def test_cancel_before_start(any_target):
    """The submit died before the launch. After a cancel, the run never starts, even if the command is repeated."""
    killed = any_target.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": "launching:kill"})
    assert killed.code == -9
    [shown] = any_target.ps()
    assert (shown["status"], shown["detail"]) == ("Submitting", "interrupted")
    assert any_target.mlw("cancel", shown["run_id"]).code == 0
    assert ending(any_target, shown["run_id"]) == ("Canceled", "cancelled")
    again = any_target.submit("--key", "k", "work.py", "k")
    assert (again.code, again.run) == (143, shown["run_id"])
    assert not (any_target.host.home / ".mlw" / "homes").exists() or any_target.count("start", "k") == 0


def test_time_limit_of_remote_run(any_target):
    done = any_target.submit("--timeout", "1s", "work.py", "k", "--ticks")
    assert done.code == 124, done
    assert ending(any_target, done.run) == ("Failed", "timeout")
    assert "time limit of 1 s" in done.err
    assert left_over(any_target, done.run) == []
    assert any_target.host.engine is None or any_target.host.engine.containers() == []


# -- engine ----------------------------------------------------------------------------------------------------------


def test_restarted_engine(contained, engine):
    """A restarted engine ends its containers. The reported cause is the engine, not the script."""
    run = contained.detach("work.py", "k", "--ticks")
    contained.await_ticks(run)
    following = contained.start("logs", "-f", run)
    engine.kill()
    mark = len(content(contained.target_folder(run) / "log"))
    wait_until(lambda: len(content(contained.laptop.folder(run) / "log")) > mark, "the log, without an engine")
    [shown] = contained.ps()
    assert shown["status"] == "Running"
    engine.start()
    out, err = following.communicate(timeout=90)
    assert following.returncode not in (0, None), err
    status, how = ending(contained, run)
    assert (status, how) == ("Failed", "engine stopped it"), contained.laptop.info(run)
    assert out == content(contained.target_folder(run) / "log")
    assert engine.containers() == []
    assert contained.submit("work.py", "k2").code == 0


def test_run_continues_with_live_restore_engine(contained, engine):
    engine.stop()
    engine.start(live_restore=True)
    run = contained.detach("work.py", "k", "--ticks")
    contained.await_ticks(run)
    engine.kill()
    engine.start(live_restore=True)
    mark = len(content(contained.target_folder(run) / "log"))
    wait_until(lambda: len(content(contained.target_folder(run) / "log")) > mark, "more of the log")
    contained.release()
    assert contained.mlw("logs", "-f", run).code == 0
    contained.assert_complete(run, "k")
    numbers = ticks(content(contained.target_folder(run) / "log"))
    assert numbers == list(range(len(numbers)))
    assert engine.containers() == []


# -- versions, clocks, users -----------------------------------------------------------------------------------------


def test_newer_client_reads_older_supervisor(remote, tmp_path):
    """The older package has another digest: both versions exist side by side, and runs of both complete."""
    import mlworkbench

    older = tmp_path / "older"
    shutil.copytree(Path(mlworkbench.__file__).parent, older / "mlworkbench")
    with (older / "mlworkbench/remote/agent.py").open("a") as file:
        file.write("\n# an older version\n")
    program = "import sys; from mlworkbench.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *remote.submit_arguments("--detach", "work.py", "k", "--ticks")]
    env = {**remote.laptop.env, "PYTHONPATH": str(older)}
    done = subprocess.run(command, cwd=remote.project, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[0]
    remote.await_ticks(run)
    libraries = {path.name for path in (remote.host.home / ".mlw/lib").iterdir() if not path.name.startswith(".")}
    assert len(libraries) == 2
    [shown] = remote.ps()
    assert (shown["run_id"], shown["status"], shown["contact"]) == (run, "Running", "in contact")
    new = remote.detach("work.py", "k2")
    remote.release()
    for run_id, key in ((run, "k"), (new, "k2")):
        assert remote.mlw("logs", "-f", run_id).code == 0
        remote.assert_complete(run_id, key)


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, time);
    if (clock == CLOCK_REALTIME) time->tv_sec += %d;
    return code;
}
"""


@pytest.mark.parametrize("off", [-86400, 86400])
def test_target_clock_off_by_a_day(shared_target, tmp_path, off):
    """The target's clock is off by a day: durations are correct and not negative, and the run ends normally."""
    (tmp_path / "clock.c").write_text(CLOCK % off)
    remote = shared_target(sshd="PermitUserEnvironment yes")
    library = remote.host.home / "clock.so"
    subprocess.run([need("cc"), "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"], check=True)
    (remote.host.home / ".ssh/environment").write_text(f"LD_PRELOAD={library}\n")
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    [shown] = remote.ps()
    assert (shown["status"], shown["contact"]) == ("Running", "in contact")
    remote.release()
    assert remote.mlw("logs", "-f", run).code == 0
    record = remote.assert_complete(run, "k")
    assert record["duration"].startswith("0:00:"), record
    checked = remote.mlw("computetarget", "check", "box")
    assert "clock" in checked.out + checked.err, checked


def test_two_users_on_one_machine(laptop, machine, tmp_path):
    host = machine()
    ada = RemoteTarget(laptop, host)
    host.run("useradd", "--create-home", "--home-dir", "/srv/bob", "--shell", "/bin/bash", "bob")
    host.run("usermod", "--password", "*", "bob")  # otherwise the account counts as locked
    host.run("install", "-d", "-o", "bob", "-g", "bob", "-m", "700", "/srv/bob/.ssh")
    public = read(host.key.with_suffix(".pub"))
    keys = "/srv/bob/.ssh/authorized_keys"
    host.run("install", "-o", "bob", "-g", "bob", "-m", "600", "/dev/stdin", keys, text=public)
    with second_laptop(tmp_path / "bobs") as second:
        project = second.project("far", work="print('bob')\nopen('outputs/x', 'w').write('y')\n")
        attached = second.mlw(
            *("computetarget", "attach", "remote", "--name", "box", "--address", host.address, "--username", "bob"),
            *("--private-key-file", str(host.key), "--host-key", host.host_key_fingerprint),
            cwd=project,
        )
        assert attached.code == 0, attached
        first = ada.detach("work.py", "k", "--ticks")
        done = second.mlw("submit", "-c", "box", "work.py", cwd=project)
        assert (done.code, done.out) == (0, "bob\n"), done
        assert [run["run_id"] for run in second.runs()] == [done.run]
    ada.release()
    assert ada.mlw("logs", "-f", first).code == 0
    ada.assert_complete(first, "k")
    for folder in (host.home / ".mlw", host.root / "srv/bob/.mlw"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_output_changed_after_end_of_run(remote):
    """An output that differs from the record is reported and not saved under its name; the others are fetched."""
    remote.write("two.py", "for name in 'ab': open('outputs/' + name, 'w').write(name * 100)\n")
    run = remote.detach("two.py")
    remote.await_end(run)
    (remote.target_folder(run) / "work/outputs/b").write_text("z" * 100)
    followed = remote.mlw("logs", "-f", run)
    assert followed.code == 0 and "output b: content differs from what was recorded when the run ended" in followed.err
    got = remote.mlw("history", "download", run, "-d", "got")
    assert got.code == 1 and "b: " in got.err, got
    local_outputs = remote.laptop.folder(run) / "work" / "outputs"
    assert [path.name for path in local_outputs.rglob("*")] == ["a"]
    assert [path.name for path in (remote.project / "got").glob("[a-z]*")] == ["a"]


# -- malicious targets -----------------------------------------------------------------------------------------------

_NONSENSE = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from remote.shared.message_frames import Pipe
os.write(1, b"\\nMLW-AGENT " + sys.argv[1].encode() + b"\\n")
pipe = Pipe(0, 1)
while True:
    request, _ = pipe.receive()
    hello = {"root": os.path.expanduser("~/.mlw"), "python": sys.executable} if request["do"] == "hello" else {}
    pipe.send(dict(hello, ok=True, time="now", exists=[], facts=7, gpus=[[]], kinds=1, environments={}))
"""


def replace_remote_file(remote, name, text):
    """Replace agent.py, or extend another file of mlw, on the machine."""
    paths = list((remote.host.home / ".mlw" / "lib").glob(f"*/remote/{name}"))
    assert paths, name
    for path in paths:
        path.write_text(text if name == "agent.py" else path.read_text() + text)


def test_invalid_agent_responses(remote):
    """Commands report a malformed reply, not an internal error of mlw."""
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    replace_remote_file(remote, "agent.py", _NONSENSE)
    messages = {
        line: remote.mlw(*line.split()) for line in ("ps", f"logs {run}", "computetarget check box", "gpus -t box")
    }
    remote.release()
    for line, done in messages.items():
        assert "internal error" not in done.err and "Traceback" not in done.err, (line, done)
    for line in ("computetarget check box", "gpus -t box"):
        assert messages[line].code == 69 and "sent a malformed reply" in messages[line].err, messages[line]
    assert messages["ps"].code == 0 and "sent a malformed reply" in messages["ps"].err, messages["ps"]


def test_output_larger_than_declared(remote):
    """The output has 10 bytes, but the agent sends 304 MB: no more than 10 bytes are stored."""
    remote.write("ten.py", "open('outputs/model.bin', 'w').write('0123456789')\n")
    run = remote.detach("ten.py")
    remote.await_end(run)
    flood = "\n\ndef read_outputs(run, files):\n    for _ in range(76):\n        yield 0, bytes(4 << 20)\n"
    replace_remote_file(remote, "run_reader.py", flood)
    followed = remote.mlw("logs", "-f", run)
    assert "outputs not downloaded" in followed.err and "larger than requested" in followed.err, followed
    local_outputs = remote.laptop.folder(run) / "work" / "outputs"
    assert sum(path.stat().st_size for path in local_outputs.rglob("*")) <= 10
