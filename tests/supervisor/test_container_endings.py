"""The ways in which a run in a container can end, each with a real engine, and the recorded ending."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from .conftest import delete_run, until

HOLD = "import time; print('up'); time.sleep(1000)"
SELF = (
    "import os, signal\nsignal.signal({0}, signal.SIG_DFL) if {0} != 9 else 0\nos.kill(os.getpid(), {0})\nwhile 1: pass"
)
EATER = "a = []\nwhile True: a.append(bytearray(b'x') * 4_000_000)"
CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {EATER!r}])\nprint('went on')"

# Exit codes with a meaning for docker, shells, or the container's first process (97 to 99), and the limits 0 and 255.
CODES = [0, 1, 97, 98, 99, 125, 126, 127, 128, 137, 143, 255]
SIGNALS = [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("code", CODES)
def test_own_exit_codes(target, code):
    folder = target.run("r", f"import os; os._exit({code})")
    target.start("r")
    result = target.ended(folder)
    ending = "failed" if code else "succeeded"
    assert (result["ending"], result["exit"], result["signal"]) == (ending, code, None)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_signals(target, number):
    """Death by signal 9 is not recorded as exit code 137, which a script can also return."""
    # With a memory limit, only the OOM kills of the container's own group count as evidence.
    folder = target.run("r", SELF.format(int(number)), container={"memory": "256m"})
    target.start("r")
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"], ending["signal"]) == ("failed", None, number)
    assert ending["cause"].startswith(f"killed by signal {int(number)} ({number.name})")


def test_exception(target):
    folder = target.run("r", "def f():\n  raise ValueError('bad shape')\nf()")
    target.start("r")
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"], ending["cause"]) == ("failed", 1, "ValueError: bad shape (main.py:2)")


def test_out_of_memory(target):
    folder = target.run("r", EATER, container={"memory": "32m"})
    target.start("r")
    ending = target.ended(folder)
    assert (ending["ending"], ending["exit"], ending["signal"]) == ("out of memory", None, 9)
    assert ending["cause"] == "the container reached its memory limit, and the kernel killed the script"


def test_out_of_memory_with_exit_code_0(target):
    folder = target.run("r", CHILD, container={"memory": "64m"})
    target.start("r")
    ending = target.ended(folder)
    assert (folder / "log").read_text() == "went on\n"
    assert (ending["ending"], ending["exit"]) == ("out of memory", 0)
    assert "then ended with exit code 0" in ending["cause"]


@pytest.mark.parametrize("how", ["kill", "rm", "stop"])
def test_container_ended_from_outside(target, how):
    folder = target.run("r", HOLD)
    target.start("r")
    target.up(folder)
    arguments = {"kill": ["kill"], "rm": ["rm", "--force"], "stop": ["stop"]}[how]
    target.engine.docker(*arguments, target.name("r"))
    ending = target.ended(folder)
    expected = {
        "kill": ("engine stopped it", None, 9, "the container was killed, by 'docker kill' or by the engine"),
        "rm": ("engine stopped it", None, None, "the container was removed (docker rm)"),
        "stop": ("failed", None, 15, "killed by signal 15 (SIGTERM)"),
    }
    assert (ending["ending"], ending["exit"], ending["signal"], ending["cause"]) == expected[how]
    assert target.name("r") not in target.engine.containers()


def test_restarted_container_does_not_run_twice(target, tmp_path):
    folder = target.run("r", "print('up', flush=True)\nimport time; time.sleep(1000)")
    target.start("r")
    target.up(folder)
    target.engine.docker("restart", "--time", "0", target.name("r"), check=False)
    target.ended(folder)
    assert (folder / "log").read_text() == "up\n"
    assert target.name("r") not in target.engine.containers()


@pytest.mark.parametrize("argv", [["no-such-program", "x"], ["./main.py"], ["/no/such/python", "main.py"]])
def test_the_image_does_not_have_the_command(target, argv):
    folder = target.run("r", "", argv=argv)
    target.start("r")
    ending = target.ended(folder)
    image = target.engine.image
    assert ending["ending"] == "could not start"
    assert ending["cause"] == f"image {image} has no program {argv[0]}, or it is not executable"
    assert target.name("r") not in target.engine.containers()


REFUSED = {
    "no such network": ({"network": "nowhere"}, "the engine did not find the network: network nowhere not found"),
    "gpus without a driver": ({"gpus": ["all"]}, "the engine does not support GPUs in containers"),
    "folder is missing": (
        {"mounts": [["/no/such/data", "/data", "ro"]]},
        "mount source does not exist on the target",
    ),
    "memory too small": ({"memory": "1m"}, "the value of 'memory' is too small for a container"),
    "too many processors": ({"cpus": "5000"}, "the value of 'cpus' exceeds the target's CPUs"),
    "no image name": ({"image": "Not An Image"}, "invalid image name Not An Image"),
    "no engine": ({"socket": "/no/such/docker.sock"}, "the Docker engine does not respond"),
    "no program": ({"program": "/no/such/docker"}, "cannot start the container: FileNotFoundError"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_engine_refuses(target, case):
    change, message = REFUSED[case]
    folder = target.run("r", "open('/never', 'w')", container=change)
    target.start("r")
    ending = target.ended(folder)
    assert ending["ending"] == "could not start"
    assert message in ending["cause"]
    assert target.name("r") not in target.engine.containers()
    # container.json stays only if a container may still exist: here, if the engine does not respond.
    assert (folder / "container.json").exists() == (case == "no engine")


def test_the_name_is_taken(target):
    target.engine.docker(
        "run", "--detach", "--name", target.name("r"), "--network", "none", target.engine.image, "sleep", "100"
    )
    folder = target.run("r", "")
    target.start("r")
    ending = target.ended(folder)
    assert ending["ending"] == "could not start"
    assert ending["cause"] == f"a container named {target.name('r')} already exists and does not belong to this run"
    assert target.name("r") in target.engine.containers()  # mlw does not remove containers of other owners


def test_run_folder_deleted_under_a_running_script(target):
    folder = target.run("r", "import time; print('up'); time.sleep(1)")
    target.start("r")
    target.up(folder)
    delete_run(folder)
    root = json.loads((target.root / "root.json").read_text())["id"]
    assert target.call("adopt", "r", message={"root": root})["state"] == "lost"
    until(lambda: target.name("r") not in target.engine.containers())


def test_full_disk_still_gives_an_ending(target):
    target.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(target.root)], check=True)
    try:
        folder = target.run("r", "f = open('big', 'wb', buffering=0)\nwhile True: f.write(b'x' * 4096)")
        target.start("r")
        ending = target.ended(folder)
        assert (ending["ending"], ending["exit"]) == ("failed", 1)
        assert ending["cause"].endswith(f"the disk that holds {folder} is full")
    finally:
        subprocess.run(["umount", "-l", str(target.root)], check=True)
