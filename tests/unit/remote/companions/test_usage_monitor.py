"""Processors and memory of a run's processes, a line per look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlworkbench.remote.companions.group import Companions
from mlworkbench.remote.companions.usage import Usage
from mlworkbench.remote.memory import Memory
from mlworkbench.remote.shared import machine
from mlworkbench.remote.shared.layout import RunFolder
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


def test_whatever_a_kernel_says_the_run_goes_on_being_watched(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    companions = Companions([Usage(RunFolder(str(tmp_path)))])
    for _ in range(3):
        companions.tick({"pid": os.getpid()})  # it lacks a time
    assert capfd.readouterr().err.count("stopped measuring CPU and memory: KeyError") == 1


# -- memory of several processes -----------------------------------------------------------------------------------

SHARING = """
import os, sys
held = bytearray(64 << 20)
for at in range(0, len(held), 4096): held[at] = 1
for _ in range(3):
    if not os.fork(): break
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="this kernel tells no such thing")
def test_what_processes_share_counts_once(tmp_path):
    with subprocess.Popen([sys.executable, "-c", SHARING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline() == b"ready\n"
        run, usage = RunFolder(str(tmp_path)), Usage(RunFolder(str(tmp_path)))

        def look() -> bool:
            usage.tick({"pid": process.pid, "time": time.time()})
            return bool(lines(run))

        wait_until(look, "a line")
        found = lines(run)[0]
        process.kill()
    assert found["processes"] == 4 and found["counted"] == "pss"
    assert 64 << 20 < found["memory"] < 2 * 64 << 20, "four times the same pages are in use once"


def proc(place: Path, pid: str, group: str, rollup: str | None = None) -> None:
    folder = place / "proc" / pid
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(group)
    if rollup is not None:
        (folder / "smaps_rollup").write_text(rollup)


def test_where_shares_are_not_told_the_control_group_is_asked(tmp_path):
    for pid in ("7", "8"):
        proc(tmp_path, pid, "0::/box/a\n")
    proc(tmp_path, "self", "0::/user\n")
    group = tmp_path / "groups" / "box" / "a"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    memory = Memory(str(tmp_path / "proc"), str(tmp_path / "groups"))
    assert memory.look([7, 8], 5000) == (700, "cgroup")
    assert memory.look([7], 2500) == (2500, None)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/box/a\n")
    assert memory.look([7, 8], 5000) == (5000, "rss"), "our own group has other runs in it"
    assert memory.look([7, 8, 9], 5000) == (5000, "rss")


def test_shares_are_not_asked_for_of_giants(tmp_path):
    for pid in ("7", "8"):
        proc(tmp_path, pid, "0::/\n", "0-1 ---p [rollup]\nRss: 100 kB\nPss:    50 kB\nPss_Dirty: 7 kB\n")
    proc(tmp_path, "self", "0::/\n")
    memory = Memory(str(tmp_path / "proc"), str(tmp_path / "groups"))
    assert memory.look([7, 8, 9], 200_000) == (102_400, "pss")
    assert memory.look([7, 8], 100 << 30) == (100 << 30, "rss")
