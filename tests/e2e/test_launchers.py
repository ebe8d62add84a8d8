"""Several processes on one machine, started by a launcher: one log, and the rank that failed."""

from __future__ import annotations

import os
import shutil

import pytest

from mlworkbench.testing.processes import run_processes
from mlworkbench.testing.waiting import wait_until

RANK = "import os, signal, sys, time\nrank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
TRAIN = RANK + (
    "import mlworkbench\n"
    "size = int(os.environ['OMPI_COMM_WORLD_SIZE'])\n"
    "mlworkbench.log_param('lr', 0.1)\n"
    "for step in range(3): mlworkbench.log('loss', 10.0 * rank + step, step=step)\n"
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


def test_four_processes_write_one_log_and_one_run(user, mpi):
    root = user.project(train=TRAIN)
    done = submit(user, root, "--processes", "4", "train.py")
    assert done.code == 0, done
    assert sorted(done.out.splitlines()) == [*(f"rank {rank} of 4" for rank in range(4)), "\xe9"]
    assert [run["run_id"] for run in user.runs()] == [done.run]


def test_the_rank_that_failed_is_named_with_its_own_error(user, mpi):
    """The others are ended within seconds, and the run has no process left."""
    root = user.project(train=RANK + "if rank == 2: raise ValueError('bad batch')\ntime.sleep(1000)\n")
    done = submit(user, root, "--processes", "4", "train.py")
    assert done.code == 1, done
    assert "rank 2 failed: ValueError: bad batch (train.py:3)" in done.err, done
    assert run_processes(user.folder(done.run)) == []


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
