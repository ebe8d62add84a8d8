"""Submit to a real Slurm cluster from a laptop, through sshd on its login node."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.e2e.attach_helpers import new_project
from tests.e2e.documentation_helpers import add_ssh_alias
from tests.machines.laptop import Laptop
from tests.machines.network import wait_until
from tests.machines.pages import PageRunner
from tests.machines.slurm import SlurmCluster

PAGE = "docs/how-to/slurm.md"
TRAIN = """
import os, pathlib, sys, time
import mlworkbench
print("on", os.uname().nodename, "with GPUs", os.environ["CUDA_VISIBLE_DEVICES"], "and", os.environ.get("COLOR"))
mlworkbench.log("accuracy", 0.5)
pathlib.Path("outputs/model.txt").write_text("weights")
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def hpc(slurm: SlurmCluster, laptop: Laptop) -> Path:
    """A project with the target hpc, which user ada attached."""
    project = new_project(laptop)
    shutil.copy(project / "aml_config/conda_dependencies.yml", project / "aml_config/conda_dependencies_gpu.yml")
    laptop.trust_host_keys(slurm.login)
    done = laptop.mlw(*attach(slurm), "--partition", "gpu", "--time", "30:00", cwd=project)
    assert done.code == 0, done
    return project


def attach(slurm: SlurmCluster) -> list[str]:
    login = slurm.login
    address = ["--address", login.address, "--username", login.user, "--private-key-file", str(login.key)]
    return ["computetarget", "attach", "slurm", "--name", "hpc", *address]


def test_attach_check_and_gpus(slurm: SlurmCluster, laptop: Laptop, hpc: Path) -> None:
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

    slurm.admin("scontrol", "update", "PartitionName=gpu", "Hidden=YES")
    checked = laptop.mlw("computetarget", "check", "hpc", "-o", "json", cwd=hpc)
    found = {row["what"]: (row["state"], row["found"]) for row in json.loads(checked.out)}
    assert {state for state, _ in found.values()} == {"ok", "warning"}
    assert found["Slurm"] == ("ok", slurm.run("sbatch", "--version").stdout.split()[-1] + ", cluster hpc")
    assert found["partition gpu (used by this target)"][1] == (
        "up, limit 1-00:00:00, 3 of 3 nodes usable, up to 8 CPUs and 8 GiB per node, GPUs: 6 h200"
    )
    assert found["accounting"][1] == "on; accounts of ada: research; QoS: high, low, normal"
    assert found["arrays"][1] == "up to 1,001 tasks (MaxArraySize)" and found["home"][1].startswith(
        "the home folder is on "
    )

    job = slurm.submit("sleep 1000", "--gpus=1", "--nodelist=n1", user="bob")
    slurm.wait_for(job, "RUNNING")
    slurm.drain("n2")
    rows = json.loads(laptop.mlw("gpus", "-t", "hpc", "-o", "json", cwd=hpc, check=True).out)
    counts = {"model": "h200", "total": 6, "free": 3, "used": 1, "unusable": 2, "per_node": 2}
    shared = {"state": "up", "time_limit": "1-00:00:00", **counts}
    assert rows == [{"partition": "gpu", "default": True, **shared}, {"partition": "low", "default": False, **shared}]

    runconfig = yaml.safe_load((hpc / "aml_config" / "hpc.runconfig").read_text())
    assert runconfig["CondaDependenciesFile"] == "aml_config/conda_dependencies_gpu.yml"
    planned = laptop.mlw(
        "submit", "-c", "hpc", "--dry-run", "-o", "json", "--gpus", "1", "train.py", cwd=hpc, check=True
    )
    assert json.loads(planned.out)["lock"]["cuda"] == "12.9"  # the login node has no driver
    refused = laptop.mlw("submit", "-c", "hpc", "--gpus", "3", "train.py", cwd=hpc)
    assert refused.code == 78 and "no node of partition gpu has 3 GPUs (most: 2)" in refused.err
    slurm.admin("scontrol", "update", "PartitionName=gpu", "Hidden=NO")


def test_the_commands_of_the_page(slurm: SlurmCluster, laptop: Laptop) -> None:
    """The page attaches, checks, submits, and sweeps. All runs of the sweep come home."""
    add_ssh_alias(laptop, "login.hpc.example", slurm.login)
    laptop.trust_host_keys(slurm.login)
    runner = PageRunner(laptop, PAGE)
    runner.assign_file("type: slurm", None)
    runner.assign_file("import mlworkbench", None)
    runner.assign_file("Run ID", None)
    runner.run()
    runs = laptop.runs()
    assert [run["status"] for run in runs] == ["Completed"] * 2
    [sweep] = [run for run in runs if run["children"]]
    listed = laptop.mlw("history", "list", "--parent", sweep["run_id"], "-o", "json", cwd=runner.place, check=True)
    children = json.loads(listed.out)
    assert [child["status"] for child in children] == ["Completed"] * 2 and all(run["outputs"] for run in children)
    assert len({child["job"]["job"] for child in children}) == 2 and not slurm.jobs()


def test_a_run_waits_runs_and_comes_home(slurm: SlurmCluster, laptop: Laptop, hpc: Path) -> None:
    (hpc / "train.py").write_text(TRAIN)
    compute = hpc / "aml_config" / "hpc.compute"
    compute.write_text(re.sub(r"(?m)^#? ?setUp:.*$", "setUp:\n- export COLOR=green", compute.read_text()))
    blocker = slurm.submit("sleep 1000", "--exclusive", "--nodes=3", user="bob")
    slurm.wait_for(blocker, "RUNNING")

    first, second = (submit(laptop, hpc, "--gpus", "1", "train.py", seconds) for seconds in ("0", "1000"))
    wait_until(lambda: len(slurm.jobs()) == 3, "both jobs in the queue", 60)
    shown = laptop.mlw("ps", cwd=hpc, check=True).out
    assert len(re.findall(r"Queued \(in Slurm: (?:Resources|Priority|None)", shown)) == 2, shown
    status = json.loads(laptop.mlw("status", first, "-o", "json", cwd=hpc, check=True).out)
    assert (status["job"]["state"], status["scheduler"]["gpus"], status["gpus"]) == ("queued", 1, "1")

    assert laptop.mlw("cancel", second, cwd=hpc).out == ""
    assert json.loads(laptop.mlw("status", second, "-o", "json", cwd=hpc).out)["status"] == "Canceled"
    assert len(slurm.jobs()) == 2

    slurm.admin("scancel", str(blocker))
    followed = laptop.mlw("logs", "-f", first, cwd=hpc)
    assert followed.code == 0, followed
    assert re.fullmatch(r"on n[123] with GPUs [01] and green\n", followed.out)
    assert "queued in Slurm: " in followed.err and "GPU used: " in followed.err
    status = json.loads(laptop.mlw("status", first, "-o", "json", cwd=hpc).out)
    assert (status["status"], status["accuracy"], status["outputs"]) == ("Completed", 0.5, 1)


def test_the_time_limit_of_a_job_is_told_from_other_endings(slurm: SlurmCluster, laptop: Laptop, hpc: Path) -> None:
    (hpc / "train.py").write_text(TRAIN)
    run = submit(laptop, hpc, "--gpus", "1", "train.py", "1000")

    def runs_on_a_node(status: dict) -> bool:
        return status["status"] == "Running" and " on n" in status.get("scheduler_job", "")

    shown = wait_for_status(laptop, hpc, run, runs_on_a_node)
    assert re.fullmatch(rf"{shown['job']['job']} on n[123]", shown["scheduler_job"])
    slurm.expire(int(shown["job"]["job"]))
    ended = laptop.mlw("logs", "-f", run, cwd=hpc)
    status = json.loads(laptop.mlw("status", run, "-o", "json", cwd=hpc).out)
    assert (status["ending"], status["outputs"]) == ("timeout", 1), ended
    assert "30 min" in status["cause"], status["cause"]


def submit(laptop: Laptop, project: Path, *arguments: str) -> str:
    done = laptop.mlw("submit", "-c", "hpc", "--detach", *arguments, cwd=project)
    assert done.code == 0, done
    return done.out.strip()


def wait_for_status(laptop: Laptop, project: Path, run: str, condition: Callable[[dict], bool]) -> dict:
    """Wait until the status of the run fulfills the condition, and return it."""
    statuses: list[dict] = []

    def is_fulfilled() -> bool:
        statuses.append(json.loads(laptop.mlw("status", run, "-o", "json", cwd=project, check=True).out))
        return condition(statuses[-1])

    wait_until(is_fulfilled, f"run {run}", 60)
    return statuses[-1]
