"""Runs that share GPUs: one at a time on each, in order of submission, despite crashes and other users."""

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
# Creates a folder for each GPU while it uses the GPU. If two runs share a GPU, the second mkdir fails.
EXCLUSIVE = """
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
def release_file(tmp_path):
    """Return the path of a file that waiting scripts wait for."""
    return tmp_path / "door"


def waiting(host, folder, text):
    return until(lambda: [e for e in host.events(folder) if e["kind"] == "queued" and text in e["data"]["reason"]])


def test_twenty_runs_of_three_clients_on_two_gpus(host, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    names = [f"r{number:02}" for number in range(20)]
    folders = {name: host.run(name, EXCLUSIVE.format(marks=str(marks)), gpus="1") for name in names}
    submitted: list[str] = []
    turn = threading.Lock()

    def client(mine):
        for name in mine:
            with turn:  # the lock keeps the list in the order of submission
                assert host.start(name)["claimed"]
                submitted.append(name)

    clients = [threading.Thread(target=client, args=(names[number::3],)) for number in range(3)]
    for process in clients:
        process.start()
    for process in clients:
        process.join()
    for name in names:
        ending = host.ended(folders[name], 120)
        assert ending["ending"] == "succeeded", (name, ending["cause"], (folders[name] / "log").read_text())
    assert host.order() == submitted
    assert list((host.root / "gpus" / "queue").iterdir()) == []
    assert list((host.root / "gpus" / "held").iterdir()) == []


def test_a_run_waits_with_the_reason_and_starts_by_itself(host, release_file):
    first = host.run("first", WAITS.format(str(release_file)), gpus="all")
    second = host.run("second", "print('my turn')", gpus="1")
    host.start("first")
    host.event(first, "started")
    host.start("second")
    (queued, *_) = waiting(host, second, "GPU 0, 1 held by run first")
    assert queued["data"]["reason"] == "GPU 0, 1 held by run first"
    assert "started" not in [event["kind"] for event in host.events(second)]
    release_file.touch()
    assert host.ended(second)["ending"] == "succeeded"
    assert (second / "log").read_text() == "my turn\n"


def test_cancel_while_it_waits(host, release_file):
    host.run("first", WAITS.format(str(release_file)), gpus="all")
    second = host.run("second", "print('never')", gpus="1")
    host.start("first")
    host.start("second")
    waiting(host, second, "held by run first")
    host.call("cancel", "second", "somebody")
    assert host.ended(second)["ending"] == "cancelled"
    assert not (second / "log").exists()
    assert list((host.root / "gpus" / "queue").iterdir()) == []


def test_free_takes_what_is_free_and_all_waits_for_all(host, release_file):
    first = host.run("first", WAITS.format(str(release_file)), gpus="0,")
    host.start("first")
    host.event(first, "started")
    free = host.run("free", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpus="free")
    host.start("free")
    assert host.ended(free)["ending"] == "succeeded"
    assert (free / "log").read_text() == host.uuids[1] + "\n"
    every = host.run("every", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpus="all")
    host.start("every")
    waiting(host, every, "GPU 0 held by run first")
    release_file.touch()
    assert host.ended(every)["ending"] == "succeeded"
    assert (every / "log").read_text() == ",".join(host.uuids) + "\n"


def test_who_waits_for_one_gpu_does_not_keep_others_from_the_other(host, release_file):
    first = host.run("first", WAITS.format(str(release_file)), gpus="0,")
    host.start("first")
    host.event(first, "started")
    second = host.run("second", "pass", gpus="0,")
    host.start("second")
    waiting(host, second, "held by run first")
    third = host.run("third", "pass", gpus="1,")
    host.start("third")
    assert host.ended(third)["ending"] == "succeeded"
    # However, a later run does not take GPUs that an earlier run needs.
    both = host.run("both", "pass", gpus="2")
    host.start("both")
    waiting(host, both, "GPU 0 held by run first")
    last = host.run("last", "pass", gpus="1")
    host.start("last")
    waiting(host, last, "GPU 1 is reserved for run both, which is ahead in the queue")
    release_file.touch()
    for folder in (second, both, last):
        assert host.ended(folder)["ending"] == "succeeded"
    assert host.order() == ["first", "third", "second", "both", "last"]


def test_run_waits_for_foreign_compute_processes_but_not_for_graphics(host):
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


def test_driver_error_does_not_lose_the_queue_position(host, release_file):
    first = host.run("first", WAITS.format(str(release_file)), gpus="all")
    second = host.run("second", "print('my turn')", gpus="1")
    host.start("first")
    host.event(first, "started")
    host.start("second")
    waiting(host, second, "held by run first")
    host.gpus.set(init=9)
    release_file.touch()
    waiting(host, second, "the NVIDIA driver is not loaded")
    host.gpus.set(init=0)
    assert host.ended(second)["ending"] == "succeeded"


# -- killed processes and reboots --------------------------------------------------------------------------


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
    # Killing the launcher as well does not free the GPUs: a process of the run may still use them.
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
    """The state after a reboot: a recorded lease, a queue ticket, and no process."""
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
    # Another process now has the PIDs of the run.
    notes = json.loads((first / "started.json").read_text())
    ours = {"pid": os.getpid(), "start": _start(os.getpid()), "launcher": os.getpid(), "launcher_start": None}
    (first / "started.json").write_text(json.dumps({**notes, **ours}))
    (first / "exit.json").unlink(missing_ok=True)
    second = host.run("second", "pass", gpus="all")
    host.start("second")
    assert host.ended(second)["ending"] == "succeeded"


def test_a_waiting_run_whose_supervisor_died_does_not_start_later(host, release_file):
    host.run("first", WAITS.format(str(release_file)), gpus="all")
    second = host.run("second", "print('never')", gpus="1")
    host.start("first")
    host.start("second")
    waiting(host, second, "held by run first")
    os.kill(host.event(second, "accepted")["pid"], signal.SIGKILL)
    release_file.touch()
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
def public_folder():
    """A folder that other users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="mlw-square-"))
    folder.chmod(0o755)
    yield folder
    end_marked(folder)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
@pytest.mark.skipif(not os.path.exists(EVERYBODYS_PYTHON), reason="needs a Python that other users can start")
def test_two_users_never_share_a_gpu(public_folder):
    """Each user has a separate root and cannot see the other's files."""
    release_file = public_folder / "door"
    host = GpuHost(public_folder, 2)
    other = copy.copy(host)
    other.root, other.env = public_folder / "theirs", {**host.env, "HOME": str(public_folder / "theirs")}
    shutil.copytree(host.program.parent, public_folder / "lib")
    first = host.run("first", WAITS.format(str(release_file)), gpus="0,")
    host.start("first")
    host.event(first, "started")
    script = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    second = other.run("second", script, gpus="all", python=EVERYBODYS_PYTHON)
    change_owner(other.root, NOBODY)
    program = public_folder / "lib" / host.program.name / "__main__.py"
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
    third = host.run("third", "pass", gpus="1,")  # runs of different users do not wait for each other's queue tickets
    host.start("third")
    assert host.ended(third)["ending"] == "succeeded"
    release_file.touch()
    assert other.ended(second)["ending"] == "succeeded"
    assert (second / "log").read_text() == ",".join(host.uuids) + "\n"


def change_owner(folder, uid):
    for place, _, files in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in files)]:
            os.chown(path, uid, uid)


# -- sockets bound by other programs -------------------------------------------------------------------------

BIND = """
import socket, sys
held = [socket.socket(socket.AF_UNIX) for _ in sys.argv[1:]]
for one, name in zip(held, sys.argv[1:]):
    one.bind("\\0" + name)
print("bound", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def bind_sockets():
    """Return a function that binds socket names as another user until the test ends."""
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
def test_who_holds_a_gpu_without_a_run_is_named(host, bind_sockets):
    other = bind_sockets(f"mlw-gpu-{host.uuids[0]}")
    run = host.run("first", "pass", gpus="0,")
    host.start("first")
    (queued, *_) = waiting(host, run, "GPU 0 held by user nobody")
    assert queued["data"]["reason"] == f"GPU 0 held by user nobody (pid {other.pid}) (not an mlw run)"
    other.kill()
    assert host.ended(run)["ending"] == "succeeded"


@two_users
def test_who_holds_a_gpu_cannot_pass_for_another_user(host, bind_sockets):
    """A process can put any user ID in the name of its socket, but the kernel reports the real owner."""
    bind_sockets(f"mlw-gpu-{host.uuids[0]}", f"mlw-gpu-{host.uuids[0]}/0/fake")
    bind_sockets(f"mlw-gpu-{host.uuids[0]}/{NOBODY}/other", user=1)
    run = host.run("first", "pass", gpus="0,")
    host.start("first")
    (queued, *_) = waiting(host, run, "GPU 0 held by")
    assert queued["data"]["reason"] == "GPU 0 held by run fake of user nobody"
    host.call("cancel", "first", "tester")
    assert host.ended(run)["ending"] == "cancelled"


@two_users
def test_a_name_with_a_line_break_holds_nothing(host, bind_sockets):
    """The line break adds a line to /proc/net/unix that looks like the entry of a GPU lease. It is ignored."""
    line = "0000: 00000002 00000000 00000000 0001 01 11 @mlw-gpu-"
    bind_sockets(*(f"x\n{line}{uuid}" for uuid in host.uuids))
    run = host.run("first", "pass", gpus="all")
    host.start("first")
    assert host.ended(run)["ending"] == "succeeded"
