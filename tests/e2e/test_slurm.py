"""Submit to a real Slurm cluster from a laptop, through sshd on its login node."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.e2e.attach_helpers import new_project
from tests.machines.laptop import Laptop
from tests.machines.slurm import SlurmCluster


@pytest.fixture
def hpc(slurm: SlurmCluster, laptop: Laptop):
    """A project with the target hpc, which user ada attached."""
    project = new_project(laptop)
    laptop.trust_host_keys(slurm.login)
    done = laptop.mlw(*attach(slurm), "--partition", "gpu", "--time", "30:00", cwd=project)
    assert done.code == 0, done
    return project


def attach(slurm: SlurmCluster) -> list[str]:
    login = slurm.login
    address = ["--address", login.address, "--username", login.user, "--private-key-file", str(login.key)]
    return ["computetarget", "attach", "slurm", "--name", "hpc", *address]


def test_attach_check_and_gpus(slurm: SlurmCluster, laptop: Laptop, hpc) -> None:
    text = (hpc / "aml_config" / "hpc.compute").read_text()
    assert "# Shell lines that the job executes before the run" in text
    settings = {name: value for name, value in yaml.safe_load(text).items() if value is not None}
    assert settings == {
        "type": "slurm",
        "address": slurm.login.address,
        "username": "ada",
        "partition": "gpu",
        "time": "30:00",
    }
    other = laptop.mlw(*attach(slurm), "--partition", "low", cwd=hpc)
    assert other.code == 2 and "already exists, with another partition than low" in other.err

    checked = laptop.mlw("computetarget", "check", "hpc", "-o", "json", cwd=hpc)
    found = {row["what"]: (row["state"], row["found"]) for row in json.loads(checked.out)}
    assert {state for state, _ in found.values()} == {"ok", "warning"}
    assert found["Slurm"] == ("ok", slurm.run("sbatch", "--version").stdout.split()[-1] + ", cluster hpc")
    assert found["partition gpu (used by this target)"][1] == (
        "up, limit 1-00:00:00, 3 of 3 nodes usable, up to 8 CPUs and 8 GiB per node, GPUs: 6 h200"
    )
    assert found["accounting"][1] == "on; accounts of ada: research; QoS: high, low, normal"
    assert found["arrays"][1] == "up to 1,001 tasks (MaxArraySize)" and found["home"][1].startswith("~/.mlw is on ")

    job = slurm.submit("sleep 1000", "--gpus=1", "--nodelist=n1", user="bob")
    slurm.wait_for(job, "RUNNING")
    slurm.drain("n2")
    rows = json.loads(laptop.mlw("gpus", "-t", "hpc", "-o", "json", cwd=hpc, check=True).out)
    counts = {"model": "h200", "total": 6, "free": 3, "used": 1, "unusable": 2, "per_node": 2}
    shared = {"state": "up", "time_limit": "1-00:00:00", **counts}
    assert rows == [{"partition": "gpu", "default": True, **shared}, {"partition": "low", "default": False, **shared}]

    refused = laptop.mlw("submit", "-c", "hpc", "--gpus", "3", "train.py", cwd=hpc)
    assert refused.code == 78 and "no node of partition gpu has 3 GPUs (most: 2)" in refused.err
