"""Processors and memory of a run's processes, a line per look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlworkbench.remote import machine
from mlworkbench.remote.folder import RunFolder
from mlworkbench.remote.usage import Usage
from tests.machines.network import wait_until

BUSY = "held = bytearray(64 << 20)\nwhile True: sum(range(1000))"


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process
    process.kill()
    process.wait()


def lines(run: RunFolder) -> list[dict[str, float]]:
    path = Path(run.effort)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("inside", [False, True], ids=["process", "container"])
def test_what_a_run_does_is_written_down(tmp_path, busy, inside):
    run = RunFolder(str(tmp_path))
    facts = {"pid": None if inside else busy.pid, "time": time.time()}
    usage = Usage(run)
    if inside:  # its watcher tells which process is the first one of the container
        usage.tick(facts)
        note = {"pid": busy.pid, "start": machine.start_time(busy.pid)}
        Path(run.inside).write_text(json.dumps(note))

    def look() -> bool:
        usage.tick(facts)
        return any(line["memory"] > 64 << 20 and line["cores"] > 0.05 for line in lines(run))

    wait_until(look, "a line that tells of its work")
    assert all(line["processes"] == 1 and line["t"] >= 0 for line in lines(run))


def test_what_cannot_be_known_is_left_out(tmp_path):
    run = RunFolder(str(tmp_path))
    usage = Usage(run)
    usage.tick(None)
    Path(run.inside).write_text(json.dumps({"pid": os.getpid(), "start": 1}))  # another process has its number now
    for _ in range(3):
        usage._next = 0.0
        usage.tick({"pid": None, "time": time.time() + 100})
    assert lines(run) == []
