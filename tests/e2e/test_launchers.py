"""Several processes on one machine, started by a launcher: one log, and the rank that failed."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from mlworkbench.remote.shared.untrusted_json import parse_json
from mlworkbench.testing.processes import run_processes
from mlworkbench.testing.waiting import wait_until

RANK = "import os, signal, sys, time\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
TRAIN = RANK + (
    "import mlworkbench\n"
    "size = int(os.environ['OMPI_COMM_WORLD_SIZE'])\n"
    "mlworkbench.log_param('lr', 0.1)\n"
    "for step in range(3): mlworkbench.log('loss', 10.0 * rank + step, step=step)\n"
    "from azureml.logging import get_azureml_logger\n"
    "get_azureml_logger().log('accuracy', 0.5 + rank / 10)\n"
    "sys.stdout.write('rank %d of %d\\n' % (rank, size))\n"
    "sys.stderr.write('\\xe9\\n' if rank == 3 else '')\n"
)


@pytest.fixture
def mpi():
    """Require a real mpiexec."""
    if shutil.which("mpiexec") is None:
        why = "mpiexec is not installed (scripts/test-tools installs it)"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)


def submit(user, root, *arguments, **more):
    return user.mlw("submit", "-c", "local", "--launcher", "mpiexec", *arguments, cwd=root, **more)


def points(user, root, run, *arguments):
    """Return the values of each series that ``mlw history metrics`` prints."""
    result = user.mlw("history", "metrics", run, *arguments, "-o", "json", cwd=root)
    assert result.code == 0, result
    metrics = parse_json(result.out)["metrics"]
    return {name: [point["value"] for point in series] for name, series in metrics.items()}


def test_four_processes_write_one_log_and_one_run(user, mpi):
    root = user.project(train=TRAIN)
    done = submit(user, root, "--processes", "4", "train.py")
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == [*(f"rank {rank} of 4" for rank in range(4)), "\xe9"]
    assert [run["run_id"] for run in user.runs()] == [done.run]
    assert points(user, root, done.run) == {"loss": [0, 1, 2], "accuracy": [0.5]}
    others = points(user, root, done.run, "--ranks")
    assert [others[f"rank {rank}/loss"][2] for rank in (1, 2, 3)] == [12, 22, 32]
    assert [others[f"rank {rank}/accuracy"] for rank in (1, 2, 3)] == [[0.6], [0.7], [0.8]]


def test_the_rank_that_failed_is_named_with_its_own_error(user, mpi):
    """The others are ended within seconds, and the run has no process left."""
    root = user.project(train=RANK + "if rank == 2: raise ValueError('bad batch')\ntime.sleep(1000)\n")
    done = submit(user, root, "--processes", "4", "train.py")
    assert done.code == 1, done
    assert "rank 2 failed: ValueError: bad batch (train.py:3)" in done.err, done
    assert run_processes(user.folder(done.run)) == []
    shown = user.mlw("show", done.run, cwd=root).out
    assert re.search(r"^ *Ranks +ranks? 0", shown, re.MULTILINE), shown
    assert re.search(r"^ +rank 2 on .*: exit 1 \(PID \d+\)$", shown, re.MULTILINE), shown
    assert [(rank["rank"], rank["exit"]) for rank in user.info(done.run)["ranks"]] == [
        *((0, None), (1, None), (2, 1), (3, None))  # ended by mpiexec
    ]


def test_a_killed_rank_is_named(user, mpi):
    root = user.project(train=RANK + "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(1000)\n")
    done = submit(user, root, "--processes", "4", "train.py")
    assert "rank 1 failed: killed by signal 9 (SIGKILL)" in done.err, done


def test_cancel_ends_all_ranks(user, mpi):
    """One of them ignores SIGTERM."""
    script = RANK + "if rank == 3: signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\n"
    root = user.project(train=script + "while True: time.sleep(1)\n")
    run = submit(user, root, "--processes", "4", "--detach", "train.py").run
    log = user.folder(run) / "log"
    wait_until(lambda: log.exists() and log.read_text().count("up") == 4)
    assert user.mlw("cancel", run, "--grace", "1", cwd=root).code == 0
    wait_until(lambda: user.info(run)["status"] == "Canceled")
    assert run_processes(user.folder(run)) == []


def test_missing_launcher_is_found_before_the_run(user):
    root = user.project(train="print('never')\n")
    done = user.mlw("submit", "-c", "local", "--launcher", "torchrun", "train.py", cwd=root)
    assert done.code == 78
    assert "error: torchrun cannot start the script: " in done.err and " has no PyTorch" in done.err, done
    assert "mlw explain no-launcher" in done.err
    assert user.runs() == []


# Without MPI, in one process per rank, as torchrun starts them.
RANKS = """
import os, subprocess, sys
for rank in map(str, range(3)):
    subprocess.run([sys.executable, "rank.py"], env=dict(os.environ, RANK=rank, WORLD_SIZE="3"), check=True)
"""
LOGS = """
import os, mlworkbench
rank = int(os.environ["RANK"])
mlworkbench.log_param("lr", 0.1 + rank)
mlworkbench.set_tag("stage", str(rank))
for step in range(4): mlworkbench.log("loss", 10.0 * rank + step, step=step)
if rank == 2: mlworkbench.log("last stage only", 5.0)
"""


def test_views_show_rank_0_and_other_ranks_on_demand(user):
    root = user.project(train=RANKS, rank=LOGS)
    run = user.mlw("submit", "-c", "local", "train.py", cwd=root).run
    info = user.info(run)
    assert (info["loss"], info["last stage only"]) == (3.0, 5.0), info
    assert (info["params"]["lr"], info["tags"]) == (0.1, ["stage=0"]), info

    assert points(user, root, run) == {"loss": [0, 1, 2, 3], "last stage only": [5]}
    assert points(user, root, run, "loss", "--ranks") == {
        "loss": [0, 1, 2, 3],
        "rank 1/loss": [10, 11, 12, 13],
        "rank 2/loss": [20, 21, 22, 23],
    }
