"""TensorBoard event files and printed metrics: available while the script runs, complete when it ends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.interpreters import oldest_and_newest
from tests.unit.remote.tracking.test_tensorboard import BEGIN, THEN, scalars

from .conftest import PYTHON, REMOTE, alive, until
from .test_death import kill
from .test_ranks import RANK, mpiexec

# Appends records to an event file, as TensorBoard's writers do.
WRITER = """
import os, struct, sys, time
from crc import masked

def record(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(head)) + data + struct.pack("<I", masked(data))

def varint(value):
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])

def field(number, data):
    return bytes([number << 3 | 2]) + varint(len(data)) + data

def now():
    return b"\\x09" + struct.pack("<d", time.time())

class Writer:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        name = "events.out.tfevents.%d.host.%d.0" % (time.time(), os.getpid())
        self.file = open(os.path.join(folder, name), "ab", 0)
        self.file.write(record(now() + field(3, b"brain.Event:2")))
    def add(self, tag, value, step):
        one = field(1, field(1, tag.encode()) + b"\\x15" + struct.pack("<f", value))
        self.file.write(record(now() + b"\\x10" + varint(step) + field(5, one)))
"""
CRC = """
table = []
for index in range(256):
    for _ in range(8):
        index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
    table.append(index)

def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
"""
FILES = {"writer.py": WRITER, "crc.py": CRC}
# Writes 20 points, waits for the file ``more``, and writes 20 more.
TRAINS = """
import os, time
from writer import Writer
writer = Writer("logs/train")
for step in range(40):
    if step == 20:
        print("half: 1")
        while not os.path.exists("more"): time.sleep(0.01)
    writer.add("loss", 1 / (step + 1), step)
    print("epoch %d - accuracy: %g" % (step, step / 40))
print("score: 7", end="")
"""
GO = "import os, sys, time\nwhile not os.path.isdir(sys.argv[1]): time.sleep(0.01)\nopen(sys.argv[1] + '/more', 'w')"
LOSSES = [("train/loss", step) for step in range(40)]


def lines(folder: Path, name: str) -> list[dict]:
    try:
        text = (folder / "metrics" / name).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def points(folder: Path, name: str = "tensorboard") -> list[tuple[str, int]]:
    return [(line["n"], line.get("s")) for line in lines(folder, name) if "n" in line]


def go_on(folder: Path) -> None:
    (folder / "work" / "more").write_text("")


def at_the_end(place, folder: Path) -> None:
    """Check that all metrics are written before the ending, so that a reader can stop at the last event."""
    assert place.ended(folder)["ending"] == "succeeded"
    assert points(folder) == LOSSES


def test_event_files_of_ranks_are_separate_also_after_another_attempt(place, tmp_path):
    """All ranks write to one folder, as scripts do that were written for one process."""
    script = RANK + (
        "import sys\nfrom writer import Writer\nattempt = int(os.environ.get('MLW_ATTEMPT', '1'))\n"
        "writer = Writer('logs')\nwriter.add('loss', 10.0 * rank + attempt, attempt)\nsys.exit(attempt == 1)\n"
    )
    retries = {"limit": 1, "causes": ["failed"], "delay": 3.0}  # clocks may differ by 2 s
    folder = place.run("r", script, files=FILES, retries=retries, **mpiexec(tmp_path, 3))
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    values = {
        name: [(line["n"], line["v"]) for line in lines(folder, name) if "n" in line]
        for name in ("tensorboard", "tensorboard.rank1", "tensorboard.rank2")
    }
    assert values == {
        "tensorboard": [("loss", 1.0), ("loss", 2.0)],
        "tensorboard.rank1": [("loss", 11.0), ("loss", 12.0)],
        "tensorboard.rank2": [("loss", 21.0), ("loss", 22.0)],
    }


def test_metrics_arrive_during_the_run_and_are_complete_at_the_end(place):
    folder = place.run("r", TRAINS, files=FILES, spoken=True)
    place.start("r")
    until(lambda: len(points(folder)) == 20)
    until(lambda: ("accuracy", 19) in points(folder, "spoken"))
    assert not (folder / "exit.json").exists()
    go_on(folder)
    at_the_end(place, folder)
    assert next(line for line in lines(folder, "tensorboard") if "n" in line)["v"] == 1.0
    spoken = points(folder, "spoken")
    assert [step for name, step in spoken if name == "accuracy"] == list(range(40))
    assert spoken[-1] == ("score", None), "the last line has no end"


def test_the_next_supervisor_goes_on_with_nothing_twice(place):
    folder = place.run("r", TRAINS, files=FILES, spoken=True)
    place.start("r")
    until(lambda: len(points(folder)) == 20 and ("half", None) in points(folder, "spoken"))
    pid = place.event(folder, "accepted")["pid"]
    kill(pid)
    until(lambda: not alive(pid))
    go_on(folder)
    assert place.call("adopt", "r")["state"] == "adopted"
    at_the_end(place, folder)
    assert len(points(folder, "spoken")) == 42


@pytest.mark.parametrize("nth", [2, 3])
def test_killed_between_two_looks(place, nth):
    folder = place.run("r", TRAINS, files=FILES)
    place.start("r", env={"MLW_FAILPOINT": f"tracked:kill:{nth}"})
    pid = place.event(folder, "accepted")["pid"]
    until(lambda: not alive(pid))
    place.call("adopt", "r")
    go_on(folder)
    at_the_end(place, folder)


def test_a_script_that_ends_at_once_loses_nothing(place):
    script = TRAINS.replace("while not os.path.exists", "while 0 and os.path.exists")
    folder = place.run("r", script, files=FILES, spoken=True)
    place.start("r")
    at_the_end(place, folder)
    assert len(points(folder, "spoken")) == 42


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_with_old_and_new_pythons(place, python):
    place.python = python
    folder = place.run("r", TRAINS.replace("while not", "while 0 and not"), files=FILES, spoken=True, python=python)
    place.start("r")
    at_the_end(place, folder)
    assert len(points(folder, "spoken")) == 42


DRAWS = """
import struct
from writer import Writer, field, now, record
writer = Writer("runs/Nov16_07-53-15_vm")
buckets = b"\\x11" + struct.pack("<d", 2) + field(6, struct.pack("<d", 2)) + field(7, struct.pack("<d", 4))
for tag, part in ((b"sample", field(4, field(4, b"\\x89PNG\\r\\n\\x1a\\n"))), (b"weights", field(5, buckets))):
    writer.file.write(record(now() + field(5, field(1, field(1, tag) + part))))
"""


@pytest.mark.parametrize("python", [path for _, path in oldest_and_newest((3, 8))])
def test_images_and_event_files_are_listed_as_outputs(place, python):
    place.python = python
    folder = place.run("r", DRAWS, files=FILES, python=python)
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    paths = [output["path"] for output in json.loads((folder / "outputs.json").read_text())["outputs"]]
    assert paths[0] == "images/sample-0.png"
    assert paths[1] == "tensorboard/histograms/weights.json"
    assert [path.rpartition("/")[0] for path in paths[2:]] == ["tensorboard/runs/Nov16_07-53-15_vm"]
    assert sorted(line["d"]["path"] for line in lines(folder, "tensorboard") if line.get("k") == "file") == paths


def test_metrics_are_reported_after_a_reboot(place):
    folder = place.run("r", TRAINS, files=FILES)
    place.start("r")
    place.event(folder, "started")
    until(lambda: (folder / "log").read_text().count("accuracy") == 20)
    facts = json.loads((folder / "started.json").read_text())
    for pid in (place.event(folder, "accepted")["pid"], facts["launcher"], facts["pid"]):
        kill(pid)
    for name in ("gate.json", "claim/owner.json"):
        note = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**note, "boot_id": "another"}))
    place.call("adopt", "r")
    assert place.ended(folder)["ending"] == "target rebooted"
    assert points(folder) == LOSSES[:20]


def test_no_metrics_are_collected_without_a_request(place):
    folder = place.run("r", TRAINS.replace("while not", "while 0 and not"), files=FILES, tracked=False, spoken=True)
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    assert os.listdir(folder / "metrics") == []
    folder = place.run("s", "print('loss: 0.5')")
    place.start("s", "n2")
    assert place.ended(folder)["ending"] == "succeeded"
    assert os.listdir(folder / "metrics") == []


def test_event_files_of_the_project_are_none_of_the_run(place):
    old = (BEGIN + scalars(THEN, 1, old=1.0)).hex()
    script = "open('logs/events.out.tfevents.1', 'wb').write(bytes.fromhex(open('logs/old').read()))"
    folder = place.run("r", script, files={"logs/old": old})
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    assert points(folder) == []


@pytest.mark.parametrize(
    "trouble",
    [
        "os.symlink('/etc/passwd', target)",
        "os.mkfifo(target)",
        "os.mkdir(target)",
        'open(target, \'wb\').write(b\'\\0\' * 3000000 + b\'{"k": "source", "d": 7}\\n{"o": [[], 1]}\\n\')',
        "os.rmdir(os.path.dirname(target)); os.symlink('/nowhere', os.path.dirname(target))",
        "os.chmod(os.path.dirname(target), 0)",
    ],
)
def test_no_script_can_cost_its_own_ending(place, trouble):
    """The script replaces the metrics file and writes random data to a file with the name of an event file."""
    script = "import os\ntarget = os.path.join(os.environ['MLW_RUN_FOLDER'], 'metrics', 'tensorboard')\n"
    script += trouble + "\nos.mkdir('d')\nopen('d/events.out.tfevents.9', 'wb').write(os.urandom(5000))\n"
    script += "os.mkfifo('d/events.out.tfevents.8')\nos.symlink('/etc/passwd', 'd/events.out.tfevents.7')\n"
    folder = place.run(
        "r", script + "from writer import Writer\nWriter('d').add('a', 1, 1)\nprint('b: 1')", files=FILES
    )
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    assert "Traceback" not in (folder / "supervisor.log").read_text()
    assert b"loss" not in Path("/etc/passwd").read_bytes()


@pytest.mark.parametrize("where", ["tracked", "tracking-end"])
def test_internal_error_loses_metrics_but_not_the_ending(place, where):
    folder = place.run("r", TRAINS, files=FILES)
    go = subprocess.Popen([PYTHON, "-c", GO, folder / "work"])
    place.start("r", env={"MLW_FAILPOINT": f"{where}:exc"})
    assert place.ended(folder)["ending"] == "succeeded"
    assert (
        "stopped collecting metrics from event files and the log: FailPoint" in (folder / "supervisor.log").read_text()
    )
    go.wait()


def test_a_full_disk_costs_metrics_and_not_the_ending(place):
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place.root)], check=True)
    try:
        script = (
            "from writer import Writer\nwriter = Writer('logs')\nfor step in range(20): writer.add('loss', 1, step)\n"
        )
        script += "f = open('big', 'wb', buffering=0)\ntry:\n  while True: f.write(b'x' * 4096)\nexcept OSError: pass\n"
        folder = place.run("r", script, files=FILES)
        place.start("r")
        assert place.ended(folder)["ending"] == "succeeded"
        assert points(folder) == [("loss", step) for step in range(20)][: len(points(folder))], "nothing twice"
    finally:
        subprocess.run(["umount", "-l", str(place.root)], check=True)


QUIET = """
import os, sys
sys.path.insert(0, sys.argv[1])
from remote.shared.layout import RunFolder
from remote.supervisor import Supervisor
from remote.companions.external_metrics_monitor import ExternalMetricsMonitor
run = RunFolder(sys.argv[2])
os.makedirs(run.work)
tracking = ExternalMetricsMonitor(run, {})
tracking.tick({"time": 0.0})
tracking.end({"time": 0.0})
print([name for name in sys.modules if name.startswith("remote.tracking.")])
"""


def test_a_run_without_such_files_loads_nothing_for_them(tmp_path):
    """The supervisor loads only the module that searches for files, so that it stays small."""
    done = subprocess.run([PYTHON, "-I", "-S", "-c", QUIET, REMOTE.parent, tmp_path / "run"], capture_output=True)
    assert done.stdout.decode().strip() == "['remote.tracking.file_search']", done.stderr.decode()


def test_the_process_that_lists_packages_is_no_leftover(place, tmp_path):
    end, python = tmp_path / "end", tmp_path / "python"
    os.mkfifo(end)
    # Without variables, as any process at the moment when it starts a program.
    python.write_text(f"#!/bin/sh\nexec env -i /bin/cat {end}\n")
    python.chmod(0o755)
    folder = place.run("r", "pass", lock={"kind": "existing", "python": str(python)})
    place.start("r")
    assert place.ended(folder)["leftovers"] == []
    end.write_bytes(b"")


def test_in_a_container(target):
    folder = target.run("r", TRAINS, files=FILES, spoken=True)
    target.start("r")
    until(lambda: len(points(folder)) == 20 and ("accuracy", 19) in points(folder, "spoken"))
    go_on(folder)
    at_the_end(target, folder)
    assert len(points(folder, "spoken")) == 42
