"""What a run costs while its script does nothing: memory and processor time of supervisor and launcher."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import machine
from context import Context, supervisor_of
from table import Line, Section, mb

MEMORY_AIM = 20e6
SHARE_AIM = 0.001
SECONDS = 20.0


def idle_section(context: Context) -> Section:
    section = Section("idle supervisor")
    section.notes.append(f"load average before: {machine.load()}")
    project = context.project("idle")
    run = context.detach(project, "idle.py")
    bare = subprocess.Popen(
        [machine.interpreter(), "-I", "-S", "idle.py"], cwd=project, env=context.environment, stdin=subprocess.DEVNULL
    )
    try:
        pids = _pids(run)
        time.sleep(3)  # the start is over
        section.lines += _memory_lines(pids, bare.pid)
        section.lines.append(_share_line(pids))
    finally:
        bare.kill()
        bare.wait()
        context.call(context.mlw(project, "cancel", "--grace", "0", run.name))
    section.notes.append(
        "PSS shares out what both processes (and other Pythons of the machine) map in common; RSS counts it for each; "
        "alone is what would be freed if only these two ended"
    )
    return section


def _pids(run: Path) -> tuple[int, int]:
    deadline = time.monotonic() + 10
    while not (run / "started.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    supervisor = supervisor_of(run)
    assert supervisor is not None
    return supervisor, int(json.loads((run / "started.json").read_text())["launcher"])


def _memory(pid: int) -> dict[str, int]:
    """Bytes, by the kernel's names."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def _memory_lines(pids: tuple[int, int], bare: int) -> list[Line]:
    both, floor = [_memory(pid) for pid in pids], _memory(bare)
    pss = sum(one["Pss"] for one in both)
    rss = [one["Rss"] for one in both]
    alone = sum(one["Private_Clean"] + one["Private_Dirty"] for one in both)
    value = f"PSS {mb(pss)}; RSS {mb(rss[0])} + {mb(rss[1])}; alone {mb(alone)}"
    beside = f"a sleeping `python -I -S`: PSS {mb(floor['Pss'])}, RSS {mb(floor['Rss'])}"
    aim = f"PSS ≤ {MEMORY_AIM / 1e6:.0f} MB"
    return [Line("memory, supervisor + launcher", value, beside, "", aim, pss <= MEMORY_AIM)]


def _share_line(pids: tuple[int, int]) -> Line:
    before, began = _ran(pids), time.monotonic()
    time.sleep(SECONDS)
    used, passed = _ran(pids) - before, time.monotonic() - began
    share = used / passed
    aim = f"≤ {SHARE_AIM:.1%} of a core"
    value = f"{share:.3%} of a core ({used * 1000:.1f} ms in {passed:.0f} s)"
    return Line("processor time, supervisor + launcher", value, "", "", aim, share <= SHARE_AIM)


def _ran(pids: tuple[int, int]) -> float:
    """Seconds on a processor; to the nanosecond, unlike /proc/PID/stat."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9
