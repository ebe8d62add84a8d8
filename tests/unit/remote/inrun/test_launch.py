"""Programs of the in-run library that start ranks: rank_parent.py and mpiexec.py."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess

import pytest

from mlworkbench.testing.waiting import wait_until
from tests.interpreters import oldest_and_newest
from tests.unit.remote.inrun.run_process import INRUN, version_names

LAUNCH = INRUN / "mlworkbench" / "_launch"
PYTHONS = oldest_and_newest((3, 6))
PYTHON = PYTHONS[-1][1]


def load(name):
    spec = importlib.util.spec_from_file_location(name, LAUNCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- ranks ---------------------------------------------------------------------------------------------

RANKS = [
    ({}, 0),
    ({"RANK": "2", "WORLD_SIZE": "4"}, 2),
    ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, 3),
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, 1),
    ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, 1),
    # Variables that are set by chance, in one process.
    ({"RANK": "7"}, 0),
    ({"RANK": "1", "WORLD_SIZE": "1"}, 0),
    ({"SLURM_PROCID": "3", "SLURM_NTASKS": "1"}, 0),
    ({"RANK": "first", "WORLD_SIZE": "2"}, 0),
    ({"RANK": "9" * 5000, "WORLD_SIZE": "9" * 5000}, 0),
]


@pytest.mark.parametrize(("variables", "expected"), RANKS)
def test_rank(variables, expected):
    assert load("ranks").read_rank(variables) == expected


# -- mpiexec -------------------------------------------------------------------------------------------

VERSIONS = {
    "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n": (
        "-n 4 --oversubscribe --bind-to none --allow-run-as-root x"
    ),
    "mpiexec (Open MPI) 5.0.8\n": "-n 4 --oversubscribe --bind-to none --allow-run-as-root x",
    "HYDRA build details:\n    Version:                                 4.3.0\n": "-n 4 -launcher fork x",
    "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515\n": "-n 4 -bootstrap fork x",
    "another 1.0": "-n 4 x",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_mpi_library_gets_its_options(version):
    mpiexec = load("mpiexec")
    command = mpiexec.build_command(mpiexec.detect_library(version), "/bin/mpiexec", 4, ["x"], is_root=True)
    assert " ".join(command) == "/bin/mpiexec " + VERSIONS[version]


def test_variables_for_open_mpi():
    mpiexec = load("mpiexec")
    assert mpiexec.variables(mpiexec.OPEN_MPI, False, True) == {}
    assert "OMPI_MCA_plm_rsh_agent" in mpiexec.variables(mpiexec.OPEN_MPI, False, False)
    assert "OMPI_MCA_btl_vader_single_copy_mechanism" in mpiexec.variables(mpiexec.OPEN_MPI, True, True)
    assert mpiexec.variables(mpiexec.MPICH, True, False) == {}


def test_mpiexec_next_to_python_comes_first_unless_path_contains_its_folder(tmp_path):
    mpiexec = load("mpiexec")
    for name in ("environment", "system"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mpiexec").write_text("#!/bin/sh\n")
        (tmp_path / name / "mpiexec").chmod(0o755)
    environment, system = str(tmp_path / "environment"), str(tmp_path / "system")
    assert mpiexec.find_program(environment, system) == environment + "/mpiexec"
    assert mpiexec.find_program(environment, f"{system}:{environment}") == system + "/mpiexec"
    assert mpiexec.find_program(str(tmp_path), "relative:" + system) == system + "/mpiexec"


PARENT = ["python", "-E", "-s", "-S", "/lib/_launch/rank_parent.py"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 1", "python -m mpi4py train.py --lr 1"),
        ("python -m package.train", "python -m mpi4py -m package.train"),
        ("python -m mpi4py train.py", "python -m mpi4py train.py"),
        ("python -m mpi4py.futures train.py", "python -m mpi4py.futures train.py"),
    ],
)
def test_scripts_run_through_mpi4py(command, expected):
    assert load("mpiexec").through_mpi4py([*PARENT, *command.split()]) == [*PARENT, *expected.split()]


def test_missing_mpiexec_is_explained(tmp_path):
    command = [PYTHON, "-E", "-s", "-S", str(LAUNCH / "mpiexec.py"), "2", "true"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:34]) == (127, "mlw: mpiexec not found on PATH; hi")


# -- the parent of a rank ------------------------------------------------------------------------------


def start(folder, python, script, **more):
    environment = {"PATH": os.environ["PATH"], "MLW_RUN_FOLDER": str(folder), "RANK": "1", "WORLD_SIZE": "2"}
    command = [python, "-E", "-s", "-S", str(LAUNCH / "rank_parent.py"), python, "-c", script]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def recorded(folder):
    return json.loads((folder / "ranks" / "1.json").read_text())


@pytest.mark.parametrize("python", [python for _, python in PYTHONS], ids=version_names(PYTHONS))
def test_output_is_unchanged_and_the_end_of_stderr_is_recorded(tmp_path, python):
    script = "import os, sys\nos.write(2, bytes(range(256)) * 400)\nos.write(1, b'out')\nsys.exit(7)"
    process = start(tmp_path, python, script)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"out", bytes(range(256)) * 400, 7)
    record = recorded(tmp_path)
    assert (record["rank"], record["code"], record["signal"], record["terminated"]) == (1, 7, None, None)
    assert record["stderr"] == (bytes(range(256)) * 64).decode("utf-8", "replace")


def test_a_signal_is_passed_on_in_both_directions(tmp_path):
    process = start(tmp_path, PYTHON, "import time; time.sleep(1000)")
    wait_until(lambda: (tmp_path / "ranks" / "1.json").exists())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    record = recorded(tmp_path)
    assert (record["code"], record["signal"]) == (None, signal.SIGTERM)
    assert record["terminated"] <= record["ended"]


@pytest.mark.parametrize("python", [python for _, python in PYTHONS], ids=version_names(PYTHONS))
def test_a_rank_does_not_outlive_its_parent(tmp_path, python):
    """MPICH kills only the processes that it started, and then waits for the end of their output."""
    with start(tmp_path, python, "import time; print('up', flush=True); time.sleep(1000)") as process:
        assert process.stdout.readline() == b"up\n"
        process.kill()
        assert process.stdout.read() == b""
    assert "ended" not in recorded(tmp_path)


def test_the_request_to_end_is_recorded_at_once(tmp_path):
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    with start(tmp_path, PYTHON, script) as process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: recorded(tmp_path)["terminated"])
        process.kill()


def test_a_traceback_is_recorded_before_the_rank_ends(tmp_path):
    script = "import time\ntry: 1 / 0\n"
    script += "except ZeroDivisionError:\n import traceback\n traceback.print_exc()\ntime.sleep(1000)"
    with start(tmp_path, PYTHON, script) as process:
        try:
            wait_until(lambda: "ZeroDivisionError: division" in (recorded_stderr(tmp_path) or ""))
        finally:
            process.kill()


def test_handled_exceptions_do_not_cause_a_record_each(tmp_path, monkeypatch):
    """But the last one is recorded without further output, and a marker at the end of a piece counts once."""
    monkeypatch.syspath_prepend(str(LAUNCH))
    rank = load("rank_parent").Rank(str(tmp_path), 1)
    written = []
    monkeypatch.setattr(rank, "record", lambda **more: written.append(more["stderr"]))
    reader, writer = os.pipe()
    try:
        for number in range(300):
            text = f"Traceback (most recent call last):\nValueError: {number}\n"
            os.write(writer, text.encode())
            rank.copy(reader)
        assert len(written) < 100
        while not written[-1].endswith("ValueError: 299\n"):
            delay = rank.record_delay()
            assert delay is not None
            select.select([], [], [], delay)
            rank.record_output()
        assert rank.record_delay() is None
        rank.records_left = 0
        os.write(writer, b"Traceback (most recent call last)")
        rank.copy(reader)
        left = rank.records_left
        os.write(writer, b":")
        rank.copy(reader)
        assert rank.records_left == left - 1
    finally:
        os.close(reader)
        os.close(writer)


def recorded_stderr(folder):
    return (folder / "ranks" / "1.json").exists() and recorded(folder).get("stderr")


def test_a_child_process_that_outlives_the_rank_does_not_delay_it(tmp_path):
    script = "import subprocess; print(subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL).pid)"
    with start(tmp_path, PYTHON, script) as process:
        try:
            assert process.wait(timeout=60) == 0
        finally:
            os.kill(int(process.stdout.read()), signal.SIGKILL)


def test_a_command_that_cannot_be_started_is_reported(tmp_path):
    command = [PYTHON, "-E", "-s", "-S", str(LAUNCH / "rank_parent.py"), "/nothing/here"]
    done = subprocess.run(command, capture_output=True, text=True, env={}, check=False)
    assert (done.returncode, done.stderr) == (127, "cannot start /nothing/here: No such file or directory\n")
