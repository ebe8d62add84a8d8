"""Cost of a run whose script does nothing: memory and CPU time of supervisor and launcher."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import machine
from context import Context, await_supervisor
from table import Line, Section, mb, times

MEMORY_AIM = 20e6
SHARE_AIM = 0.001
SECONDS = 20.0


def idle_section(context: Context) -> Section:
    section = Section("idle supervisor")
    section.notes.append(f"load average before: {machine.load()}")
    project = context.project("idle")
    run = context.detach(project, "idle.py")
    try:
        pids = _pids(run)
        time.sleep(3)  # wait until the start is complete
        both = [_memory(pid) for pid in pids]
        section.lines.append(_memory_line(both, _floor(context, project)))
        section.lines.append(_share_line(pids))
    finally:
        context.call(context.mlw(project, "cancel", "--grace", "0", run.name))
    section.notes.append(
        "together: all that the supervisor maps, and what of the launcher, its fork, is not shared; "
        "PSS would be smaller where other Pythons run"
    )
    return section


def _floor(context: Context, project: Path) -> dict[str, int]:
    """Return the memory of an interpreter that does nothing."""
    bare = subprocess.Popen(
        [machine.interpreter(), "-I", "-S", "idle.py"], cwd=project, env=context.environment, stdin=subprocess.DEVNULL
    )
    try:
        time.sleep(1)
        return _memory(bare.pid)
    finally:
        bare.kill()
        bare.wait()


def _pids(run: Path) -> tuple[int, int]:
    deadline = time.monotonic() + 10
    while not (run / "started.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return await_supervisor(run), int(json.loads((run / "started.json").read_text())["launcher"])


def _memory(pid: int) -> dict[str, int]:
    """Return the memory of a process in bytes, with the field names of smaps_rollup."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def _memory_line(both: list[dict[str, int]], floor: dict[str, int]) -> Line:
    supervisor, launcher = both
    together = supervisor["Rss"] + launcher["Private_Clean"] + launcher["Private_Dirty"]
    pss = supervisor["Pss"] + launcher["Pss"]
    value = f"{mb(together)} together (PSS {mb(pss)}; RSS {mb(supervisor['Rss'])}, {mb(launcher['Rss'])})"
    beside = f"a sleeping `python -I -S`: RSS {mb(floor['Rss'])}"
    ratio = times(together / floor["Rss"])
    aim = f"≤ {MEMORY_AIM / 1e6:.0f} MB"
    return Line("memory, supervisor + launcher", value, beside, ratio, aim, together <= MEMORY_AIM)


def _share_line(pids: tuple[int, int]) -> Line:
    before, began = _ran(pids), time.monotonic()
    time.sleep(SECONDS)
    used, passed = _ran(pids) - before, time.monotonic() - began
    share = used / passed
    aim = f"≤ {SHARE_AIM:.1%} of a core"
    value = f"{share:.3%} of a core ({used * 1000:.1f} ms in {passed:.0f} s)"
    return Line("processor time, supervisor + launcher", value, "", "", aim, share <= SHARE_AIM)


def _ran(pids: tuple[int, int]) -> float:
    """Return the CPU seconds of both processes, from schedstat, which is more precise than /proc/PID/stat."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9
