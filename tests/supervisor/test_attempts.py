"""Attempts: when a run starts again, what its attempts share, and what kills at any stage leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.remote.shared.untrusted_json import parse_json

from .conftest import alive, marked, until
from .test_ranks import RANK, mpiexec

RETRIES = {"limit": 2, "causes": ["failed", "lost"], "delay": 0.01}

# Each attempt appends its number to a file outside of the run folder. CODES lists their exit codes.
COUNTING = """
import os, sys, time
folder, attempt = os.environ["MLW_RUN_FOLDER"], int(os.environ.get("MLW_ATTEMPT", "1"))
with open(folder + "/../../../tries", "a") as file: file.write("%d\\n" % attempt)
checkpoint = folder + "/checkpoints/step"
step = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
print("attempt", attempt, "from step", step)
open(checkpoint, "w").write(str(step + 10))
open("outputs/%d.txt" % attempt, "w").write("x")
CODES
"""
WAITS = "while not os.path.exists('go%d' % attempt): time.sleep(0.01)\nsys.exit(1 if attempt < 3 else 0)"


def counting(codes: str) -> str:
    return COUNTING.replace("CODES", codes)


def kinds(place: Any, folder: Path) -> list[str]:
    return [event["kind"] for event in place.events(folder) if event["kind"] not in ("step", "collecting")]


def ended_attempts(place: Any, folder: Path) -> list[dict[str, Any]]:
    return [event["data"] for event in place.events(folder) if event["kind"] == "attempt_ended"]


def tries(tmp_path: Path) -> list[str]:
    path = tmp_path / "tries"
    return path.read_text().split() if path.exists() else []


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


def go(folder: Path, attempt: int) -> None:
    (folder / "work" / f"go{attempt}").write_text("")


def test_failed_attempts_are_followed_by_others_from_the_checkpoint(place, tmp_path):
    folder = place.run("r", counting("sys.exit(3 if attempt < 3 else 0)"), retries=RETRIES)
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"], ending["outputs"]) == ("succeeded", 0, 3)
    first, second = ended_attempts(place, folder)
    assert (first["attempt"], first["ending"], first["exit"]) == (1, "failed", 3)
    assert (second["attempt"], second["delay"]) == (2, 0.02)
    assert kinds(place, folder) == [
        *("accepted", "started", "attempt_ended", "started", "attempt_ended", "started", "finished")
    ]
    log = (folder / "log").read_text().splitlines()
    assert log == ["attempt 1 from step 0", "attempt 2 from step 10", "attempt 3 from step 20"]
    assert (folder / "checkpoints" / "step").read_text() == "30"
    assert [(folder / "attempts" / number / "exit.json").exists() for number in "23"] == [True, True]


def test_last_attempt_decides_the_ending_and_its_own_output_the_cause(place):
    script = counting("if attempt == 1: raise ValueError('the first')\nsys.exit(5)")
    folder = place.run("r", script, retries={**RETRIES, "limit": 1})
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 5)
    assert "attempt 2" in ending["cause"]
    assert "ValueError: the first" in ended_attempts(place, folder)[0]["cause"]


@pytest.mark.parametrize(
    ("retries", "code"),
    [
        (None, "sys.exit(1)"),
        ({**RETRIES, "limit": 0}, "sys.exit(1)"),
        ({**RETRIES, "causes": ["oom"]}, "sys.exit(1)"),
        (RETRIES, "sys.exit(2)"),  # a usage error
        (RETRIES, "sys.exit(0)"),
    ],
)
def test_endings_that_are_final(place, tmp_path, retries, code):
    folder = place.run("r", counting(code), retries=retries)
    place.start("r")
    place.ended(folder)
    assert tries(tmp_path) == ["1"]
    assert not (folder / "attempts").exists()


def test_usage_errors_are_retried_on_request(place, tmp_path):
    folder = place.run(
        "r", counting("sys.exit(2 if attempt < 2 else 0)"), retries={**RETRIES, "causes": ["usage-error"]}
    )
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    assert tries(tmp_path) == ["1", "2"]


GPU_MEMORY = """
class OutOfMemoryError(RuntimeError): pass
if attempt < 2: raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
"""


@pytest.mark.parametrize(("causes", "expected"), [(["oom"], ["1", "2"]), (["failed"], ["1"])])
def test_lack_of_gpu_memory_is_retried_only_on_request(place, tmp_path, causes, expected):
    folder = place.run("r", counting(GPU_MEMORY), retries={**RETRIES, "causes": causes})
    place.start("r")
    assert place.ended(folder)["ending"] == ("succeeded" if "oom" in causes else "failed")
    assert tries(tmp_path) == expected


def test_cancel_between_attempts(place, tmp_path):
    folder = place.run("r", counting("sys.exit(1)"), retries={**RETRIES, "delay": 600})
    place.start("r")
    place.event(folder, "attempt_ended")
    place.call("cancel", "r", "ada")
    ending = place.ended(folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled before attempt 2 started")
    assert ending["outputs"] == 1
    assert tries(tmp_path) == ["1"]


def test_cancel_of_a_later_attempt_leaves_no_process(place, tmp_path):
    folder = place.run("r", counting("sys.exit(1) if attempt == 1 else time.sleep(600)"), retries=RETRIES)
    place.start("r")
    until(lambda: tries(tmp_path) == ["1", "2"])
    place.call("cancel", "r", "ada")
    assert place.ended(folder)["ending"] == "cancelled"
    assert tries(tmp_path) == ["1", "2"]
    until(lambda: not marked(folder))


def test_processes_of_an_attempt_end_before_the_next_one_starts(place):
    script = counting(
        "import subprocess\n"
        "old = subprocess.run(['pgrep', '-f', 'sleep 98765'], capture_output=True, text=True).stdout.split()\n"
        "print('left over:', old)\n"
        "subprocess.Popen(['sleep', '98765'], start_new_session=True)\n"
        "sys.exit(1 if attempt < 2 else 0)"
    )
    folder = place.run("r", script, retries=RETRIES, grace=0.1)
    place.start("r")
    place.ended(folder)
    assert (folder / "log").read_text().count("left over: []") == 2


def test_secrets_reach_every_attempt(place):
    script = counting("print('secret', os.environ['TOKEN'])\nsys.exit(1 if attempt < 2 else 0)")
    folder = place.run("r", script, retries=RETRIES, secrets=["TOKEN"])
    place.start("r", message={"secrets": {"TOKEN": "abc"}})
    assert place.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text().count("secret abc") == 2


# -- kills ---------------------------------------------------------------------------------------------


def test_successor_that_watched_an_attempt_starts_the_next(place, tmp_path):
    folder = place.run("r", counting(WAITS), retries=RETRIES)
    place.start("r")
    kill(place.event(folder, "accepted")["pid"])
    adopted = place.call("adopt", "r")
    assert adopted["state"] == "adopted"
    for attempt in (1, 2, 3):
        until(lambda attempt=attempt: len(tries(tmp_path)) == attempt)
        go(folder, attempt)
    assert place.ended(folder)["ending"] == "succeeded"
    assert tries(tmp_path) == ["1", "2", "3"]


def test_contact_after_the_end_of_an_attempt_starts_no_other(place, tmp_path):
    folder = place.run("r", counting(WAITS), retries=RETRIES)
    place.start("r")
    until(lambda: tries(tmp_path) == ["1"])
    kill(place.event(folder, "accepted")["pid"])
    go(folder, 1)
    until(lambda: (folder / "exit.json").exists())
    place.call("adopt", "r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 1)
    assert tries(tmp_path) == ["1"]


def test_successor_without_the_secrets_starts_no_attempt(place, tmp_path):
    folder = place.run("r", counting(WAITS), retries=RETRIES, secrets=["TOKEN"])
    place.start("r", message={"secrets": {"TOKEN": "abc"}})
    until(lambda: tries(tmp_path) == ["1"])
    kill(place.event(folder, "accepted")["pid"])
    place.call("adopt", "r")
    go(folder, 1)
    assert place.ended(folder)["ending"] == "failed"
    assert tries(tmp_path) == ["1"]
    assert "secrets" in (folder / "supervisor.log").read_text()


# Stage at which the supervisor is killed → attempts whose script started
STAGES = {
    "attempt-ending@1": "1",
    "attempt-ended@1": "1",
    "claiming@2": "1",
    "attempt-claimed@2": "1",
    "prepared@2": "1",
    "launched@2": "12",
    "started@2": "12",
    "finishing@2": "12",
}


@pytest.mark.parametrize("stage", STAGES)
def test_supervisor_killed_around_the_second_attempt(place, tmp_path, stage):
    """No attempt starts twice, and the next contact ends or continues the run."""
    folder = place.run("r", counting("sys.exit(1)"), retries={**RETRIES, "limit": 1})
    place.start("r", env={"MLW_FAILPOINT": f"{stage}:kill"})
    supervisor = place.event(folder, "accepted")["pid"]
    until(lambda: not alive(supervisor) and not marked(folder))
    assert "finished" not in kinds(place, folder)
    assert place.call("adopt", "r")["state"] == "adopted"
    ending = place.ended(folder)
    assert tries(tmp_path) == list(STAGES[stage])
    assert kinds(place, folder).count("finished") == 1
    if STAGES[stage] == "1":
        number = 2 if kinds(place, folder).count("attempt_ended") else 1
        expected = "attempt 2 started" if number == 2 else "attempt 1"
        assert expected in ending["cause"]


# Stage at which the launcher of the second attempt is killed → ending of the run, attempts whose script started
LAUNCHER_STAGES = {
    "before-gate": ("could not start", "1"),
    "after-gate": ("exit unknown", "1"),
    "after-start": ("failed", "12"),
    "before-exit": ("exit unknown", "12"),
}


@pytest.mark.parametrize("stage", LAUNCHER_STAGES)
def test_launcher_killed_in_the_second_attempt(place, tmp_path, stage):
    folder = place.run("r", counting("sys.exit(1)"), retries={**RETRIES, "limit": 1})
    place.start("r", env={"MLW_FAILPOINT": f"{stage}@2:kill"})
    ending = place.ended(folder)
    assert (ending["ending"], "".join(tries(tmp_path))) == LAUNCHER_STAGES[stage]
    assert kinds(place, folder).count("finished") == 1


def test_exit_of_an_attempt_whose_launcher_was_killed(place, tmp_path):
    """The supervisor inherits the script from the launcher, so the exit status is not lost."""
    folder = place.run("r", counting("time.sleep(600) if attempt == 1 else sys.exit(0)"), retries=RETRIES)
    place.start("r")
    until(lambda: tries(tmp_path) == ["1"])
    started = until(lambda: (folder / "started.json").exists() and place.event(folder, "started"))
    launcher = parse_json((folder / "started.json").read_bytes())["launcher"]
    kill(launcher)
    os.kill(started["pid"], signal.SIGKILL)
    assert place.ended(folder)["ending"] == "succeeded"
    [ended] = ended_attempts(place, folder)
    assert (ended["ending"], ended["signal"]) == ("failed", signal.SIGKILL)


def claim_attempt(folder: Path, number: int) -> None:
    claim = folder / "attempts" / str(number) / "claim"
    claim.mkdir(parents=True)
    (claim / "owner.json").write_text("{}")


def shared_files(folder: Path, attempt: int) -> dict[str, tuple[int, bytes]]:
    """Return the files of a run outside of the folder of an attempt."""
    files = {path: path.relative_to(folder).parts for path in folder.rglob("*") if path.is_file()}
    return {
        "/".join(parts): (path.stat().st_mtime_ns, path.read_bytes())
        for path, parts in files.items()
        if parts[:2] != ("attempts", str(attempt))
    }


@pytest.mark.parametrize("is_ended", [False, True])
def test_stopped_supervisor_that_continues_after_a_newer_claim_writes_nothing(place, tmp_path, is_ended):
    """Its script ends in the meantime, or is killed. The processes of the newer attempt are left alone."""
    script = "if attempt == 1: sys.exit(1)\nwhile not os.path.exists('end'): time.sleep(0.01)\nsys.exit(1)"
    folder = place.run("r", counting(script), retries=RETRIES)
    place.start("r")
    until(lambda: tries(tmp_path) == ["1", "2"])
    until(lambda: kinds(place, folder).count("started") == 2)
    supervisor = place.event(folder, "accepted")["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    claim_attempt(folder, 3)
    if is_ended:
        (folder / "work" / "end").write_text("")
        until(lambda: (folder / "attempts" / "2" / "exit.json").exists())
    newer = subprocess.Popen(["sleep", "600"], env={**os.environ, "MLW_RUN_FOLDER": str(folder), "MLW_ATTEMPT": "3"})
    before = shared_files(folder, 2)
    os.kill(supervisor, signal.SIGCONT)
    until(lambda: not alive(supervisor) and marked(folder) == [newer.pid])
    after = shared_files(folder, 2)
    assert [name for name in {**before, **after} if before.get(name) != after.get(name)] == []
    newer.kill()
    newer.wait()


def test_superseded_attempt_does_not_start(place, tmp_path):
    folder = place.run("r", counting("sys.exit(1)"), retries=RETRIES)
    place.start("r", env={"MLW_FAILPOINT": "before-gate@2:sleep=1"})
    until(lambda: (folder / "attempts" / "2" / "watch").exists())  # the launcher is about to start it
    claim_attempt(folder, 3)
    supervisor = place.event(folder, "accepted")["pid"]
    until(lambda: not alive(supervisor) and not marked(folder))
    assert tries(tmp_path) == ["1"]
    assert kinds(place, folder) == ["accepted", "started", "attempt_ended"]


def test_forged_end_of_an_attempt_is_ignored(place, tmp_path):
    folder = place.run("r", counting(WAITS), retries=RETRIES)
    place.start("r")
    until(lambda: tries(tmp_path) == ["1"])
    kill(place.event(folder, "accepted")["pid"])
    with open(folder / "events.jsonl", "a") as file:
        for number in ("1e999", "-1", "null", "100000000", '"2"'):
            data = f'{{"attempt": {number}, "log_size": 1e999}}'
            file.write(f'{{"w": "s", "seq": 90, "t": 1, "kind": "attempt_ended", "data": {data}}}\n')
    assert place.call("adopt", "r")["state"] == "adopted"
    for attempt in (1, 2, 3):
        until(lambda attempt=attempt: len(tries(tmp_path)) == attempt)
        go(folder, attempt)
    assert place.ended(folder)["ending"] == "succeeded"


def test_killed_parent_of_a_rank_ends_the_attempt_and_its_rank(place, tmp_path):
    """The launcher reports only that it failed. The rank has not ended by itself, so it is named."""
    script = RANK + counting("if attempt == 1 and rank == 1: print('up', flush=True); time.sleep(600)")
    folder = place.run("r", script, retries=RETRIES, **mpiexec(tmp_path, 2))
    place.start("r")
    until(lambda: (folder / "log").exists() and "up" in (folder / "log").read_text())
    rank = parse_json((folder / "ranks" / "1.json").read_bytes())["pid"]
    kill(int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1]))
    until(lambda: not alive(rank))
    assert place.ended(folder)["ending"] == "succeeded"
    assert sorted(tries(tmp_path)) == ["1", "1", "2", "2"], "two ranks in each attempt"
    [ended] = ended_attempts(place, folder)
    assert ended["cause"].startswith("rank 1 failed: its process was killed")
    assert [code for _, _, _, code, _ in ended["ranks"]] == [0, None]
    assert [code for _, _, _, code, _ in place.events(folder)[-1]["data"]["ranks"]] == [0, 0]
    assert len(list((folder / "attempts" / "2" / "ranks").iterdir())) == 2, "records of the second attempt"


def test_newer_claim_stops_an_older_attempt(place, tmp_path):
    folder = place.run("r", counting("time.sleep(600)"), retries=RETRIES)
    place.start("r")
    until(lambda: tries(tmp_path) == ["1"])
    claim_attempt(folder, 2)
    until(lambda: not marked(folder))
    assert "finished" not in kinds(place, folder)


def test_resumed_run_starts_with_a_copy_of_the_checkpoints(place):
    place.run("old", counting("sys.exit(0)"))
    place.start("old")
    place.ended(place.root / "runs" / "old")
    folder = place.run("new", counting("sys.exit(0)"), resumed="old")
    place.start("new")
    assert place.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == "attempt 1 from step 10\n"
    assert (place.root / "runs" / "old" / "checkpoints" / "step").read_text() == "10"


def test_resuming_a_run_without_checkpoints(place):
    folder = place.run("new", counting("sys.exit(0)"), resumed="gone")
    place.start("new")
    ending = place.ended(folder)
    assert (ending["ending"], ending["failure"]["code"]) == ("could not start", "no-checkpoints")
    assert "gone" in ending["cause"]


def test_attempts_in_containers(target, tmp_path):
    script = (
        "import os, sys\n"
        "attempt, path = os.environ.get('MLW_ATTEMPT', '1'), os.environ['MLW_RUN_FOLDER'] + '/checkpoints/step'\n"
        "print('attempt', attempt, open(path).read() if os.path.exists(path) else 'none')\n"
        "open(path, 'w').write(attempt)\n"
        "sys.exit(attempt == '1')"
    )
    folder = target.run("r", script, retries=RETRIES)
    target.start("r")
    ending = target.ended(folder)
    assert (ending["ending"], (folder / "log").read_text()) == ("succeeded", "attempt 1 none\nattempt 2 1\n")
    assert target.name("r") not in target.engine.containers()
    assert not {"word", "starting.json"} & {path.name for path in (folder / "attempts" / "2").iterdir()}


def test_killed_container_is_a_lost_attempt(target):
    script = "import os, time\nprint('up')\nif os.environ.get('MLW_ATTEMPT', '1') == '1': time.sleep(600)"
    folder = target.run("r", script, retries=RETRIES)
    target.start("r")
    target.up(folder)
    target.engine.docker("kill", target.name("r"))
    assert target.ended(folder)["ending"] == "succeeded"
    assert ended_attempts(target, folder)[0]["ending"] == "engine stopped it"
