"""Killing supervisors and launchers: the log and the exit code survive, and a run starts at most once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import alive, delete_run, marked, until

TICKS = """
import time, sys
print('start')
n = 0
while True:
    print(n); n += 1
    time.sleep(0.01)
    try: open('go'); sys.exit(7)
    except FileNotFoundError: pass
"""
SLOW_STAGES = ["claiming", "claimed", "accepted", "placed", "prepared", "launched"]
STARTED_STAGES = ["started", "finishing", "finished"]
LAUNCHER_STAGES = ["before-gate", "after-gate", "after-start", "before-exit"]


def go(folder):
    (folder / "work" / "go").write_text("")


def ticking(folder):
    until(lambda: (folder / "log").exists() and b"3\n" in (folder / "log").read_bytes())


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


def test_supervisor_killed_the_run_goes_on_and_its_end_is_known(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(place.event(folder, "accepted")["pid"])
    assert place.call("adopt", "r")["state"] == "adopted"
    assert place.call("adopt", "r")["state"] == "supervised"
    go(folder)
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
    lines = (folder / "log").read_text().split()
    assert lines == ["start", *map(str, range(len(lines) - 1))]


def test_ending_is_kept_without_a_supervisor(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(place.event(folder, "accepted")["pid"])
    go(folder)
    until(lambda: (folder / "exit.json").exists())
    place.call("adopt", "r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)


def test_launcher_killed_the_supervisor_still_learns_the_exit_code(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(json.loads((folder / "started.json").read_text())["launcher"])
    go(folder)
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)


def test_both_killed_run_continues_and_exit_code_is_unknown(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(place.event(folder, "accepted")["pid"])
    kill(json.loads((folder / "started.json").read_text())["launcher"])
    size = (folder / "log").stat().st_size
    until(lambda: (folder / "log").stat().st_size > size)
    assert place.call("adopt", "r")["state"] == "adopted"
    go(folder)
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("exit unknown", None)
    assert ending["cause"].startswith("the launcher and the supervisor were killed during the run")


def test_everything_killed(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    facts = json.loads((folder / "started.json").read_text())
    for pid in (place.event(folder, "accepted")["pid"], facts["launcher"], facts["pid"]):
        kill(pid)
    place.call("adopt", "r")
    ending = place.ended(folder)
    assert ending["ending"] == "exit unknown"
    assert ending["cause"] == "the launcher and the supervisor ended before the exit status was written"


def test_cancel_works_without_a_supervisor(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(place.event(folder, "accepted")["pid"])
    place.call("cancel", "r")
    place.call("adopt", "r")
    assert place.ended(folder)["ending"] == "cancelled"
    assert marked(folder) == []


def test_supervisor_killed_after_term_the_end_is_still_a_cancel(place):
    folder = place.run("r", TICKS)
    place.env["MLW_FAILPOINT"] = "terminated:kill"
    place.start("r")
    ticking(folder)
    place.call("cancel", "r", env={"MLW_FAILPOINT": ""})
    until(lambda: not alive(place.event(folder, "accepted")["pid"]))
    until(lambda: (folder / "exit.json").exists())
    place.call("adopt", "r", env={"MLW_FAILPOINT": ""})
    assert place.ended(folder)["ending"] == "cancelled"


@pytest.mark.parametrize("stage", [*SLOW_STAGES, *STARTED_STAGES, *LAUNCHER_STAGES])
def test_killed_at_a_stage(place, stage, tmp_path):
    """The run starts at most once and always gets a correct ending."""
    starts = tmp_path / "starts"
    script = f"open({str(starts)!r}, 'a').write('x')\nprint('hello')"
    folder = place.run("r", script)
    place.start("r", env={"MLW_FAILPOINT": f"{stage}:kill"})
    settle(place, folder)
    ending = place.ended(folder)
    count = len(starts.read_text()) if starts.exists() else 0
    assert count <= 1
    if ending["ending"] == "succeeded":
        assert count == 1
        assert (folder / "log").read_text() == "hello\n"
    else:
        assert ending["ending"] in {"could not start", "exit unknown"}
    if ending["ending"] == "could not start":
        assert count == 0
    if stage in STARTED_STAGES:
        assert ending["ending"] == "succeeded"
    assert [e["kind"] for e in place.events(folder)].count("finished") == 1


def settle(place, folder):
    """Act as a client that lost contact: adopt the run, or start it if it is unclaimed, and wait for its ending."""
    if place.call("adopt", "r")["state"] == "unclaimed":
        place.start("r", "n2")
    until(lambda: place.call("adopt", "r")["state"] == "finished")


def test_many_starters_one_start(place, tmp_path):
    starts = tmp_path / "starts"
    folder = place.run("r", f"open({str(starts)!r}, 'a').write('x')")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: place.start("r", f"n{n}"), range(16)))
    assert sum(answer["claimed"] for answer in answers) == 1
    assert place.ended(folder)["ending"] == "succeeded"
    assert starts.read_text() == "x"


def test_reboot_is_an_ending_of_its_own(place):
    """Simulate a reboot: the processes of the run are dead, and the recorded boot ID is not the current one."""
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    facts = json.loads((folder / "started.json").read_text())
    for pid in (place.event(folder, "accepted")["pid"], facts["launcher"], facts["pid"]):
        kill(pid)
    for path in (folder / "gate.json", folder / "claim" / "owner.json"):
        path.write_text(re.sub(r'"boot_id": "[^"]*"', '"boot_id": "an-earlier-boot"', path.read_text()))
    (folder / "work" / "outputs" / "checkpoint").write_text("saved")
    place.call("adopt", "r")
    ending = place.ended(folder)
    assert ending["ending"] == "target rebooted"
    assert (ending["outputs"], ending["output_bytes"]) == (1, 5), "what it wrote before is collected all the same"


def test_a_run_of_another_machine_is_not_judged_here(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(place.event(folder, "accepted")["pid"])
    owner = folder / "claim" / "owner.json"
    owner.write_text(re.sub(r'"machine": "[^"]*"', '"machine": "some-other-machine"', owner.read_text()))
    assert place.call("adopt", "r")["state"] == "elsewhere"
    assert not [e for e in place.events(folder) if e["kind"] == "finished"]


def test_run_folder_deleted_under_a_running_script(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    delete_run(folder)
    root = json.loads((place.root / "root.json").read_text())["id"]
    assert place.call("adopt", "r", message={"root": root})["state"] == "lost"


def test_a_torn_event_line_does_not_hide_the_next(place):
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    kill(place.event(folder, "accepted")["pid"])
    with open(folder / "events.jsonl", "a") as file:
        file.write('{"w": "sup", "seq": 99, "ki')
    place.call("adopt", "r")
    go(folder)
    until(lambda: "finished" in (folder / "events.jsonl").read_text())
    whole = []
    for line in (folder / "events.jsonl").read_text().splitlines():
        try:
            whole.append(json.loads(line))
        except ValueError:
            continue
    assert [e["kind"] for e in whole] == ["accepted", "step", "started", "collecting", "finished"]
    assert [e["seq"] for e in whole] == sorted({e["seq"] for e in whole})


def test_full_disk_still_gives_an_ending(place, tmp_path):
    """Put the root on a 3 MB disk that the script fills completely."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place.root)], check=True)
    try:
        script = "f = open('big', 'wb', buffering=0)\nwhile True: f.write(b'x' * 4096)"
        folder = place.run("r", script)
        place.start("r")
        ending = place.ended(folder)
        assert (ending["ending"], ending["exit"]) == ("failed", 1)
        assert ending["cause"].endswith(f"the disk that holds {folder} is full")
    finally:
        subprocess.run(["umount", "-l", str(place.root)], check=True)


def test_out_of_memory_is_distinguished_from_a_kill(place, tmp_path):
    """Decrease the recorded number of OOM kills, because a test cannot make the machine run out of memory."""
    folder = place.run("r", TICKS)
    place.start("r")
    ticking(folder)
    supervisor = place.event(folder, "accepted")["pid"]
    kill(supervisor)
    facts = json.loads((folder / "started.json").read_text())
    if facts["oom_kills"] is None:
        pytest.skip("this kernel does not count")
    (folder / "started.json").write_text(json.dumps({**facts, "oom_kills": facts["oom_kills"] - 1}))
    os.kill(facts["pid"], signal.SIGKILL)
    place.call("adopt", "r")
    assert place.ended(folder)["ending"] == "out of memory"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_idle_supervisor_is_light(place):
    """At most 20 MB of memory and 0.2 s of CPU time. CPU time hardly depends on the load of the machine."""
    folder = place.run("r", "import time; print('3'); time.sleep(1000)")
    place.start("r")
    ticking(folder)
    supervisor = place.event(folder, "accepted")["pid"]
    launcher = json.loads((folder / "started.json").read_text())["launcher"]
    memory = sum(_field(f"/proc/{pid}/smaps_rollup", "Pss:") for pid in (supervisor, launcher))
    assert memory <= 20 * 1024, f"{memory} kB"
    before = _field(f"/proc/{supervisor}/status", "voluntary_ctxt_switches:")
    until(lambda: _field(f"/proc/{supervisor}/status", "voluntary_ctxt_switches:") >= before + 5)
    ticks = [int(field) for field in Path(f"/proc/{supervisor}/stat").read_text().rsplit(")", 1)[1].split()[11:13]]
    assert sum(ticks) <= 20  # CPU time since the start of the process, in hundredths of a second
    place.call("cancel", "r")
    place.ended(folder)


def _field(path, name):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise AssertionError(f"{name} is not in {path}")
