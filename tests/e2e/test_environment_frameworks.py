"""Popular training frameworks in environments built only from a project's file.

TensorFlow is tested with the samples.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.python_environments import ONE_THREAD
from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import enable_managed_environment, set_compute_key
from tests.interpreters import interpreters
from tests.machines.channel import SHORT, allow_packages, depend
from tests.machines.programs import call

# A user's script with a few steps on generated data. It logs the loss of every step as `loss`, and that of the
# first step also as `first_loss`.
TORCH = """
import sys
import mlworkbench
import torch

torch.manual_seed(1)
inputs = torch.randn(256, 8)
wanted = (inputs * torch.arange(8.0)).sum(dim=1, keepdim=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(12):
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not step:
        mlworkbench.log("first_loss", loss.item())
    mlworkbench.log("loss", loss.item())
torch.save(model.state_dict(), "outputs/model.pt")
print("trained by", sys.executable, "with", torch.__file__)
"""
CNTK = """
import sys
import mlworkbench
import numpy
import cntk

cntk.cntk_py.set_fixed_random_seed(1)
numpy.random.seed(1)
inputs = numpy.random.randn(256, 8).astype(numpy.float32)
labels = numpy.eye(2, dtype=numpy.float32)[(inputs.sum(axis=1) > 0).astype(int)]
features, label = cntk.input_variable(8), cntk.input_variable(2)
model = cntk.layers.Sequential([cntk.layers.Dense(16, cntk.relu), cntk.layers.Dense(2)])(features)
loss = cntk.cross_entropy_with_softmax(model, label)
trainer = cntk.Trainer(model, (loss,), [cntk.adam(model.parameters, lr=0.05, momentum=0.9)])
for step in range(12):
    trainer.train_minibatch({features: inputs, label: labels})
    if not step:
        mlworkbench.log("first_loss", trainer.previous_minibatch_loss_average)
    mlworkbench.log("loss", trainer.previous_minibatch_loss_average)
model.save("outputs/model.dnn")
print("trained by", sys.executable, "with", cntk.__file__)
"""
# Each rank starts with the same weights, which CNTK requires, and trains with other data. Then, one rank fails.
CNTK_RANKS = """
import hashlib, sys
import numpy
import cntk

rank = cntk.Communicator.rank()
numpy.random.seed(rank)
inputs = numpy.random.randn(64, 8).astype(numpy.float32)
labels = numpy.eye(2, dtype=numpy.float32)[(inputs.sum(axis=1) > 0).astype(int)]
features, label = cntk.input_variable(8), cntk.input_variable(2)
model = cntk.layers.Dense(2, init=0.1)(features)
learner = cntk.distributed.data_parallel_distributed_learner(cntk.sgd(model.parameters, lr=0.05))
loss = cntk.cross_entropy_with_softmax(model, label)
trainer = cntk.Trainer(model, (loss,), [learner])
for step in range(3):
    trainer.train_minibatch({features: inputs, label: labels})
digest = hashlib.sha256(model.W.value.tobytes()).hexdigest()
sys.stdout.write("weights of rank %d of %d: %s\\n" % (rank, cntk.Communicator.num_workers(), digest))
sys.stdout.flush()
learner.communicator().barrier()
if rank == 2: raise ValueError("bad batch")
learner.communicator().barrier()
"""
TIMEOUT = 560  # seconds; hundreds of megabytes are downloaded, uploaded, unpacked, and compiled
pytestmark = pytest.mark.timeout(TIMEOUT + 40)


def assert_trained(laptop, done, prefix, output):
    """Check that only that environment was used, the loss fell and is in the history, and the model was fetched."""
    assert done.code == 0, done
    assert re.search(rf"^trained by {prefix}/bin/python\S* with {prefix}/lib/python", done.out, re.MULTILINE), done
    record = laptop.info(done.run)
    assert 0 < record["loss"] < record["first_loss"], record
    assert (laptop.folder(done.run) / "work/outputs" / output).stat().st_size > 0
    return record


def prefix_of(store, laptop, run):
    return store / "envs" / laptop.info(run)["environment"]["digest"]


# -- PyTorch -------------------------------------------------------------------------------------------


def wheels():
    """Return folder and version of PyTorch's CPU build from pip's configuration, because the index has none."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    folders = re.findall(r"find-links='([^']*)'", done.stdout)
    for folder in (Path(part) for value in folders for part in value.split() if "://" not in part):
        for file in folder.glob(f"torch-*+cpu-cp{SHORT.replace('.', '')}-*.whl"):
            return folder, file.name.split("-")[1]
    pytest.skip(f"pip is not set up for a folder with PyTorch's CPU build for Python {SHORT} (find-links)")


def test_pytorch_trains_on_offline_machine_and_reuses_environment(laptop, machine, channel):
    """All packages are uploaded over ssh, with progress messages."""
    folder, version = wheels()
    host = machine(docker="yes")
    root = laptop.project("far", train=TORCH)
    allow_packages(root, folder)
    depend(root, channel, f"--find-links {folder}", f"torch=={version}", "numpy")
    remote = RemoteTarget(laptop, host, "remotedocker", project=root, managed=True)
    first = remote.submit("train.py", timeout=TIMEOUT)
    assert first.code == 0, first
    prefix = prefix_of(host.home / ".mlw", laptop, first.run)
    assert_trained(laptop, first, prefix, "model.pt")
    second = remote.submit("train.py")
    assert_trained(laptop, second, prefix, "model.pt")
    assert re.search(r"^upload +\S+ \S+ of \d+ MB$", first.err, re.MULTILINE), "not in silence"
    assert "upload" not in second.err and "environment ready" not in second.err, "all of it is there"


# -- CNTK ----------------------------------------------------------------------------------------------


def openmpi(folder):
    """Create a folder with OpenMPI under the file names that CNTK expects. Current versions are compatible."""
    paths = {}
    libraries = call("ldconfig", "-p").stdout
    for old, new in (("libmpi.so.12", "libmpi.so.40"), ("libmpi_cxx.so.1", "libmpi_cxx.so.40")):
        place = re.search(rf"^\s*{re.escape(new)} .*=> (/\S+)$", libraries, re.MULTILINE)
        if place is None:
            why = f"OpenMPI is not installed: no {new} (scripts/test-tools installs it)"
            pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
        paths[old] = place[1]
    folder.mkdir()
    for old, place in paths.items():
        (folder / old).symlink_to(place)
    return folder


def test_cntk_from_2019_trains(user, tmp_path):
    """The framework of the original product. Python 3.6 and OpenMPI come from the machine."""
    python = interpreters().get((3, 6))
    if python is None:
        pytest.skip("there is no Python 3.6 on this machine")
    libraries = openmpi(tmp_path / "mpi")
    root = user.project("demo", train=CNTK, ranks=CNTK_RANKS)
    (root / "aml_config" / "conda_dependencies.yml").write_text(
        "name: project_environment\ndependencies:\n  - python=3.6\n"
        "  - pip\n  - pip:\n    - numpy<1.17\n    - scipy<1.3\n    - cntk==2.7\n"
    )
    enable_managed_environment(root, "local")
    set_compute_key(root, "local", "pythonLocation", python)
    runconfig = root / "aml_config" / "local.runconfig"
    output = re.sub(
        r"(?m)^EnvironmentVariables:.*(\n +.*)*",
        f"EnvironmentVariables:\n  LD_LIBRARY_PATH: {libraries}",
        runconfig.read_text(),
    )
    runconfig.write_text(output)
    done = user.mlw("submit", "-c", "local", *ONE_THREAD, "train.py", cwd=root, timeout=TIMEOUT)
    assert done.code == 0, done
    prefix = prefix_of(user.store, user, done.run)
    record = assert_trained(user, done, prefix, "model.dnn")
    assert record["environment"]["python"]["path"] == python
    versions = {package["name"]: package["version"] for package in record["environment"]["pip"]}
    assert versions["cntk"] == "2.7" and versions["numpy"].startswith("1.16."), versions
    assert_ranks(user, root)


def assert_ranks(user, root):
    """Check that four processes train the same model, and that the one that fails is named and ends the run."""
    launcher = ("--launcher", "mpiexec", "--processes", "4")
    done = user.mlw("submit", "-c", "local", *ONE_THREAD, *launcher, "ranks.py", cwd=root, timeout=TIMEOUT)
    weights = re.findall(r"weights of rank (\d) of 4: (\w{64})", done.out)
    assert sorted(rank for rank, _ in weights) == ["0", "1", "2", "3"], done
    assert len({digest for _, digest in weights}) == 1, done
    assert done.code == 1 and "rank 2 failed: ValueError: bad batch (ranks.py:" in done.err, done
