"""Scripts that write arbitrary files into their own run folder: the run still gets the correct ending."""

from __future__ import annotations

import json
import os

import pytest

from mlworkbench.remote.run_reader import RunUpdates
from mlworkbench.remote.shared.layout import RunFolder

from .conftest import until

VAST = "import os\nopen('outputs/vast', 'w').close()\nos.truncate('outputs/vast', 1 << 42)\n"


def kinds(place, folder):
    return [event["kind"] for event in place.events(folder)]


def test_a_vast_sparse_output_does_not_delay_the_end(place):
    folder = place.run("r", VAST + "open('outputs/small', 'w').write('x')\nprint('done')")
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"], ending["outputs"]) == ("succeeded", 0, 2)
    kinds = {output["path"]: output["kind"] for output in json.loads((folder / "outputs.json").read_text())["outputs"]}
    assert kinds == {"small": "file", "vast": "not hashed"}
    assert ending["left_out"] == ["outputs/vast: not hashed"]


def test_hashing_stops_on_cancel(place):
    """The failpoint delays the hashing of each chunk, as a slow disk would."""
    script = "import os\nopen('outputs/a', 'wb').write(b'x' * (64 << 20))\n"
    folder = place.run("r", script)
    place.start("r", env={"MLW_FAILPOINT": "hashing:sleep=0.5"})
    collecting = place.event(folder, "collecting")
    assert (collecting["ending"], collecting["exit"]) == ("succeeded", 0), "the end is on record before the hashing"
    place.call("cancel", "r", "ada")
    ending = place.ended(folder)
    assert ending["ending"] == "succeeded"
    assert ending["left_out"] == ["outputs/a: not hashed"]


def test_what_was_written_at_the_time_limit_is_hashed(place):
    script = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("outputs/checkpoint").write_text("x")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
time.sleep(600)
"""
    folder = place.run("r", script, timeout=1.0)
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["left_out"]) == ("timeout", [])
    [output] = json.loads((folder / "outputs.json").read_text())["outputs"]
    assert (output["path"], output["kind"]) == ("checkpoint", "file") and output["sha256"]


def test_outputs_that_cannot_be_reached_are_named(place):
    script = """
import os
here = os.open("outputs", os.O_RDONLY)
for _ in range(40):
    os.mkdir("d" * 200, dir_fd=here)
    here = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
os.close(os.open("deep", os.O_WRONLY | os.O_CREAT, dir_fd=here))
"""
    folder = place.run("r", script)
    place.start("r")
    ending = place.ended(folder)
    [output] = json.loads((folder / "outputs.json").read_text())["outputs"]
    assert (ending["outputs"], ending["uncollected"], output["kind"]) == (0, 1, "path too long") and output[
        "path"
    ].startswith("d" * 200 + "/")
    [message] = ending["left_out"]
    assert message.startswith("outputs/ddd") and message.endswith(": path too long") and len(message) < 400


FIFOS = "cancel.json heartbeat exit.json exit.slot lock watch log stopping.json started.json".split()


@pytest.mark.parametrize("name", FIFOS)
def test_fifo_in_place_of_a_run_file_does_not_block(place, name):
    script = f"""
import os, sys
path = os.environ["MLW_RUN_FOLDER"] + "/{name}"
if os.path.exists(path):
    os.unlink(path)
os.mkfifo(path)
sys.exit(3)
"""
    folder = place.run("r", script)
    place.start("r")
    ending = place.ended(folder)
    assert ending["ending"] in ("failed", "cancelled", "exit unknown"), ending
    if name not in ("exit.json", "cancel.json"):
        assert (ending["ending"], ending["exit"]) == ("failed", 3)


@pytest.mark.parametrize("what", ["vast", "emptied", "removed", "half a line"])
def test_an_event_journal_that_the_script_damages(place, what):
    damage = {
        "vast": "os.truncate(path, 1 << 42)",
        "emptied": "os.truncate(path, 0)",
        "removed": "os.unlink(path)",
        "half a line": "open(path, 'a').write('{')",
    }[what]
    wait = "import time\nwhile not os.path.exists('../go'): time.sleep(0.01)\n"
    folder = place.run("r", f"import os\n{wait}path = os.environ['MLW_RUN_FOLDER'] + '/events.jsonl'\n{damage}\n")
    place.start("r")
    place.event(folder, "started")
    run = RunFolder(str(folder))
    offset = sum(len(data) for _, data in RunUpdates(run, {"events.jsonl": 0}).parts(4 << 20))
    (folder / "go").touch()
    until(
        lambda: b'"finished"' in dict(RunUpdates(run, {"events.jsonl": offset}).parts(4 << 20)).get("events.jsonl", b"")
    )
    assert os.path.getsize(folder / "events.jsonl") < 1 << 20
