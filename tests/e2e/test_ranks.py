"""Real launchers with four processes on each kind of target: weights, the rank that fails, and what a cancel leaves.

Each run has two attempts. In the first, all ranks train together, and then one of them fails. The second is canceled.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlworkbench.testing.processes import run_processes
from mlworkbench.testing.waiting import wait_until
from tests.conftest import end_processes, need
from tests.e2e.python_environments import ONE_THREAD, cached_environment
from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import set_compute_key
from tests.e2e.test_environment_frameworks import wheels
from tests.machines.engine import Engine
from tests.machines.laptop import Laptop
from tests.machines.machine import Machine

ATTEMPT_2 = """
import hashlib, os, signal, sys, time
if os.environ["MLW_ATTEMPT"] == "2":  # without the imports of the first attempt
    sys.stdout.write("waiting for cancel\\n")
    sys.stdout.flush()
    time.sleep(1000)

def report(rank, weights):
    sys.stdout.write("weights of rank %d: %s\\n" % (rank, hashlib.sha256(weights).hexdigest()))
    sys.stdout.flush()
"""
# Each rank starts with other weights, and trains with other data. Classes that contain a training loop would import
# a compiler, which takes seconds in each rank; the sample mnist-ddp uses them.
TORCH_STEPS = """
torch.manual_seed(rank)
weights = torch.randn(4, requires_grad=True)
dist.broadcast(weights.data, 0)
for step in range(3):
    weights.grad = None
    (torch.randn(8, 4) @ weights).square().mean().backward()
    dist.all_reduce(weights.grad)
    weights.data -= 0.1 * weights.grad
report(rank, weights.detach().numpy().tobytes())
dist.barrier()
"""
TORCHRUN = f"""{ATTEMPT_2}
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
{TORCH_STEPS}
if rank == 2: os.kill(os.getpid(), signal.SIGSEGV)  # SIGKILL could be mistaken for a lack of memory
dist.barrier()
"""
ACCELERATE = f"""{ATTEMPT_2}
import torch
import torch.distributed as dist
from accelerate import Accelerator
rank = Accelerator().process_index
{TORCH_STEPS}
if rank == 2: raise ValueError("bad batch")
dist.barrier()
"""
MPI4PY = f"""{ATTEMPT_2}
import random, struct
from mpi4py import MPI
world = MPI.COMM_WORLD
rank = world.Get_rank()
random.seed(rank)
weights = world.bcast([random.random() for _ in range(8)])
for step in range(3):
    gradients = world.allreduce(random.random())
    weights = [weight - 0.1 * gradients for weight in weights]
report(rank, struct.pack("8d", *weights))
world.Barrier()
if rank == 2: raise ValueError("bad batch")
world.Barrier()
"""
SCRIPTS = {"torchrun": TORCHRUN, "accelerate": ACCELERATE, "mpiexec": MPI4PY}
CASES = [
    *(("torchrun", target) for target in ("local", "remote", "remotedocker")),
    ("accelerate", "local"),
    *(("mpiexec", target) for target in ("local", "remote", "remotedocker")),
]
# The image has no MPI library: containers use MPICH from a folder of the machine.
MPI = {
    "PYTHONPATH": "/packages",
    "PATH": "/mpi/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/mpi/lib",
    "MPI4PY_LIBMPI": "/mpi/lib/libmpi.so.12",
}
WITHOUT = shutil.ignore_patterns("include", "*.a", "sympy", "pip")
pytestmark = pytest.mark.timeout(600)


class Targets:
    """A project on a laptop, a machine that is attached with and without containers, and the laptop itself."""

    def __init__(self, laptop: Laptop, host: Machine, engine: Engine) -> None:
        self.laptop, self.host, self.engine = laptop, host, engine
        python = cached_environment("ranks", "--find-links", *torch(), "numpy", "accelerate", "mpi4py")
        self.root = laptop.project("demo")
        for name, script in SCRIPTS.items():
            (self.root / f"with_{name}.py").write_text(script)
        set_compute_key(self.root, "local", "pythonLocation", str(python))
        # On the machine, the user has installed the packages for Debian's Python, which the image has, too.
        [packages] = python.parents[1].glob("lib/python3.*/site-packages")
        self.packages = host.home / ".local" / "lib" / packages.parent.name / "site-packages"
        shutil.copytree(packages, self.packages, ignore=WITHOUT, symlinks=True)
        mpich = cached_environment("mpich", "mpich==4.3.2").parents[1]
        mpi = host.home / "mpi"
        shutil.copytree(mpich / "bin", mpi / "bin", ignore=shutil.ignore_patterns("python*"))
        shutil.copytree(mpich / "lib", mpi / "lib", ignore=shutil.ignore_patterns("python*"), symlinks=True)
        host.run("chown", "-R", host.user, str(host.home / ".local"), str(mpi))
        for kind in ("remote", "remotedocker"):
            RemoteTarget(laptop, host, kind, name=kind, project=self.root)
        allowed = ("--allow-mount", str(self.packages), "--allow-mount", str(mpi))
        laptop.mlw("computetarget", "update", "remotedocker", *allowed, cwd=self.root, check=True)
        set_compute_key(self.root, "remotedocker", "mounts", f"[{self.packages}:/packages:ro, {mpi}:/mpi:ro]")

    def submit(self, launcher: str, target: str) -> str:
        options = ("--launcher", launcher, "--processes", "4", "--retries", "1", "--retry-delay", "0.1", "--detach")
        variables = MPI if target == "remotedocker" else {}
        path = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        done = self.laptop.mlw(
            *("submit", "-c", target, *options, *path, *ONE_THREAD, f"with_{launcher}.py"), cwd=self.root, timeout=120
        )
        assert done.code == 0, done
        return done.run

    def log(self, run: str, target: str) -> str:
        folder = self.laptop.folder(run) if target == "local" else self.host.home / ".mlw" / "runs" / run
        return (folder / "log").read_text() if (folder / "log").exists() else ""

    def processes(self, run: str, target: str) -> list:
        if target == "local":
            return run_processes(self.laptop.folder(run))
        ranks = [command for command in self.host.processes().values() if "rank_parent" in command or ".py" in command]
        return [*ranks, *self.engine.containers()]


def torch() -> tuple[str, str]:
    folder, version = wheels()
    return str(folder), f"torch=={version}"


@pytest.fixture(scope="module")
def targets(tmp_path_factory, module_machine, session_engine) -> Iterator[Targets]:
    need("mpiexec")
    place: Path = tmp_path_factory.mktemp("ranks")
    laptop = Laptop(place)
    yield Targets(laptop, module_machine(docker="yes"), session_engine)
    end_processes(place)
    shutil.rmtree(laptop.runtime, ignore_errors=True)


@pytest.mark.parametrize(("launcher", "target"), CASES, ids=["-".join(case) for case in CASES])
def test_four_ranks(targets, launcher, target):
    run = targets.submit(launcher, target)
    # mpiexec may forward the line breaks later, after a line of another rank.
    wait_until(lambda: targets.log(run, target).count("waiting for cancel") == 4, 300)
    log = targets.log(run, target)
    weights = re.findall(r"weights of rank (\d): (\w{64})", log)
    assert sorted(rank for rank, _ in weights) == ["0", "1", "2", "3"], log
    assert len({digest for _, digest in weights}) == 1, log
    canceled = targets.laptop.mlw("cancel", run, "--grace", "1", cwd=targets.root)
    assert canceled.code == 0, canceled
    wait_until(lambda: targets.laptop.info(run)["status"] == "Canceled")
    assert targets.processes(run, target) == []
    record = targets.laptop.info(run)
    [failed] = record["attempts"]
    assert [rank["rank"] for rank in failed["ranks"]] == [rank["rank"] for rank in record["ranks"]] == [0, 1, 2, 3]
    assert all(rank["exit"] != 0 for rank in record["ranks"]), "all were ended"
    cause = failed["cause"].partition("; meanwhile")[0]  # a lack of memory on the machine of the tests is mentioned
    assert cause == f"rank 2 failed: {error(launcher)}", log


def error(launcher: str) -> str:
    """Return the error of rank 2."""
    lines = SCRIPTS[launcher].splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.startswith("if rank == 2")]
    is_killed = launcher == "torchrun"
    return "killed by signal 11 (SIGSEGV)" if is_killed else f"ValueError: bad batch (with_{launcher}.py:{number})"
