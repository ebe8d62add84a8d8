"""Records of ranks: the first failure, and hostile files."""

from __future__ import annotations

import json

import pytest

from mlworkbench.remote.attempts import with_attempt
from mlworkbench.remote.rank_processes import apply_launcher
from mlworkbench.remote.ranks import (
    explain_missing_launcher,
    explain_rank,
    first_failure,
    list_endings,
    parse_rank,
    read_ranks,
)
from mlworkbench.remote.shared.layout import RunFolder

BROKEN = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer [127.0.0.1]:23461\n"
RAISED = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\nValueError: bad batch\n'


def rank(number, code=None, signal=None, ended=None, terminated=None, printed=None, stderr=""):
    facts = {"rank": number, "code": code, "signal": signal, "ended": ended, "terminated": terminated}
    return parse_rank(json.dumps(dict(facts, printed=printed, stderr=stderr)).encode())


FAILURES = {
    "the first": ([rank(0, 1, ended=12), rank(1, 3, ended=10), rank(2, 1, ended=11)], 1),
    "not those that the launcher ended": ([rank(0, signal=15, ended=9, terminated=8.9), rank(1, 1, ended=9.5)], 1),
    "not a broken connection": ([rank(0, 1, ended=10, stderr=BROKEN), rank(1, 1, ended=10.1, stderr=RAISED)], 1),
    "a broken connection, if nothing else failed": ([rank(0), rank(1, 1, ended=10, stderr=BROKEN)], 1),
    # As recorded with torchrun: rank 2 printed its exception, and was still exiting when torchrun ended it.
    "an exception before the signal": (
        [rank(1, 1, ended=7.763, printed=7.7, stderr=BROKEN), rank(2, 1, None, 7.884, 7.798, 7.69, RAISED)],
        2,
    ),
    "not an exception after the signal": (
        [rank(0, 1, ended=9, stderr=RAISED), rank(1, 1, None, 8.5, 8.1, 8.2, RAISED)],
        0,
    ),
    "a rank without an ending": ([rank(0, 0, ended=10), rank(1)], 1),
    "the parent of a rank was killed, and the launcher ended the others": ([rank(0, terminated=9), rank(1)], 1),
    "none, if the launcher killed all ranks": ([rank(0), rank(1)], None),
    # As recorded with MPICH: after MPI_Abort, it kills all processes at once.
    "an exception before the launcher killed all ranks": (
        [rank(0), rank(1, printed=7, stderr=BROKEN), rank(2, printed=8, stderr=RAISED)],
        2,
    ),
    "none": ([rank(0, 0, ended=10), rank(1, signal=15, ended=9, terminated=8)], None),
}


@pytest.mark.parametrize("case", FAILURES)
def test_first_failure(case):
    records, expected = FAILURES[case]
    found = first_failure(records)
    assert (found and found["rank"]) == expected


def test_an_exception_that_the_script_has_handled_long_before_is_not_the_cause():
    """All ranks were killed with the launcher, or the parent of one of them was."""
    handled, other = rank(0, printed=100, stderr=RAISED), rank(1)
    assert first_failure([handled, other], ended=103) == handled
    assert first_failure([handled, other], ended=7200) is None
    lost = first_failure([handled, rank(1, terminated=7190)], ended=7200)
    assert explain_rank(lost, {"processes": {"python": "/py"}}, "/w", str)["message"].startswith(
        "rank 0 failed: its process was killed"
    )


def test_explanation():
    spec = {"processes": {"python": "/py"}}
    described = explain_rank(rank(2, 1, ended=1, stderr=RAISED), spec, "/w", lambda text: text.replace("batch", "***"))
    assert described["message"] == "rank 2 failed: ValueError: bad *** (train.py:3)"
    by_torch = "".join(f"[rank2]: {line}\n" for line in RAISED.splitlines())  # as PyTorch prints it
    described = explain_rank(rank(2, 1, ended=1, stderr="note\n" + by_torch), spec, "/w", str)
    assert described["message"] == "rank 2 failed: ValueError: bad batch (train.py:3)"
    assert explain_rank(rank(0), spec, "/w", str)["message"].startswith("rank 0 failed: its process was killed")


HOSTILE = [
    b"",
    b"[]",
    b"[" * 100000,
    b'{"rank": -1}',
    b'{"rank": true}',
    b'{"rank": 1e300}',
    b'{"rank": "../../x"}',
    b"\xff",
]


@pytest.mark.parametrize("data", HOSTILE)
def test_an_invalid_record_is_ignored(data):
    assert parse_rank(data) is None


def test_invalid_values_are_unknown(tmp_path):
    values = {"rank": 1, "code": 4000, "signal": -3, "ended": "now", "terminated": float("nan"), "stderr": ["x"]}
    record = parse_rank(json.dumps(values).encode())
    assert record == dict.fromkeys(record, None) | {"rank": 1, "stderr": ""}
    run = RunFolder(str(tmp_path))
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "0.json").symlink_to("/etc/passwd")
    (tmp_path / "ranks" / "1.json").write_text('{"rank": 1, "code": 2}')
    (tmp_path / "ranks" / "1.json.4711").write_text('{"rank": 1, "code": 3}')
    assert [(record["rank"], record["code"]) for record in read_ranks(run)] == [(1, 2)]


@pytest.mark.parametrize(
    ("launcher", "line", "expected"),
    [
        ("mpiexec", "mlw: mpiexec not found on PATH; hint: install Open MPI", "/py has no mpiexec"),
        (
            "accelerate",
            "/py: Error while finding module specification for 'accelerate.commands.launch' (ModuleNotFoundError: N",
            "/py has no accelerate",
        ),
        ("accelerate", "mlw: mpiexec not found on PATH", None),
        ("torchrun", "ModuleNotFoundError: No module named 'torchvision'", None),
    ],
)
def test_missing_launcher(launcher, line, expected):
    spec = {"processes": {"launcher": launcher, "python": "/py"}}
    found = explain_missing_launcher(f"before\n{line}\n", spec)
    assert (found and found["message"]) == (expected and f"{launcher} cannot start the script: {expected}")
    assert explain_missing_launcher("", spec) is None


def test_each_attempt_has_its_own_folder_for_records(tmp_path):
    run = RunFolder(str(tmp_path)).at(2)
    assert run.ranks == str(tmp_path / "attempts" / "2" / "ranks")
    spec = {"environment": {}, "container": {"mounts": [["/a", "/a", "ro"], [run.at(1).ranks, run.at(1).ranks, "rw"]]}}
    assert with_attempt(spec, run)["container"]["mounts"] == [["/a", "/a", "ro"], [run.ranks, run.ranks, "rw"]]
    assert with_attempt(spec, run.at(1)) is spec


def test_endings_are_listed_by_rank():
    assert list_endings([rank(10, signal=9), rank(2, code=0)]) == [[2, None, None, 0, None], [10, None, None, None, 9]]


def test_processes_per_gpu_follow_the_lease(tmp_path):
    spec = {
        "processes": {"launcher": "torchrun", "count": "gpu", "python": "/py", "library": "/lib"},
        "commands": [{"step": "run", "argv": ["/py", "train.py"]}],
        "environment": {},
    }
    run = RunFolder(str(tmp_path))
    assert "the run has no GPUs" in apply_launcher(run, spec)
    (tmp_path / "lease.json").write_text('{"uuids": ["GPU-1", "GPU-2", "GPU-3"]}')
    assert apply_launcher(run, spec) is None
    assert spec["commands"][-1]["argv"][4:6] == ["--nproc_per_node", "3"]
