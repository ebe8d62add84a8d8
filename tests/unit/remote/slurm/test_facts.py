"""Facts about a Slurm cluster, from recorded output of Slurm 22.05 and in the formats of other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.remote.slurm import facts

PARTITION = (
    "PartitionName={} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default={} QoS=N/A"
    " DefaultTime=01:00:00 MaxNodes=UNLIMITED MaxTime={} MinNodes=0 Nodes=n[1-3] State=UP TotalCPUs=24 TotalNodes=3"
)
NODE = (
    "NodeName={} Arch=x86_64 CPUAlloc=0 CPUTot=8 Gres={} GresDrain=N/A GresUsed={} Version=22.05.8"
    " OS=Linux 6.1 #1 SMP @0 RealMemory=8000 AllocMem=0 State={} Partitions={} CfgTRES=cpu=8,mem=8000M{} AllocTRES={}"
)


TYPED = {"a100": 1, "v100": 0}


def test_partitions_with_their_gpus() -> None:
    partitions = "\n".join([PARTITION.format("gpu", "YES", "1-00:00:00"), PARTITION.format("cpu", "NO", "UNLIMITED")])
    nodes = "\n".join(
        [
            NODE.format("n1", "gpu:h200:2", "gpu:h200:0(IDX:N/A)", "MIXED", "gpu", ",gres/gpu=2", "cpu=1,gres/gpu=1"),
            NODE.format("n2", "gpu:h200:4(S:0-1)", "gpu:h200:1(IDX:0)", "IDLE+DRAIN", "gpu,cpu", ",gres/gpu=4", ""),
            NODE.format("n3", "(null)", "gpu:0", "IDLE", "cpu", "", ""),
        ]
    )
    rows = facts.summarize(facts.parse_lines(partitions), facts.parse_lines(nodes))
    sizes = {"nodes": 2, "usable": 1, "cpus": 8, "memory": 8000}
    limits = {"state": "up", "default_time": 3600}
    counts = {"total": 6, "used": 1, "unusable": 4, "per_node": 4, "model": "h200"}
    drained = {"total": 4, "used": 0, "unusable": 4, "per_node": 4, "model": "h200"}
    assert rows == [
        {"name": "gpu", "default": True, "max_time": 86400, **limits, **sizes, "gpus": [counts]},
        {"name": "cpu", "default": False, "max_time": None, **limits, **sizes, "gpus": [drained]},
    ]


@pytest.mark.parametrize(
    ("gres", "configured", "allocated", "used", "expected"),
    [
        ("gpu:a100:4", "cpu=8,gres/gpu=4", "cpu=2,gres/gpu=3", "gpu:a100:1(IDX:0)", {"a100": 3}),
        ("gpu:4(S:0,2)", "gres/gpu=4", "gres/gpu=3", "", {"": 3}),
        ("gpu:a100:2,gpu:v100:2", "gres/gpu=4", "gres/gpu=2,gres/gpu:v100=2", "", {"": 2, "v100": 2}),
        ("gpu:a100:2,gpu:v100:2", "gres/gpu=4", "gres/gpu=1", "gpu:a100:1(IDX:0,1),gpu:v100:0(IDX:N/A)", TYPED),
        ("gpu:a100:2", "gres/gpu=2", "", "gpu:a100:2(IDX:0-1)", {}),
        ("gpu:a100:2", "cpu=8", "cpu=8", "gpu:a100:2(IDX:0-1)", {"a100": 2}),  # Slurm does not track GPUs
    ],
)  # fmt: skip
def test_used_gpus(gres: str, configured: str, allocated: str, used: str, expected: dict[str, int]) -> None:
    node = {"Gres": gres, "CfgTRES": configured, "AllocTRES": allocated, "GresUsed": used}
    assert facts.count_used_gpus(node) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-00:00:00", 86400), ("02:00:00", 7200), ("30:00", 1800), ("UNLIMITED", None), ("NONE", None), ("7", None)],
)
def test_times(text: str, seconds: int | None) -> None:
    assert facts.parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("state", "usable"),
    [("IDLE", True), ("MIXED", True), ("IDLE+CLOUD", True), ("IDLE+DRAIN", False), ("DOWN*", False), ("MIXED*", False)]
    + [("ALLOCATED+MAINT", False), ("DOWN+NOT_RESPONDING", False), ("IDLE~", True)],
)
def test_usable_nodes(state: str, usable: bool) -> None:
    assert facts.is_usable(state) is usable


def test_accounts() -> None:
    first, second = facts.parse_accounts("research||high,low,normal|normal\nteam|gpu||\n\nbroken\n")
    assert first == {
        "account": "research",
        "partition": None,
        "qos": ["high", "low", "normal"],
        "default_qos": "normal",
    }
    assert second == {"account": "team", "partition": "gpu", "qos": [], "default_qos": None}


def test_file_system_of_the_home_folder(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 21 0:40 / /shared\\040home rw,relatime shared:5 - nfs4 server:/home rw\n"
        "broken\n"
    )
    assert facts.find_file_system("/shared home/ada", str(mounts)) == "nfs4"
    assert facts.find_file_system("/shared homes", str(mounts)) == "ext4"
    assert facts.find_file_system("/", str(tmp_path / "missing")) is None


def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as context:
        context.setattr("mlworkbench.remote.slurm.slurm_programs.which", lambda name, path: None)
        assert facts.gather_facts("/")["problem"] == facts.NO_PROGRAM
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("sbatch", "scontrol", "sacctmgr"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller' >&2\nexit 1\n")
        program.chmod(0o700)
    answer = facts.gather_facts("/")
    assert (answer["problem"], answer["reason"]) == (
        facts.NO_RESPONSE,
        "slurm_load_partitions: Unable to contact slurm controller",
    )


def test_nodes_that_cannot_be_listed_are_a_problem_and_not_an_empty_cluster(tmp_path, monkeypatch) -> None:
    for name, text in (("sbatch", "exit 0"), ("scontrol", f'[ "$4" = partition ] && echo "{PARTITION}" || exit 1')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert facts.gather_facts(str(tmp_path), nodes_only=True)["problem"] == facts.NO_RESPONSE
