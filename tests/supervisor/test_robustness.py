"""Misbehaving machines, callers, and scripts: a run still starts once, stops on request, and ends correctly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pytest

from mlworkbench.remote.shared import machine
from mlworkbench.remote.shared.output_kinds import OUTSIDE

from .conftest import PYTHON, REMOTE, Place, alive, marked, until
from .test_death import TICKS, kill, ticking
from .test_stop import WAITS, up


def test_looking_at_the_lock_does_not_swallow_a_start(place):
    folder = place.run("r", "print('ran')")
    # The test holds the lock of the unclaimed run for 0.3 s, like a process that checks whether it is locked.
    held = machine.lock(str(folder / "lock"))
    release = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(0.3)"])
    starter = subprocess.Popen(
        [place.python, "-I", "-S", str(REMOTE / "__main__.py"), "start", str(place.root), "r", "n1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=place.env,
    )
    starter.stdin.write(b"{}")
    starter.stdin.close()
    release.wait()
    os.close(held)
    assert json.loads(starter.stdout.read())["claimed"] is True
    starter.stdout.close()
    starter.wait()
    assert place.ended(folder)["ending"] == "succeeded"


def test_a_start_without_its_message_does_not_count(place):
    """The client died before it sent the secrets. The run can still be started."""
    folder = place.run("r", "print('ran')")
    done = subprocess.run(
        [place.python, "-I", "-S", str(REMOTE / "__main__.py"), "start", str(place.root), "r", "n1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=place.env,
    )
    assert json.loads(done.stdout)["ok"] is False
    assert place.start("r")["claimed"] is True
    assert place.ended(folder)["ending"] == "succeeded"


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_full_disk_does_not_protect_a_script(place, how):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place.root)], check=True)
    try:
        script = "import time\nf = open('big', 'wb', buffering=0)\ntry:\n  while True: f.write(b'x' * 4096)\n"
        script += "except OSError: pass\nopen('/proc/self/comm', 'w').write('full')\ntime.sleep(1000)"
        folder = place.run("r", script, timeout=3.0 if how == "timeout" else None)
        place.start("r")
        pid = place.event(folder, "started")["pid"]
        until(lambda: "full" in open_text(f"/proc/{pid}/comm"))
        if how == "cancel":
            place.call("cancel", "r")
        ending = place.ended(folder)
        assert ending["ending"] == {"cancel": "cancelled", "timeout": "timeout"}[how]
        assert not alive(pid)
    finally:
        subprocess.run(["umount", "-l", str(place.root)], check=True)


def open_text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def test_deep_and_linked_outputs(place, tmp_path):
    deep = "import os\nos.chdir('outputs')\nfor n in range(1200): os.mkdir('d'); os.chdir('d')\nopen('x', 'w')"
    folder = place.run("deep", deep)
    place.start("deep")
    ending = place.ended(folder)
    assert ending["ending"] == "succeeded"
    subprocess.run(["rm", "-rf", str(folder / "work")], check=True)  # pytest cannot remove a tree of this depth

    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("x")
    folder = place.run("link", f"import os\nos.rmdir('outputs')\nos.symlink({str(tmp_path / 'outside')!r}, 'outputs')")
    place.start("link")
    ending = place.ended(folder)
    assert (ending["outputs"], ending["uncollected"]) == (0, 1)
    assert json.loads((folder / "outputs.json").read_text())["outputs"][0]["kind"] == OUTSIDE


@pytest.mark.parametrize("trouble", ["ignores SIGCHLD", "blocks SIGTERM", "ignores SIGTERM"])
def test_what_the_caller_ignores_or_blocks_is_not_inherited(place, trouble):
    folder = place.run("r", "import sys, time\nprint('up')\nif len(sys.argv) > 1: sys.exit(3)\ntime.sleep(1000)")
    calm = {
        "ignores SIGCHLD": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        "blocks SIGTERM": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
        "ignores SIGTERM": lambda: None,
    }[trouble]
    command = [place.python, "-I", "-S", str(REMOTE / "__main__.py"), "start", str(place.root), "r", "n1"]
    subprocess.run(command, input=b"{}", env=place.env, preexec_fn=calm, stdout=subprocess.DEVNULL, check=False)
    up(folder)
    place.call("cancel", "r")
    ending = place.ended(folder)
    assert ending["ending"] == "cancelled"
    assert ending["signal"] == signal.SIGTERM


def test_arguments_that_the_locale_cannot_write(place):
    folder = place.run("r", "import sys; sys.stdout.buffer.write(sys.argv[1].encode('utf-8', 'surrogateescape'))")
    spec = json.loads((folder / "spec.json").read_text())
    spec["commands"][0]["argv"].append("3 €")
    spec["environment"].update(PRICE="3 €", PYTHONUTF8="1")
    (folder / "spec.json").write_text(json.dumps(spec))
    place.start("r", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert place.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == "3 €"


def test_a_child_that_was_never_noted_can_be_cancelled(place):
    folder = place.run("r", WAITS)
    place.start("r")
    up(folder)
    facts = json.loads((folder / "started.json").read_text())
    kill(place.event(folder, "accepted")["pid"])
    kill(facts["launcher"])
    (folder / "started.json").unlink()
    assert place.call("adopt", "r")["state"] == "adopted"
    place.call("cancel", "r")
    assert place.ended(folder)["ending"] == "cancelled"
    assert marked(folder) == []


@pytest.mark.parametrize(
    "name", ["gate.json", "started.json", "exit.json", "claim/owner.json", "cancel.json", "stopping.json"]
)
@pytest.mark.parametrize("content", ["{}", "[]", "null", "", "\0\0", '{"pid": "x", "decision": 3, "grace": "soon"}'])
def test_damaged_notes_do_not_crash_the_next_supervisor(place, name, content):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    facts = json.loads((folder / "started.json").read_text())
    for pid in (place.event(folder, "accepted")["pid"], facts["launcher"], facts["pid"]):
        kill(pid)
    (folder / name).write_text(content)
    place.call("adopt", "r")
    if name != "claim/owner.json":  # without a readable owner, the run gets no ending
        assert place.ended(folder)["ending"] in {"exit unknown", "could not start", "cancelled", "target rebooted"}
    assert "Traceback" not in open_text(folder / "supervisor.log")


def test_less_patience_counts(place):
    folder = place.run(
        "r", "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(1000)"
    )
    place.start("r")
    up(folder)
    place.call("cancel", "r", "me", "1000")
    place.event(folder, "stopping")
    place.call("cancel", "r", "me", "0")
    assert place.ended(folder)["ending"] == "cancelled (forced)"
    assert place.call("cancel", "r", "me", "nan")["state"] == "asked"


def test_processes_of_another_user_do_not_save_the_rest(open_folder):
    """The supervisor cannot signal a process with another UID (sudo). It still stops all other processes."""
    if os.getuid() != 0:
        pytest.skip("needs two users")
    place = Place(open_folder)
    place.python = "/usr/bin/python3"
    if not os.path.exists(place.python):
        pytest.skip("no interpreter that another user may run")
    program = open_folder / "remote"
    shutil.copytree(REMOTE, program)
    folder = place.run("r", "import time; print('up'); time.sleep(1000)", python=place.python)
    kept = subprocess.Popen(["sleep", "1000"], env={"MLW_RUN_FOLDER": str(folder)})
    try:
        subprocess.run(["chown", "-R", "12345:12345", str(open_folder)], check=True)
        command = [place.python, "-I", "-S", str(program / "__main__.py")]
        drop = {"user": 12345, "group": 12345, "extra_groups": []}
        tail = [str(place.root), "r", "n1"]
        subprocess.run([*command, "start", *tail], input=b"{}", env=place.env, stdout=subprocess.DEVNULL, **drop)
        up(folder)
        pid = place.event(folder, "started")["pid"]
        subprocess.run([*command, "cancel", *tail[:2], "me", "0.2"], env=place.env, stdout=subprocess.DEVNULL, **drop)
        until(lambda: not alive(pid))
        assert kept.poll() is None
    finally:
        kept.kill()
        kept.wait()
