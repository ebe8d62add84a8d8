"""Runs that share GPUs: one at a time on each, in the order of submission, whatever dies and whoever else is there."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from .conftest import alive, end_marked, marked, until
from .gpu_hosts import GIB, GpuHost

WAITS = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.01)\n"
# Notes when it has its GPUs for itself: two that do at once leave the second mark in the first one's time.
ALONE = """
import os, time
for uuid in os.environ['CUDA_VISIBLE_DEVICES'].split(','):
    os.mkdir({marks!r} + '/' + uuid)
time.sleep(0.05)
for uuid in os.environ['CUDA_VISIBLE_DEVICES'].split(','):
    os.rmdir({marks!r} + '/' + uuid)
"""


@pytest.fixture
def host(tmp_path):
    yield GpuHost(tmp_path, 2)
    end_marked(tmp_path)


@pytest.fixture
def door(tmp_path):
    """A file that lets waiting scripts go."""
    return tmp_path / "door"


def waiting(host, folder, words):
    return until(lambda: [e for e in host.events(folder) if e["kind"] == "queued" and words in e["data"]["reason"]])


def test_twenty_runs_of_three_clients_on_two_gpus(host, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    names = [f"r{number:02}" for number in range(20)]
    folders = {name: host.run(name, ALONE.format(marks=str(marks)), gpus="1") for name in names}
    submitted: list[str] = []
    turn = threading.Lock()

    def client(mine):
        for name in mine:
            with turn:  # so that there is an order to be kept
                assert host.start(name)["claimed"]
                submitted.append(name)

    clients = [threading.Thread(target=client, args=(names[number::3],)) for number in range(3)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    for name in names:
        told = host.ended(folders[name], 120)
        assert told["ending"] == "succeeded", (name, told["cause"], (folders[name] / "log").read_text())
    assert host.order() == submitted
    assert list((host.root / "gpus" / "queue").iterdir()) == []
    assert list((host.root / "gpus" / "held").iterdir()) == []


def test_a_run_waits_with_the_reason_and_starts_by_itself(host, door):
    first = host.run("first", WAITS.format(str(door)), gpus="all")
    second = host.run("second", "print('my turn')", gpus="1")
    host.start("first")
    host.event(first, "started")
    host.start("second")
    (queued, *_) = waiting(host, second, "GPU 0, 1 held by run first")
    assert queued["data"]["reason"] == "GPU 0, 1 held by run first"
    assert "started" not in [event["kind"] for event in host.events(second)]
    door.touch()
    assert host.ended(second)["ending"] == "succeeded"
    assert (second / "log").read_text() == "my turn\n"


def test_cancel_while_it_waits(host, door):
    host.run("first", WAITS.format(str(door)), gpus="all")
    second = host.run("second", "print('never')", gpus="1")
    host.start("first")
    host.start("second")
    waiting(host, second, "held by run first")
    host.call("cancel", "second", "somebody")
    assert host.ended(second)["ending"] == "cancelled"
    assert not (second / "log").exists()
    assert list((host.root / "gpus" / "queue").iterdir()) == []


def test_free_takes_what_is_free_and_all_waits_for_all(host, door):
    first = host.run("first", WAITS.format(str(door)), gpus="0,")
    host.start("first")
    host.event(first, "started")
    free = host.run("free", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpus="free")
    host.start("free")
    assert host.ended(free)["ending"] == "succeeded"
    assert (free / "log").read_text() == host.uuids[1] + "\n"
    every = host.run("every", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpus="all")
    host.start("every")
    waiting(host, every, "GPU 0 held by run first")
    door.touch()
    assert host.ended(every)["ending"] == "succeeded"
    assert (every / "log").read_text() == ",".join(host.uuids) + "\n"


def test_who_waits_for_one_gpu_does_not_keep_others_from_the_other(host, door):
    first = host.run("first", WAITS.format(str(door)), gpus="0,")
    host.start("first")
    host.event(first, "started")
    second = host.run("second", "pass", gpus="0,")
    host.start("second")
    waiting(host, second, "held by run first")
    third = host.run("third", "pass", gpus="1,")
    host.start("third")
    assert host.ended(third)["ending"] == "succeeded"
    # but a later one does not take from an earlier one what that needs
    both = host.run("both", "pass", gpus="2")
    host.start("both")
    waiting(host, both, "GPU 0 held by run first")
    last = host.run("last", "pass", gpus="1")
    host.start("last")
    waiting(host, last, "GPU 1 is reserved for run both, which is ahead in the queue")
    door.touch()
    for folder in (second, both, last):
        assert host.ended(folder)["ending"] == "succeeded"
    assert host.order() == ["first", "third", "second", "both", "last"]


def test_strangers_at_work_are_waited_for_and_those_who_only_draw_are_not(host):
    stranger = [("compute", os.getpid(), GIB)]
    host.gpus.change(host.uuids[0], process=stranger, memory=(16 * GIB, GIB))
    host.gpus.change(host.uuids[1], memory=(16 * GIB, 2 * GIB))
    folder = host.run("r", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpus="1")
    host.start("r")
    (queued, *_) = waiting(host, folder, f"used by process {os.getpid()} (")
    assert "GPU 1 used by unknown processes: 12 % of its memory is in use" in queued["data"]["reason"]
    host.gpus.change(host.uuids[1], process=[("graphics", os.getpid(), 2 * GIB)])
    assert host.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == host.uuids[1] + "\n"


def test_a_driver_in_trouble_costs_nobody_the_place_in_the_queue(host, door):
    first = host.run("first", WAITS.format(str(door)), gpus="all")
    second = host.run("second", "print('my turn')", gpus="1")
    host.start("first")
    host.event(first, "started")
    host.start("second")
    waiting(host, second, "held by run first")
    host.gpus.set(init=9)
    door.touch()
    waiting(host, second, "the NVIDIA driver is not loaded")
    host.gpus.set(init=0)
    assert host.ended(second)["ending"] == "succeeded"


# -- deaths ------------------------------------------------------------------------------------------------


def held(host):
    with open("/proc/net/unix") as file:
        names = [line.rpartition("@mlw-gpu-")[2].strip() for line in file if "@mlw-gpu-" in line]
    return [uuid for uuid in host.uuids if uuid in names]


def test_killing_the_supervisor_frees_nothing_while_the_run_lives(host):
    first = host.run("first", "import time; time.sleep(1000)", gpus="all")
    host.start("first")
    child = host.event(first, "started")["pid"]
    os.kill(host.event(first, "accepted")["pid"], signal.SIGKILL)
    second = host.run("second", "pass", gpus="1")
    host.start("second")
    waiting(host, second, "held by run first")
    assert held(host) == host.uuids, "the launcher holds them"
    # nor does killing the launcher too, for a process of the run may use them
    os.kill(json.loads((first / "started.json").read_text())["launcher"], signal.SIGKILL)
    until(lambda: held(host) == [])
    third = host.run("third", "pass", gpus="1")
    host.start("third")
    waiting(host, third, "held by run first")
    assert alive(child)
    os.kill(child, signal.SIGKILL)
    assert host.ended(second)["ending"] == "succeeded"
    assert host.ended(third)["ending"] == "succeeded"


def test_who_takes_over_holds_the_gpus_again(host):
    first = host.run("first", "import time; time.sleep(1000)", gpus="all")
    host.start("first")
    host.event(first, "started")
    os.kill(host.event(first, "accepted")["pid"], signal.SIGKILL)
    os.kill(until(lambda: json.loads((first / "started.json").read_text()))["launcher"], signal.SIGKILL)
    until(lambda: held(host) == [])
    until(lambda: host.call("adopt", "first")["state"] == "adopted")
    until(lambda: held(host) == host.uuids)
    second = host.run("second", "pass", gpus="1")
    host.start("second")
    waiting(host, second, "held by run first")
    host.call("cancel", "first")
    assert host.ended(first)["ending"] == "cancelled"
    assert host.ended(second)["ending"] == "succeeded"


def test_what_died_with_its_boot_holds_nothing(host):
    """As a reboot leaves it: notes of a lease, a place in the queue, and no process."""
    first = host.run("first", "import time; time.sleep(1000)", gpus="all")
    host.start("first")
    host.event(first, "started")
    late = host.run("late", "pass", gpus="1")
    host.start("late")
    waiting(host, late, "held by run first")
    for folder in (late, first):
        os.kill(host.event(folder, "accepted")["pid"], signal.SIGKILL)
    for pid in marked(first):
        os.kill(pid, signal.SIGKILL)
    until(lambda: held(host) == [])
    lease = json.loads((first / "lease.json").read_text())
    (first / "lease.json").write_text(json.dumps({**lease, "boot_id": "another"}))
    # its pids are another's now
    notes = json.loads((first / "started.json").read_text())
    ours = {"pid": os.getpid(), "start": _start(os.getpid()), "launcher": os.getpid(), "launcher_start": None}
    (first / "started.json").write_text(json.dumps({**notes, **ours}))
    (first / "exit.json").unlink(missing_ok=True)
    second = host.run("second", "pass", gpus="all")
    host.start("second")
    assert host.ended(second)["ending"] == "succeeded"


def test_a_waiting_run_whose_supervisor_died_does_not_start_later(host, door):
    host.run("first", WAITS.format(str(door)), gpus="all")
    second = host.run("second", "print('never')", gpus="1")
    host.start("first")
    host.start("second")
    waiting(host, second, "held by run first")
    os.kill(host.event(second, "accepted")["pid"], signal.SIGKILL)
    door.touch()
    third = host.run("third", "pass", gpus="all")
    host.start("third")
    assert host.ended(third)["ending"] == "succeeded"
    host.call("adopt", "second")
    assert host.ended(second)["ending"] == "could not start"
    assert not (second / "log").exists()


def _start(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[19])


# -- two users ---------------------------------------------------------------------------------------------

NOBODY = 65534
EVERYBODYS_PYTHON = "/usr/bin/python3"


@pytest.fixture
def square():
    """A folder that other users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="mlw-square-"))
    folder.chmod(0o755)
    yield folder
    end_marked(folder)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
@pytest.mark.skipif(not os.path.exists(EVERYBODYS_PYTHON), reason="needs a Python that other users can start")
def test_two_users_never_share_a_gpu(square):
    """Each has a root of their own and knows nothing of the other's files."""
    door = square / "door"
    host = GpuHost(square, 2)
    other = copy.copy(host)
    other.root, other.env = square / "theirs", {**host.env, "HOME": str(square / "theirs")}
    shutil.copytree(host.program.parent, square / "lib")
    first = host.run("first", WAITS.format(str(door)), gpus="0,")
    host.start("first")
    host.event(first, "started")
    script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    second = other.run("second", script, gpus="all", python=EVERYBODYS_PYTHON)
    give(other.root, NOBODY)
    program = square / "lib" / host.program.name / "__main__.py"
    subprocess.run(
        [EVERYBODYS_PYTHON, "-I", "-S", str(program), "start", str(other.root), "second", "n1"],
        input=b"{}",
        env=other.env,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        check=True,
        timeout=60,
    )
    waiting(other, second, "GPU 0 held by run first of user root")
    assert "started" not in [event["kind"] for event in other.events(second)]
    third = host.run("third", "pass", gpus="1,")  # the order counts among the runs of one user only
    host.start("third")
    assert host.ended(third)["ending"] == "succeeded"
    door.touch()
    assert other.ended(second)["ending"] == "succeeded"
    assert (second / "log").read_text() == ",".join(host.uuids) + "\n"


def give(folder, uid):
    for place, _, files in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in files)]:
            os.chown(path, uid, uid)


# -- names that others bind without a run --------------------------------------------------------------------

BIND = """
import socket, sys
held = [socket.socket(socket.AF_UNIX) for _ in sys.argv[1:]]
for one, name in zip(held, sys.argv[1:]):
    one.bind("\\0" + name)
print("bound", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def squat():
    """Binds names as another user, and does nothing else; ends with the test."""
    started = []

    def bind(*names, user=NOBODY):
        process = subprocess.Popen(
            [EVERYBODYS_PYTHON, "-c", BIND, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=user,
            group=user,
            extra_groups=[],
            cwd="/",
        )
        started.append(process)
        assert process.stdout.readline() == b"bound\n"
        return process

    yield bind
    for process in started:
        process.kill()
        process.communicate()


two_users = pytest.mark.skipif(
    os.getuid() != 0 or not os.path.exists(EVERYBODYS_PYTHON), reason="needs two users, and a Python for both"
)


@two_users
def test_who_holds_a_gpu_without_a_run_is_named(host, squat):
    other = squat(f"mlw-gpu-{host.uuids[0]}")
    run = host.run("first", "pass", gpus="0,")
    host.start("first")
    (queued, *_) = waiting(host, run, "GPU 0 held by user nobody")
    assert queued["data"]["reason"] == f"GPU 0 held by user nobody (pid {other.pid}) (not an mlw run)"
    other.kill()
    assert host.ended(run)["ending"] == "succeeded"


@two_users
def test_who_holds_a_gpu_cannot_pass_for_another_user(host, squat):
    """The label is written by whoever binds it; the owner of a socket is the kernel's word."""
    squat(f"mlw-gpu-{host.uuids[0]}", f"mlw-gpu-{host.uuids[0]}/0/fake")
    squat(f"mlw-gpu-{host.uuids[0]}/{NOBODY}/other", user=1)
    run = host.run("first", "pass", gpus="0,")
    host.start("first")
    (queued, *_) = waiting(host, run, "GPU 0 held by")
    assert queued["data"]["reason"] == "GPU 0 held by run fake of user nobody"
    host.call("cancel", "first", "tester")
    assert host.ended(run)["ending"] == "cancelled"


@two_users
def test_a_name_with_a_line_break_holds_nothing(host, squat):
    """It looks like a line of its own in /proc/net/unix."""
    line = "0000: 00000002 00000000 00000000 0001 01 11 @mlw-gpu-"
    squat(*(f"x\n{line}{uuid}" for uuid in host.uuids))
    run = host.run("first", "pass", gpus="all")
    host.start("first")
    assert host.ended(run)["ending"] == "succeeded"
