"""What a run requests from Slurm, and which requests can never be fulfilled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlworkbench.errors import UsageError
from mlworkbench.model import Compute, RunSpec
from mlworkbench.plan import plan
from mlworkbench.preflight.slurm_rules import scheduler_findings
from mlworkbench.scheduler_plan import plan_scheduler
from mlworkbench.submit_request import Request
from mlworkbench.targets.slurm_facts import SlurmFacts
from tests.unit.test_plan import PARTS

HPC = Compute(
    "hpc",
    "slurm",
    address="login",
    partition="gpu",
    time="2:00:00",
    memory="16g",
    cpus="3.5",
    set_up=("module load cuda",),
    extra_options=("--exclude=n1",),
)
RUNCONFIG = PARTS.setting.runconfig
GPUS = {"model": "h200", "total": 6, "used": 1, "unusable": 0, "per_node": 2}
FACTS = SlurmFacts.from_json(
    {
        "partitions": [
            {"name": "gpu", "default": True, "state": "up", "max_time": 86400, "gpus": [GPUS]},
            {"name": "old", "state": "down", "max_time": None, "gpus": []},
        ]
    }
)


def scheduler(compute: Compute = HPC, **request: object):
    return plan_scheduler(Request(**request), RUNCONFIG, compute)


def test_a_job_request() -> None:
    assert scheduler(gpus="h200:2") == {
        "partition": "gpu",
        "account": None,
        "qos": None,
        "constraint": None,
        "time": 7200,
        "setup": ["module load cuda"],
        "options": ["--cpus-per-task=4", "--mem=16384M", "--exclude=n1"],
        "nodes": 1,
        "gpus": 2,
        "gpu_model": "h200",
        "requeue": True,
    }
    assert plan_scheduler(Request(), RUNCONFIG, Compute("box", "remote", address="h")) is None


def test_the_spec_holds_it_and_takes_no_lease() -> None:
    request = replace(PARTS.request, gpus=2)
    planned = scheduler(gpus=2)
    spec = plan(replace(PARTS, request=request, scheduler=planned), "run-1", "key", 0)
    assert (spec.scheduler, spec.gpus) == (planned, None)
    setting = replace(PARTS.setting, compute=HPC)
    spec = plan(replace(PARTS, setting=setting, scheduler=planned), "run-1", "key", 0)
    assert RunSpec.from_json(spec.to_json()).compute == HPC


@pytest.mark.parametrize(
    ("timeout", "configured", "retries", "seconds"),
    [
        (None, None, 0, None),  # the limit of the partition
        (None, "2:00:00", 0, 7200),
        (600, None, 0, 780),  # 10 min + grace + 2 min, rounded up to a minute
        (600, "2:00:00", 0, 780),
        (36000, "2:00:00", 0, 7200),
        (600, None, 2, 2040),  # three attempts, and delays of 10 and 20 s
    ],
)
def test_time_limit(timeout: int | None, configured: str | None, retries: int, seconds: int | None) -> None:
    request = {"timeout": timeout, "retries": retries or None}
    assert scheduler(replace(HPC, time=configured), **request)["time"] == seconds


@pytest.mark.parametrize(
    ("retries", "causes", "requeue"),
    [(None, (), True), (2, (), True), (2, ("failed",), False), (2, ("node-failure",), True)],
)
def test_requeue(retries: int | None, causes: tuple[str, ...], requeue: bool) -> None:
    assert scheduler(retries=retries, retry_on=causes)["requeue"] is requeue


@pytest.mark.parametrize("gpus", ["all", "free", "0,1", "1:40g", "GPU-1234"])
def test_gpu_requests_that_slurm_has_no_notion_of(gpus: str) -> None:
    with pytest.raises(UsageError) as raised:
        scheduler(gpus=gpus)
    assert raised.value.message == f"--gpus {gpus}: Slurm allocates GPUs by number and model only"


@pytest.mark.parametrize(
    ("compute", "request_", "expected"),
    [
        (HPC, {"gpus": 2}, []),
        (replace(HPC, partition=None), {}, []),
        (HPC, {"gpus": 3}, ["error: no node of partition gpu has 3 GPUs (most: 2)"]),
        (HPC, {"gpus": "h200:2"}, []),
        (HPC, {"gpus": "A100:1"}, ["error: no node of partition gpu has 1 A100 GPUs (most: 0)"]),
        (replace(HPC, partition="x"), {}, ["error: partition x does not exist"]),
        (replace(HPC, partition="gpu,x"), {}, ["error: partition x does not exist"]),
        (replace(HPC, partition="old,gpu"), {"gpus": 2}, []),  # Slurm chooses one
        (
            replace(HPC, time="2-0"),
            {},
            ["error: the job needs 2-00:00:00, more than the limit of partition gpu, 1-00:00:00"],
        ),
        (HPC, {"timeout": "3h"}, ["warning: time: 2:00:00 ends the job before the run's time limit of 3:00:00"]),
        (replace(HPC, partition="old"), {}, ["warning: partition old is down: it starts no jobs now"]),
    ],
)
def test_preflight(compute: Compute, request_: dict[str, object], expected: list[str]) -> None:
    findings = scheduler_findings(scheduler(compute, **request_), compute, FACTS, Request(**request_).time_limit)
    assert [f"{finding.severity}: {finding.message}" for finding in findings] == expected
    assert all(finding.hint and finding.file == "aml_config/hpc.compute" for finding in findings)
