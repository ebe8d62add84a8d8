"""Attempts together with ranks, GPUs, time limits, and sweeps, and kills at more stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.remote.shared.untrusted_json import parse_json

from .conftest import alive, end_marked, marked, until
from .gpu_hosts import GpuHost
from .test_attempts import RETRIES, counting, ended_attempts, kill, kinds, tries
from .test_ranks import RANK, mpiexec
from .test_sweep import Sweep


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# -- ranks ---------------------------------------------------------------------------------------------


def test_usage_error_of_a_rank_is_final_although_the_launcher_exits_with_1(place, tmp_path):
    script = RANK + counting("sys.exit(2 if rank == 1 else 0)")
    folder = place.run("r", script, retries=RETRIES, **mpiexec(tmp_path, 2))
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 2)
    assert parse_json((folder / "exit.json").read_bytes())["code"] == 1
    assert tries(tmp_path) == ["1", "1"], "two ranks in one attempt"


def test_parent_of_a_rank_killed_before_it_has_recorded_the_rank(place, tmp_path):
    """Nothing can be recorded here. The rank ends, the attempt fails, and another one follows."""
    script = RANK + counting("if attempt == 1 and rank == 1: os.kill(os.getppid(), 9); time.sleep(600)")
    folder = place.run("r", script, retries=RETRIES, **mpiexec(tmp_path, 2))
    (folder / "ranks").write_text("")
    place.start("r")
    assert place.ended(folder)["ending"] == "succeeded"
    assert sorted(tries(tmp_path)) == ["1", "1", "2", "2"]
    [ended] = ended_attempts(place, folder)
    assert (ended["ending"], ended["exit"], ended["ranks"]) == ("failed", 1, [])
    assert marked(folder) == []


def test_parent_of_a_rank_killed_after_it_has_forwarded_the_signal(place, tmp_path):
    script = RANK + (
        "import signal\nsignal.signal(15, lambda *_: None if rank else os._exit(0))\n"  # the signal is sent twice
        "print('up', flush=True)\nwhile True: time.sleep(0.05)\n"
    )
    folder = place.run("r", script, grace=600, **mpiexec(tmp_path, 2))
    place.start("r")
    until(lambda: (folder / "log").exists() and (folder / "log").read_text().count("up") == 2)
    place.call("cancel", "r", "ada")
    record = folder / "ranks" / "1.json"
    rank = until(lambda: (facts := parse_json(record.read_bytes())).get("terminated") and facts["pid"])
    kill(parent_of(rank))
    until(lambda: not alive(rank))
    ending = place.ended(folder)
    assert ending["ending"] == "cancelled"
    assert [rank[3:] for rank in ending["ranks"]] == [[0, None], [None, None]]
    assert marked(folder) == []


# -- GPUs, time limits, and sweeps ---------------------------------------------------------------------


@pytest.fixture
def host(tmp_path):
    yield GpuHost(tmp_path, 1)
    end_marked(tmp_path)


def test_each_attempt_waits_for_gpus_again(host, tmp_path):
    """Between the attempts, the GPU belongs to the run that waits for it."""
    script = counting("while not os.path.exists('go'): time.sleep(0.01)\nsys.exit(attempt < 2)")
    first = host.run("first", script, gpus="1", retries=RETRIES)
    host.start("first")
    until(lambda: tries(tmp_path) == ["1"])
    other = host.run("other", "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n", gpus="1")
    host.start("other")
    until(lambda: [event for event in host.events(other) if event["kind"] == "queued"])
    (first / "work" / "go").write_text("")
    host.event(other, "started")
    until(lambda: "queued" in kinds(host, first))
    assert tries(tmp_path) == ["1"], "the second attempt waits"
    (other / "work" / "go").write_text("")
    assert host.ended(other)["ending"] == "succeeded"
    assert host.ended(first)["ending"] == "succeeded"
    assert host.order() == ["first", "other", "first"]
    assert list((host.root / "gpus" / "held").iterdir()) == []


def test_time_limit_applies_to_each_attempt_and_is_final(place, tmp_path):
    folder = place.run(
        "r", counting("time.sleep(0.05 if attempt == 1 else 600)\nsys.exit(1)"), retries=RETRIES, timeout=4
    )
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], tries(tmp_path)) == ("timeout", ["1", "2"])
    assert ending["elapsed"] >= 4, "the time of the first attempt does not count"


def test_children_of_a_sweep_are_retried(place, tmp_path):
    script = counting("print('got', sys.argv[1])\nsys.exit(sys.argv[1] == 'fail' and attempt < 3)")
    sweep = Sweep(place, tmp_path, ["once", "fail"], script=script, retries=RETRIES)
    sweep.start()
    assert place.ended(sweep.folder)["ending"] == "succeeded"
    assert sweep.endings() == ["succeeded", "succeeded"]
    assert [len(ended_attempts(place, sweep.of(name))) for name in sweep.names] == [0, 2]
    assert sorted(tries(tmp_path)) == ["1", "1", "2", "3"]


# -- kills ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("causes", "expected"), [(["lost"], ["1", "2"]), (["failed"], ["1"])])
def test_attempt_whose_exit_status_is_lost(place, tmp_path, causes, expected):
    """The launcher is killed before it has recorded the exit status, which no other process has."""
    folder = place.run("r", counting("sys.exit(0)"), retries={**RETRIES, "causes": causes})
    place.start("r", env={"MLW_FAILPOINT": "before-exit@1:kill"})
    ending = place.ended(folder)
    attempts = [data["ending"] for data in ended_attempts(place, folder)]
    assert [*attempts, ending["ending"]] == (["exit unknown", "succeeded"] if expected[1:] else ["exit unknown"])
    assert tries(tmp_path) == expected


def test_supervisor_killed_while_it_copies_checkpoints(place, tmp_path):
    """The checkpoints of the other run stay whole, the new run never starts, and a further run can resume."""
    place.run("old", counting("sys.exit(0)"))
    place.start("old")
    place.ended(place.root / "runs" / "old")
    killed = place.run("killed", counting("sys.exit(0)"), resumed="old")
    place.start("killed", env={"MLW_FAILPOINT": "checkpoints-copied:kill"})
    supervisor = place.event(killed, "accepted")["pid"]
    until(lambda: not alive(supervisor))
    source = place.root / "runs" / "old" / "checkpoints"
    assert {path.name: path.read_text() for path in source.iterdir()} == {"step": "10"}
    assert place.call("adopt", "killed")["state"] == "adopted"
    assert place.ended(killed)["ending"] == "could not start"
    again = place.run("again", counting("sys.exit(0)"), resumed="old")
    place.start("again")
    assert place.ended(again)["ending"] == "succeeded"
    assert (again / "log").read_text() == "attempt 1 from step 10\n"
    assert tries(tmp_path) == ["1", "1"]


# Stage at which the supervisor is killed → attempts whose script started
CONTAINER_STAGES = {"prepared@2": "attempt 1\n", "launched@2": "attempt 1\nattempt 2\n"}


@pytest.mark.parametrize("stage", CONTAINER_STAGES)
def test_supervisor_of_a_container_killed_around_the_second_attempt(target, stage):
    script = "import os, sys\nprint('attempt', os.environ.get('MLW_ATTEMPT', '1'), flush=True)\nsys.exit(1)\n"
    folder = target.run("r", script, retries={**RETRIES, "limit": 1})
    target.start("r", env={"MLW_FAILPOINT": f"{stage}:kill"})
    supervisor = target.event(folder, "accepted")["pid"]
    until(lambda: not alive(supervisor))
    assert target.call("adopt", "r")["state"] == "adopted"
    target.ended(folder)
    assert (folder / "log").read_text() == CONTAINER_STAGES[stage]
    assert kinds(target, folder).count("finished") == 1
    assert target.name("r") not in target.engine.containers()
