"""The ways in which a run in a container may end, each against a real engine, and what is recorded of each."""

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

# Those that docker, its shells and our first process (97 to 99) use themselves, and the ends of what there is.
CODES = [0, 1, 97, 98, 99, 125, 126, 127, 128, 137, 143, 255]
SIGNALS = [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("code", CODES)
def test_own_exit_codes(spot, code):
    folder = spot.run("r", f"import os; os._exit({code})")
    spot.start("r")
    told = spot.ended(folder)
    ending = "failed" if code else "succeeded"
    assert (told["ending"], told["exit"], told["signal"]) == (ending, code, None)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_signals(spot, number):
    """137 by the script is not the same as killed by signal 9."""
    # With a limit of its own, what the kernel kills elsewhere on the machine is no evidence.
    folder = spot.run("r", SELF.format(int(number)), container={"memory": "256m"})
    spot.start("r")
    told = spot.ended(folder)
    assert (told["ending"], told["exit"], told["signal"]) == ("failed", None, number)
    assert told["cause"].startswith(f"killed by signal {int(number)} ({number.name})")


def test_exception(spot):
    folder = spot.run("r", "def f():\n  raise ValueError('bad shape')\nf()")
    spot.start("r")
    told = spot.ended(folder)
    assert (told["ending"], told["exit"], told["cause"]) == ("failed", 1, "ValueError: bad shape (main.py:2)")


def test_out_of_memory(spot):
    folder = spot.run("r", EATER, container={"memory": "32m"})
    spot.start("r")
    told = spot.ended(folder)
    assert (told["ending"], told["exit"], told["signal"]) == ("out of memory", None, 9)
    assert told["cause"] == "the container reached its memory limit, and the kernel killed the script"


def test_out_of_memory_with_exit_code_0(spot):
    folder = spot.run("r", CHILD, container={"memory": "64m"})
    spot.start("r")
    told = spot.ended(folder)
    assert (folder / "log").read_text() == "went on\n"
    assert (told["ending"], told["exit"]) == ("out of memory", 0)
    assert "then ended with exit code 0" in told["cause"]


@pytest.mark.parametrize("how", ["kill", "rm", "stop"])
def test_somebody_else_ends_the_container(spot, how):
    folder = spot.run("r", HOLD)
    spot.start("r")
    spot.up(folder)
    words = {"kill": ["kill"], "rm": ["rm", "--force"], "stop": ["stop"]}[how]
    spot.engine.docker(*words, spot.name("r"))
    told = spot.ended(folder)
    expected = {
        "kill": ("engine stopped it", None, 9, "the container was killed, by 'docker kill' or by the engine"),
        "rm": ("engine stopped it", None, None, "the container was removed (docker rm)"),
        "stop": ("failed", None, 15, "killed by signal 15 (SIGTERM)"),
    }
    assert (told["ending"], told["exit"], told["signal"], told["cause"]) == expected[how]
    assert spot.name("r") not in spot.engine.containers()


def test_somebody_restarts_the_container_and_it_does_not_run_twice(spot, tmp_path):
    folder = spot.run("r", "print('up', flush=True)\nimport time; time.sleep(1000)")
    spot.start("r")
    spot.up(folder)
    spot.engine.docker("restart", "--time", "0", spot.name("r"), check=False)
    spot.ended(folder)
    assert (folder / "log").read_text() == "up\n"
    assert spot.name("r") not in spot.engine.containers()


@pytest.mark.parametrize("argv", [["no-such-program", "x"], ["./main.py"], ["/no/such/python", "main.py"]])
def test_the_image_does_not_have_the_command(spot, argv):
    folder = spot.run("r", "", argv=argv)
    spot.start("r")
    told = spot.ended(folder)
    image = spot.engine.image
    assert told["ending"] == "could not start"
    assert told["cause"] == f"image {image} has no program {argv[0]}, or it is not executable"
    assert spot.name("r") not in spot.engine.containers()


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
def test_the_engine_refuses(spot, case):
    change, words = REFUSED[case]
    folder = spot.run("r", "open('/never', 'w')", container=change)
    spot.start("r")
    told = spot.ended(folder)
    assert told["ending"] == "could not start"
    assert words in told["cause"]
    assert spot.name("r") not in spot.engine.containers()
    # Without a program nobody made a container: none is looked for, and the ending does not wait for that.
    assert (folder / "container.json").exists() == (case == "no engine")


def test_the_name_is_taken(spot):
    spot.engine.docker(
        "run", "--detach", "--name", spot.name("r"), "--network", "none", spot.engine.image, "sleep", "100"
    )
    folder = spot.run("r", "")
    spot.start("r")
    told = spot.ended(folder)
    assert told["ending"] == "could not start"
    assert told["cause"] == f"a container named {spot.name('r')} already exists and does not belong to this run"
    assert spot.name("r") in spot.engine.containers()  # nobody else's is removed


def test_run_folder_deleted_under_a_running_script(spot):
    folder = spot.run("r", "import time; print('up'); time.sleep(1)")
    spot.start("r")
    spot.up(folder)
    delete_run(folder)
    root = json.loads((spot.root / "root.json").read_text())["id"]
    assert spot.call("adopt", "r", message={"root": root})["state"] == "lost"
    until(lambda: spot.name("r") not in spot.engine.containers())


def test_full_disk_still_gives_an_ending(spot):
    spot.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(spot.root)], check=True)
    try:
        folder = spot.run("r", "f = open('big', 'wb', buffering=0)\nwhile True: f.write(b'x' * 4096)")
        spot.start("r")
        told = spot.ended(folder)
        assert (told["ending"], told["exit"]) == ("failed", 1)
        assert told["cause"].endswith(f"the disk that holds {folder} is full")
    finally:
        subprocess.run(["umount", "-l", str(spot.root)], check=True)
