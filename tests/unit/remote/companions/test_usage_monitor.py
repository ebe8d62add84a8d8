"""CPU and memory usage of a run's processes, one line per sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mlworkbench.remote.companions.group import CompanionGroup
from mlworkbench.remote.companions.usage_monitor import UsageMonitor
from mlworkbench.remote.process_memory import MemoryUsage
from mlworkbench.remote.script_files import ScriptFiles
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


def read_lines(run: RunFolder) -> list[dict[str, float]]:
    path = Path(run.usage_samples)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("inside", [False, True], ids=["process", "container"])
def test_usage_of_a_run_is_recorded(tmp_path, busy, inside):
    run = RunFolder(str(tmp_path))
    facts = {"pid": None if inside else busy.pid, "time": time.time()}
    usage = UsageMonitor(run)
    if inside:  # in a container, the watcher records the first process
        usage.tick(facts)
        marker = {"pid": busy.pid, "start": machine.start_time(busy.pid)}
        Path(run.container_process).write_text(json.dumps(marker))

    def has_sample() -> bool:
        usage.tick(facts)
        return any(line["memory"] > 64 << 20 and line["cores"] > 0.05 for line in read_lines(run))

    wait_until(has_sample, "a sample of a busy process")
    assert all(line["processes"] == 1 and line["t"] >= 0 for line in read_lines(run))


OUTSIDE = "outside of the working copy, not recorded and not kept; write to outputs/ instead"
WRITING = """
import os, sys, time
held = []
for path in sys.argv[1:]:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    held.append(open(path, "a"))
held.append(open(sys.argv[1].replace("tb/", "only-read/")))
time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_data_outside_of_the_working_copy_is_named(tmp_path):
    run = RunFolder(str(tmp_path / "demo-run"))
    paths = [
        "tb/events.out.tfevents.1", "hf_out/a/model.safetensors", "demo-run/work/x.pt", ".cache/y.pt", "hf_cache/z.pt",
        "box/demo-run/work/x.pt", "notes/train.log", "data/tmpab12cd_x/x.pt", "store/mlflow.db",
    ]  # fmt: skip
    (tmp_path / "only-read").mkdir()
    (tmp_path / "only-read" / "events.out.tfevents.1").touch()
    arguments = [sys.executable, "-c", WRITING, *(str(tmp_path / path) for path in paths)]
    with subprocess.Popen(arguments) as process:
        try:
            usage = UsageMonitor(run)

            def lines() -> list[str]:
                usage.tick({"pid": process.pid, "time": time.time()})
                files = ScriptFiles()
                usage.describe_files(files)
                return files.unread.lines()

            wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) > len(paths) + 3, "all files are open")
            usage._next = 0.0
            assert lines() == [
                f"{tmp_path}/hf_out/a: checkpoints {OUTSIDE}",
                f"{tmp_path}/store: MLflow data {OUTSIDE}",
                f"{tmp_path}/tb: TensorBoard data {OUTSIDE}",
            ]
        finally:
            process.kill()


def test_unknown_processes_are_left_out(tmp_path):
    run = RunFolder(str(tmp_path))
    usage = UsageMonitor(run)
    usage.tick(None)
    Path(run.container_process).write_text(
        json.dumps({"pid": os.getpid(), "start": 1})
    )  # another start time: the PID now belongs to another process
    for _ in range(3):
        usage._next = 0.0
        usage.tick({"pid": None, "time": time.time() + 100})
    assert read_lines(run) == []


def test_failing_measurement_does_not_end_monitoring(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    companions = CompanionGroup([UsageMonitor(RunFolder(str(tmp_path)))])
    for _ in range(3):
        companions.tick({"pid": os.getpid()})  # "time" is missing
    assert capfd.readouterr().err.count("stopped measuring CPU and memory: KeyError") == 1


# -- memory of several processes -----------------------------------------------------------------------------------

SHARING = """
import os, sys
held = bytearray(64 << 20)
for at in range(0, len(held), 4096): held[at] = 1
for _ in range(3):
    if not os.fork(): break
os.write(1, b"ready\\n")  # print() writes the line break separately
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="the kernel has no smaps_rollup")
def test_shared_memory_counts_once(tmp_path):
    with subprocess.Popen([sys.executable, "-c", SHARING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline() == b"ready\n"
        run, usage = RunFolder(str(tmp_path)), UsageMonitor(RunFolder(str(tmp_path)))

        def has_sample() -> bool:
            usage.tick({"pid": process.pid, "time": time.time()})
            return bool(read_lines(run))

        wait_until(has_sample, "a sample")
        sample = read_lines(run)[0]
        process.kill()
    assert sample["processes"] == 4 and sample["counted"] == "pss"
    assert 64 << 20 < sample["memory"] < 2 * 64 << 20, "shared pages count once"


def write_proc(folder: Path, pid: str, group: str, rollup: str | None = None) -> None:
    process = folder / "proc" / pid
    process.mkdir(parents=True)
    (process / "cgroup").write_text(group)
    if rollup is not None:
        (process / "smaps_rollup").write_text(rollup)


def test_cgroup_is_used_without_pss(tmp_path):
    for pid in ("7", "8"):
        write_proc(tmp_path, pid, "0::/box/a\n")
    write_proc(tmp_path, "self", "0::/user\n")
    group = tmp_path / "groups" / "box" / "a"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    memory = MemoryUsage(str(tmp_path / "proc"), str(tmp_path / "groups"))
    assert memory.measure([7, 8], 5000) == (700, "cgroup")
    assert memory.measure([7], 2500) == (2500, None)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/box/a\n")
    assert memory.measure([7, 8], 5000) == (5000, "rss"), "our own cgroup includes other runs"
    assert memory.measure([7, 8, 9], 5000) == (5000, "rss")


def test_pss_is_not_read_for_large_processes(tmp_path):
    for pid in ("7", "8"):
        write_proc(tmp_path, pid, "0::/\n", "0-1 ---p [rollup]\nRss: 100 kB\nPss:    50 kB\nPss_Dirty: 7 kB\n")
    write_proc(tmp_path, "self", "0::/\n")
    memory = MemoryUsage(str(tmp_path / "proc"), str(tmp_path / "groups"))
    assert memory.measure([7, 8, 9], 200_000) == (102_400, "pss")
    assert memory.measure([7, 8], 100 << 30) == (100 << 30, "rss")
