"""Cancel and time limit: TERM, grace period, KILL of the whole tree. A run canceled before its start never starts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading

import pytest

from .conftest import alive, marked, until

WAITS = "import time; print('up'); time.sleep(1000)"
OBEYS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))
print('up'); time.sleep(1000)
"""
IGNORES = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up')
while True: time.sleep(1)
"""
# Daemons that leave their session and their parent. Half of them also clear their environment.
DAEMONS = """
import os, signal, subprocess, sys, time
def daemon(clean):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            env = {} if clean else dict(os.environ)
            os.execve('/bin/sh', ['sh', '-c', 'trap "" TERM; echo $$ >> %s; while :; do sleep 0.2; done'], env)
        os._exit(0)
for clean in (0, 1, 0, 1): daemon(clean)
print('up'); time.sleep(1000)
"""


def up(folder):
    until(lambda: (folder / "log").exists() and b"up" in (folder / "log").read_bytes())


def test_cancel_is_distinguished_from_a_normal_exit(place):
    folder = place.run("r", WAITS)
    place.start("r")
    up(folder)
    assert place.call("cancel", "r", "somebody")["state"] == "asked"
    ending = place.ended(folder)
    assert ending["ending"] == "cancelled"
    assert marked(folder) == []


def test_a_script_may_tidy_up_on_term(place):
    folder = place.run("r", OBEYS)
    place.start("r")
    up(folder)
    place.call("cancel", "r")
    assert place.ended(folder)["ending"] == "cancelled"
    assert (folder / "log").read_text() == "up\nbye\n"


def test_a_script_that_ignores_term_is_killed_after_the_grace(place):
    folder = place.run("r", IGNORES)
    place.start("r")
    up(folder)
    place.call("cancel", "r", "somebody", "0.5")
    assert place.ended(folder)["ending"] == "cancelled (forced)"
    assert marked(folder) == []


def test_cancel_twice_is_harmless(place):
    folder = place.run("r", WAITS)
    place.start("r")
    up(folder)
    for _ in range(3):
        place.call("cancel", "r")
    assert place.ended(folder)["ending"] == "cancelled"
    place.call("cancel", "r")
    assert [e["kind"] for e in place.events(folder)].count("finished") == 1


def test_daemonised_children_are_ended_too(place, tmp_path):
    pids = tmp_path / "pids"
    folder = place.run("r", DAEMONS % pids)
    place.start("r")
    up(folder)
    until(lambda: pids.exists() and len(pids.read_text().split()) == 4)
    place.call("cancel", "r", "somebody", "0.2")
    assert place.ended(folder)["ending"] == "cancelled (forced)"
    assert [pid for pid in map(int, pids.read_text().split()) if alive(pid)] == []


def test_a_fork_storm_does_not_escape(place, tmp_path):
    storm = "import os, time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\n" + (
        "while True:\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(0.05)\n"
        "    if os.fork(): os._exit(0)\n    time.sleep(0.05); os._exit(0)\n  time.sleep(0.01)\n"
    )
    folder = place.run("r", storm)
    place.start("r")
    up(folder)
    place.call("cancel", "r", "somebody", "0")
    place.ended(folder)
    assert marked(folder) == []


def test_cancel_before_the_start_means_it_never_starts(place, tmp_path):
    folder = place.run("r", f"open({str(tmp_path / 'ran')!r}, 'w')")
    place.call("cancel", "r")
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] == "cancelled"
    assert ending["cause"] == "canceled before it started"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("round", range(10))
def test_cancel_racing_with_the_start(place, tmp_path, round):
    """If the cancel comes first, the script does not run. Otherwise, the script is stopped."""
    folder = place.run("r", f"open({str(tmp_path / 'ran')!r}, 'w'); import time; time.sleep(1000)")
    thread = threading.Thread(target=place.start, args=("r",))
    thread.start()
    place.call("cancel", "r")
    thread.join()
    ending = place.ended(folder)
    assert ending["ending"] == "cancelled"
    assert marked(folder) == []
    if ending["cause"] == "canceled before it started":
        assert not (tmp_path / "ran").exists()


def test_time_limit(place):
    folder = place.run("r", WAITS, timeout=0.3)
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] == "timeout"
    assert place.event(folder, "stopping")["why"] == "timeout"


def test_time_limit_of_a_script_that_ignores_term(place):
    folder = place.run("r", IGNORES, timeout=0.3, grace=0.3)
    place.start("r")
    assert place.ended(folder)["ending"] == "timeout"
    assert marked(folder) == []


def test_a_foreign_process_with_the_same_number_is_left_alone(place):
    """PID reuse: a process with a different start time does not belong to the run."""
    folder = place.run("r", WAITS)
    place.start("r")
    up(folder)
    started = place.event(folder, "started")
    supervisor = place.event(folder, "accepted")["pid"]
    other = os.fork()
    if other == 0:
        signal.pause()
    try:
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: not alive(supervisor))
        for name in ("started.json",):
            text = (folder / name).read_text().replace(f'"pid": {started["pid"]}', f'"pid": {other}')
            (folder / name).write_text(text)
        place.call("cancel", "r", "somebody", "0")
        place.call("adopt", "r")
        place.ended(folder)
        assert alive(other)
        assert marked(folder) == []
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_a_stopped_supervisor_does_not_hold_up_a_cancel(place):
    """The launcher is stopped, too. The cancel resumes both processes."""
    folder = place.run("r", WAITS)
    place.start("r")
    up(folder)
    launcher = json.loads((folder / "started.json").read_text())["launcher"]
    for pid in (place.event(folder, "accepted")["pid"], launcher):
        os.kill(pid, signal.SIGSTOP)
        until(lambda pid=pid: state(pid) == "T")
    assert place.call("cancel", "r", "somebody")["state"] == "asked"
    ending = place.ended(folder, 20)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled by somebody")


def test_a_supervisor_that_is_stopped_again_and_again_is_replaced(place):
    folder = place.run("r", WAITS)
    place.start("r")
    up(folder)
    supervisor = place.event(folder, "accepted")["pid"]
    done = threading.Event()

    def stop_it() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not done.is_set() and alive(supervisor):
                os.kill(supervisor, signal.SIGSTOP)

    thread = threading.Thread(target=stop_it)
    thread.start()
    try:
        until(lambda: state(supervisor) == "T")
        place.call("cancel", "r", "somebody")  # a single request must be enough: the client may be offline afterwards
        assert place.ended(folder)["ending"] == "cancelled"
    finally:
        done.set()
        thread.join()


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]
