"""Time limits in Slurm's notation, and the options of sbatch that a .compute file may set."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.config.config_files import check_file, read_compute
from mlworkbench.slurm_options import format_time_limit, parse_time_limit, refused_option


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("2:30", 150), ("2:00:00", 7200), ("1-12", 129600), ("1-12:30", 131400), ("1-0:0:30", 86430)]
    + [(text, None) for text in ("0", "", "2h", "1:2:3:4", "1-", "-5", "9999-0", "٣")],
)
def test_time_limits(text: str, seconds: int | None) -> None:
    assert parse_time_limit(text) == seconds
    assert seconds is None or parse_time_limit(format_time_limit(seconds)) == seconds


@pytest.mark.parametrize(
    "option",
    ["--exclude=n1", "--exclusive", "--mem-per-cpu=2G", "--time-min=10", "--nodelist=n[1-2]", "--mail-type=END"],
)
def test_options_that_users_may_set(option: str) -> None:
    assert refused_option(option) is None


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--job-name=x", "mlw sets --job-name itself"),
        ("--job-n=x", "mlw sets --job-name itself"),  # sbatch accepts abbreviations
        ("--comment", "mlw sets --comment itself"),
        ("--wrap=rm", "mlw sets --wrap itself"),
        ("--nodes=2", "mlw sets --nodes itself"),
        ("--ntasks=4", "mlw sets --ntasks itself"),
        ("--export=ALL", "mlw sets --export itself"),
        ("-N2", "'-N2' is not a long option of sbatch"),
        ("--exclude n1", "'--exclude n1' is not a long option of sbatch"),
        ("n1", "'n1' is not a long option of sbatch"),
    ],
)
def test_options_that_mlw_sets(option: str, problem: str) -> None:
    refused = refused_option(option)
    assert refused is not None and refused[0] == problem


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "hpc.compute"
    path.write_text(
        "type: slurm\naddress: login\npartition: gpu\ntime: 1-12:00\nmemory: 16g\ncpus: 4\n"
        "setUp:\n- module load cuda\nextraOptions:\n- --exclude=n1\n"
    )
    compute = read_compute(path)
    assert (compute.partition, compute.time, compute.memory, compute.cpus) == ("gpu", "1-12:00", "16g", "4")
    assert (compute.set_up, compute.extra_options) == (("module load cuda",), ("--exclude=n1",))
    path.write_text("type: slurm\ntime: 2h\nbaseDockerImage: x\nextraOptions:\n- --array=1-3\n")
    assert [problem.message for problem in check_file(path)] == [
        "time must be a time limit of Slurm, not '2h'",
        "baseDockerImage has no effect on targets of type slurm",
        "extraOptions: mlw sets --array itself",
    ]
    path.write_text("type: remote\naddress: h\npartition: gpu\n")
    assert [problem.message for problem in check_file(path)] == ["partition has no effect on targets of type remote"]
