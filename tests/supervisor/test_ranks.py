"""Several processes in a container: the launcher, records of ranks, and cancel. Without a container: tests/e2e."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mlworkbench.remote.shared.layout import RunFolder

from .conftest import REMOTE, until

# Starts all ranks, waits for them, and fails if one has failed. (Images for tests contain no MPI library.)
MPIEXEC = """#!/bin/sh
[ "$1" = --version ] && exit 0
size=$2; shift 2
rank=0
while [ $rank -lt $size ]; do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$size "$@" &
  all="$all $!"; rank=$((rank + 1))
done
trap 'kill $all' TERM
for process in $all; do wait $process || failed=1; done
exit ${failed:-0}
"""
RANK = "import os, time\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"


def mpiexec(tmp_path: Path, count: int | str) -> dict[str, object]:
    """Return the settings of a run of several processes, started by a script in place of mpiexec."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "mpiexec").write_text(MPIEXEC)
    (programs / "mpiexec").chmod(0o755)
    processes = {"launcher": "mpiexec", "count": str(count), "python": sys.executable, "library": str(REMOTE / "inrun")}
    return {"processes": processes, "path": [str(programs)]}


def run(target, run_id, script):
    """Add a run with four processes."""
    programs = target.root.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "mpiexec").write_text(MPIEXEC)
    (programs / "mpiexec").chmod(0o755)
    library = str(REMOTE / "inrun")
    ranks = RunFolder(str(target.root / "runs" / run_id)).ranks
    home = str(target.root / "homes" / "p")
    mounts = [[home, home, "rw"], [library, library, "ro"], [str(programs), str(programs), "ro"], [ranks, ranks, "rw"]]
    processes = {"launcher": "mpiexec", "count": "4", "python": "python3", "library": library}
    return target.run(run_id, RANK + script, processes=processes, path=[str(programs)], container={"mounts": mounts})


def test_the_rank_that_failed_is_named(target):
    folder = run(target, "r", "print('rank', rank)\nif rank == 2: raise ValueError('bad batch')\n")
    target.start("r")
    ending = target.ended(folder)
    assert ending["failure"]["message"] == "rank 2 failed: ValueError: bad batch (main.py:4)"
    log = (folder / "log").read_text()  # other ranks may print between two pieces of the traceback's lines
    assert [log.count(f"rank {rank}\n") for rank in range(4)] == [1, 1, 1, 1]
    records = [json.loads((folder / "ranks" / f"{rank}.json").read_text()) for rank in range(4)]
    assert [(record["rank"], record["code"]) for record in records] == [(0, 0), (1, 0), (2, 1), (3, 0)]


def test_image_without_the_launcher(target):
    processes = {"launcher": "torchrun", "count": "2", "python": "python3", "library": str(REMOTE / "inrun")}
    folder = target.run("r", "print('never')\n", processes=processes)
    target.start("r")
    failure = target.ended(folder)["failure"]
    image = target.engine.image
    assert failure["message"] == f"torchrun cannot start the script: image {image} has no PyTorch"
    assert failure["hint"] == "set baseDockerImage to an image with PyTorch"
    assert (failure["code"], failure["explain"]) == ("no-launcher", "no-launcher")


def test_cancel_ends_all_ranks(target):
    folder = run(target, "r", "print('up', flush=True)\ntime.sleep(1000)\n")
    target.start("r")
    until(lambda: (folder / "log").exists() and (folder / "log").read_text().count("up") == 4)
    target.call("cancel", "r")
    assert target.ended(folder)["ending"] == "cancelled"
    records = [json.loads((folder / "ranks" / f"{rank}.json").read_text()) for rank in range(4)]
    assert all(record["terminated"] for record in records)
