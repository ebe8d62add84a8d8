"""Trouble on the other machine, told for what it is: reboot, full disk, lost folder, dead supervisor, dead engine."""

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
from tests.e2e.elsewhere import Away, content, digest, second_laptop, ticks
from tests.machines.network import read, wait_until


@pytest.fixture
def away(shared_target):
    return shared_target()


@pytest.fixture(params=["remote", "remotedocker"])
def either(request, shared_target):
    return shared_target(request.param)


@pytest.fixture
def contained(shared_target, engine):
    return shared_target("remotedocker")


def ending(away, run):
    record = away.laptop.info(run)
    return record["status"], record["ending"]


def left_over(away, run):
    """Processes of the run that are still there: not an agent, which belongs to a connection."""
    return [line for line in away.host.processes().values() if run in line or "work.py" in line]


# -- the machine itself ----------------------------------------------------------------------------------------------


def test_a_reboot_in_the_middle(away):
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    following = away.start("logs", "-f", run)
    away.host.reboot()
    out, err = following.communicate(timeout=90)
    assert following.returncode == 75, err
    assert ending(away, run) == ("Failed", "target rebooted")
    assert "rebooted" in away.laptop.info(run)["cause"]
    assert out == content(away.there(run) / "log") == content(away.laptop.folder(run) / "log")
    assert (away.count("start", "k"), away.count("end", "k")) == (1, 0), "it was not started again"
    assert away.submit("work.py", "k2").code == 0, "and the machine is as good as before"


@pytest.mark.parametrize("kind", ["remote", "remotedocker"])
def test_a_restarted_container_as_target(laptop, machine, kind):
    """A rented pod: the same boot of the same host, and all processes are new. Its engine, if any, has a record."""
    host = machine(docker="own" if kind == "remotedocker" else "no")
    image = host.load_image() if kind == "remotedocker" else None
    away = Away(laptop, host, kind, image=image)
    run, other = away.detach("work.py", "k", "--ticks"), away.detach("work.py", "k2", "--ticks")
    for one in (run, other):
        away.await_ticks(one)
    # Both happen: the kernel numbers the new process namespace as the old one, or otherwise.
    with open(f"/proc/{host.pid}/ns/pid") if kind == "remote" else nullcontext():
        host.restart()
    assert away.mlw("status", run).code == 0
    assert ending(away, run) == ("Failed", "target restarted")
    assert "restarted" in away.laptop.info(run)["cause"]
    done = away.mlw("cancel", other)
    assert done.code == 0 and "Failed (target restarted)" in done.err, done
    assert ending(away, other) == ("Failed", "target restarted")
    assert away.count("start", "k") == 1 and away.count("end", "k") == 0
    if image:
        assert host.run("docker", "ps", "--all", "--quiet").stdout == ""
    assert away.submit("work.py", "k3").code == 0, "and the machine is as good as before"


def test_a_supervisor_that_died_is_replaced_by_whoever_looks(either):
    run = either.detach("work.py", "k", "--ticks")
    either.await_ticks(run)
    pid = json.loads(read(either.there(run) / "claim/owner.json"))["pid"]
    either.host.run("kill", "-9", str(pid))
    [shown] = either.ps()
    assert (shown["status"], shown["contact"]) == ("Running", "in contact")
    either.let_go()
    assert either.mlw("logs", "-f", run).code == 0
    either.must_be_whole(run, "k")


def test_the_folder_of_a_run_is_deleted(away):
    run, other = away.detach("work.py", "k", "--ticks"), away.detach("work.py", "k2", "--ticks")
    away.await_ticks(run)
    assert away.mlw("logs", run).code == 0
    while away.host.run("rm", "-rf", str(away.there(run)), check=False).returncode:
        pass  # the supervisor has just written a file there
    followed = away.mlw("logs", "-f", run)
    assert followed.code == 75, followed
    assert ending(away, run) == ("Failed", "target lost the run")
    assert "the run's folder is gone" in followed.err
    assert ticks(content(away.laptop.folder(run) / "log")), "what had come home stays"
    assert [one["run_id"] for one in away.ps()] == [other]
    away.let_go()
    assert away.mlw("logs", "-f", other).code == 0
    away.must_be_whole(other, "k2")


def test_a_home_that_is_not_there_for_a_while_loses_nothing(away):
    """An NFS home that is not mounted at the moment is no evidence about a run."""
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    assert away.ps()[0]["status"] == "Running"
    mlw = away.host.home / ".mlw"
    mlw.rename(mlw.with_name(".hidden"))
    shown = away.ps()
    assert [(one["run_id"], one["status"]) for one in shown] == [(run, "Running")], shown
    assert "is the home folder on the target mounted?" in shown[0]["contact"]
    # What is below the mount point may have been used before, and looks like a home with other runs.
    other = away.detach("work.py", "k2")
    away.await_end(other)
    assert away.laptop.info(run)["status"] == "Running", "another folder in its place is no evidence either"
    shutil.rmtree(mlw)
    mlw.with_name(".hidden").rename(mlw)
    away.let_go()
    assert away.mlw("logs", "-f", run).code == 0
    away.must_be_whole(run, "k")


# -- its disk --------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow(shared_target):
    """A machine whose disk has room for little."""
    away = shared_target(disk="140M")
    disk = os.statvfs(away.host.home)
    (away.host.home / "ballast").write_bytes(bytes(disk.f_bavail * disk.f_frsize - (17 << 20)))
    return away


def test_no_room_for_the_code(narrow):
    away = narrow
    (away.project / "large.bin").write_bytes(os.urandom(30 << 20))
    done = away.submit("work.py", "k")
    assert done.code == 69, done
    assert "No space left on device" in done.err and f"the disk that holds {away.host.home}/.mlw is full" in done.err
    assert "hint:" in done.err and done.run in done.err.split("hint:")[1]
    (away.project / "large.bin").unlink()
    ballast = away.host.home / "ballast"
    os.truncate(ballast, ballast.stat().st_size - (2 << 20))  # what was uploaded of the large file stays
    assert away.mlw("cancel", done.run).code == 0
    assert ending(away, done.run) == ("Canceled", "cancelled")
    again = away.submit("work.py", "k2")
    assert again.code == 0, again
    away.must_be_whole(again.run, "k2")
    assert away.count("start", "k") == 0


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
def test_no_room_for_what_a_run_writes(narrow, where):
    away = narrow
    away.write("fill.py", FILL)
    done = away.submit("fill.py", where)
    assert done.code == 3, done.err
    record = away.laptop.info(done.run)
    assert record["ending"] == "failed (exit 3)"
    assert f"the disk that holds {away.there(done.run)} is full" in record["cause"]
    assert digest(away.laptop.folder(done.run) / "log") == digest(away.there(done.run) / "log")
    away.must_have_outputs(done.run)


def test_a_home_that_cannot_be_written(narrow):
    away = narrow
    assert away.submit("work.py", "k").code == 0
    away.host.run("mount", "-o", "remount,ro", str(away.host.home))
    done = away.submit("work.py", "k2")
    assert done.code in (69, 75), done
    assert "Read-only file system" in done.err and str(away.host.home) in done.err
    away.host.run("mount", "-o", "remount,rw", str(away.host.home))
    resumed = away.mlw("experiment", "resume", done.run)
    assert resumed.code == 0, resumed
    away.must_be_whole(done.run, "k2")


# -- stopping --------------------------------------------------------------------------------------------------------


def test_cancel(either):
    run = either.detach("work.py", "k", "--ticks")
    either.await_ticks(run)
    cancelled = either.mlw("cancel", run)
    assert cancelled.code == 0, cancelled
    assert ending(either, run) == ("Canceled", "cancelled")
    assert "has ended: Canceled" in cancelled.err
    wait_until(lambda: left_over(either, run) == [], "the end of all its processes")
    if either.host.engine:
        assert either.host.engine.containers() == []
    followed = either.mlw("logs", "-f", run)
    assert followed.code == 143
    assert content(either.laptop.folder(run) / "log") == content(either.there(run) / "log") == followed.stdout
    assert either.count("end", "k") == 0


def test_cancel_before_the_start(either):
    """The submit died before the machine heard of the run: it never starts, also not by the same command again."""
    killed = either.submit("--key", "k", "work.py", "k", env={"MLW_FAILPOINT": "launching:kill"})
    assert killed.code == -9
    [shown] = either.ps()
    assert (shown["status"], shown["detail"]) == ("Submitting", "interrupted")
    assert either.mlw("cancel", shown["run_id"]).code == 0
    assert ending(either, shown["run_id"]) == ("Canceled", "cancelled")
    again = either.submit("--key", "k", "work.py", "k")
    assert (again.code, again.run) == (143, shown["run_id"])
    assert not (either.host.home / ".mlw" / "homes").exists() or either.count("start", "k") == 0


def test_a_time_limit(either):
    done = either.submit("--timeout", "1s", "work.py", "k", "--ticks")
    assert done.code == 124, done
    assert ending(either, done.run) == ("Failed", "timeout")
    assert "time limit of 1 s" in done.err
    assert left_over(either, done.run) == []
    assert either.host.engine is None or either.host.engine.containers() == []


# -- the engine ------------------------------------------------------------------------------------------------------


def test_an_engine_that_died_and_came_back(contained, engine):
    """Its containers go on without it, and end when it comes back: the engine's doing, not the script's."""
    run = contained.detach("work.py", "k", "--ticks")
    contained.await_ticks(run)
    following = contained.start("logs", "-f", run)
    engine.kill()
    mark = len(content(contained.there(run) / "log"))
    wait_until(lambda: len(content(contained.laptop.folder(run) / "log")) > mark, "the log, without an engine")
    [shown] = contained.ps()
    assert shown["status"] == "Running"
    engine.start()
    out, err = following.communicate(timeout=90)
    assert following.returncode not in (0, None), err
    status, how = ending(contained, run)
    assert (status, how) == ("Failed", "engine stopped it"), contained.laptop.info(run)
    assert out == content(contained.there(run) / "log")
    assert engine.containers() == []
    assert contained.submit("work.py", "k2").code == 0


def test_an_engine_that_restores_its_containers(contained, engine):
    engine.stop()
    engine.start(live_restore=True)
    run = contained.detach("work.py", "k", "--ticks")
    contained.await_ticks(run)
    engine.kill()
    engine.start(live_restore=True)
    mark = len(content(contained.there(run) / "log"))
    wait_until(lambda: len(content(contained.there(run) / "log")) > mark, "more of the log")
    contained.let_go()
    assert contained.mlw("logs", "-f", run).code == 0
    contained.must_be_whole(run, "k")
    numbers = ticks(content(contained.there(run) / "log"))
    assert numbers == list(range(len(numbers)))
    assert engine.containers() == []


# -- versions, clocks, people ----------------------------------------------------------------------------------------


def test_a_supervisor_of_an_older_version_is_read_by_a_newer_client(away, tmp_path):
    """Another digest of what travels: both versions lie there side by side, and each run keeps its own."""
    import mlworkbench

    older = tmp_path / "older"
    shutil.copytree(Path(mlworkbench.__file__).parent, older / "mlworkbench")
    with (older / "mlworkbench/remote/agent.py").open("a") as file:
        file.write("\n# an older version\n")
    program = "import sys; from mlworkbench.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", program, *away.words("--detach", "work.py", "k", "--ticks")]
    env = {**away.laptop.env, "PYTHONPATH": str(older)}
    done = subprocess.run(words, cwd=away.project, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    run = done.stdout.split()[0]
    away.await_ticks(run)
    libraries = {path.name for path in (away.host.home / ".mlw/lib").iterdir() if not path.name.startswith(".")}
    assert len(libraries) == 2
    [shown] = away.ps()
    assert (shown["run_id"], shown["status"], shown["contact"]) == (run, "Running", "in contact")
    new = away.detach("work.py", "k2")
    away.let_go()
    for one, key in ((run, "k"), (new, "k2")):
        assert away.mlw("logs", "-f", one).code == 0
        away.must_be_whole(one, key)


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
def test_a_clock_that_is_a_day_off(shared_target, tmp_path, off):
    """The far end's own time is a day off: durations are right, nothing is negative, and all ends as it should."""
    (tmp_path / "clock.c").write_text(CLOCK % off)
    away = shared_target(sshd="PermitUserEnvironment yes")
    library = away.host.home / "clock.so"
    subprocess.run([need("cc"), "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"], check=True)
    (away.host.home / ".ssh/environment").write_text(f"LD_PRELOAD={library}\n")
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    [shown] = away.ps()
    assert (shown["status"], shown["contact"]) == ("Running", "in contact")
    away.let_go()
    assert away.mlw("logs", "-f", run).code == 0
    record = away.must_be_whole(run, "k")
    assert record["duration"].startswith("0:00:"), record
    checked = away.mlw("computetarget", "check", "box")
    assert "clock" in checked.out + checked.err, checked


def test_two_people_on_one_machine(laptop, machine, tmp_path):
    host = machine()
    ada = Away(laptop, host)
    host.run("useradd", "--create-home", "--home-dir", "/srv/bob", "--shell", "/bin/bash", "bob")
    host.run("usermod", "--password", "*", "bob")  # else it counts as locked
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
        assert [one["run_id"] for one in second.runs()] == [done.run]
    ada.let_go()
    assert ada.mlw("logs", "-f", first).code == 0
    ada.must_be_whole(first, "k")
    for folder in (host.home / ".mlw", host.root / "srv/bob/.mlw"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_an_output_that_changed_after_the_end(away):
    """It is not what the run recorded: told, and not here under its name; the others are."""
    away.write("two.py", "for name in 'ab': open('outputs/' + name, 'w').write(name * 100)\n")
    run = away.detach("two.py")
    away.await_end(run)
    (away.there(run) / "work/outputs/b").write_text("z" * 100)
    followed = away.mlw("logs", "-f", run)
    assert followed.code == 0 and "output b: content differs from what was recorded when the run ended" in followed.err
    got = away.mlw("history", "download", run, "-d", "got")
    assert got.code == 1 and "b: " in got.err, got
    here = away.laptop.folder(run) / "work" / "outputs"
    assert [path.name for path in here.rglob("*")] == ["a"]
    assert [path.name for path in (away.project / "got").glob("[a-z]*")] == ["a"]


# -- one that lies ---------------------------------------------------------------------------------------------------

_NONSENSE = """
import os, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from remote.shared.frames import Pipe
os.write(1, b"\\nMLW-AGENT " + sys.argv[1].encode() + b"\\n")
pipe = Pipe(0, 1)
while True:
    request, _ = pipe.receive()
    hello = {"root": os.path.expanduser("~/.mlw"), "python": sys.executable} if request["do"] == "hello" else {}
    pipe.send(dict(hello, ok=True, time="now", exists=[], facts=7, gpus=[[]], kinds=1, environments={}))
"""


def lie(away, name, text):
    """Replace or lengthen a file of our program on that machine."""
    for path in (away.host.home / ".mlw" / "lib").glob(f"*/remote/{name}"):
        path.write_text(text if name == "agent.py" else path.read_text() + text)


def test_an_agent_that_answers_nonsense(away):
    """One sentence each, and no word of a failure of mlw's own."""
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    lie(away, "agent.py", _NONSENSE)
    told = {
        words: away.mlw(*words.split()) for words in ("ps", f"logs {run}", "computetarget check box", "gpus -t box")
    }
    away.let_go()
    for words, done in told.items():
        assert "internal error" not in done.err and "Traceback" not in done.err, (words, done)
    for words in ("computetarget check box", "gpus -t box"):
        assert told[words].code == 69 and "sent a malformed reply" in told[words].err, told[words]
    assert told["ps"].code == 0 and "sent a malformed reply" in told["ps"].err, told["ps"]


def test_more_bytes_than_the_list_of_outputs_declares(away):
    """10 bytes were declared and 304 MB come: none of them is kept."""
    away.write("ten.py", "open('outputs/model.bin', 'w').write('0123456789')\n")
    run = away.detach("ten.py")
    away.await_end(run)
    flood = "\n\ndef read_outputs(run, files):\n    for _ in range(76):\n        yield 0, bytes(4 << 20)\n"
    lie(away, "serve.py", flood)
    followed = away.mlw("logs", "-f", run)
    assert "outputs not downloaded" in followed.err and "larger than requested" in followed.err, followed
    here = away.laptop.folder(run) / "work" / "outputs"
    assert sum(path.stat().st_size for path in here.rglob("*")) <= 10
