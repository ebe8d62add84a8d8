from __future__ import annotations

import pytest

from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.remote.slurm.job_record import last_line, read_notice, read_record

NOTICES = {
    "slurmstepd-n1: error: *** JOB 3 ON n1 CANCELLED AT 2026-11-19T12:57:31 DUE TO JOB REQUEUE ***": "JOB REQUEUE",
    "slurmstepd-n1: error: *** JOB 3 ON n1 CANCELLED AT 2026-11-19T12:57:31 ***": "",
    "slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2026-11-19T12:57:31 DUE TO TIME LIMIT ***": "TIME LIMIT",
    "slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2026-11-19T12:57:31 DUE TO PREEMPTION ***": "PREEMPTION",
    "error: *** JOB 3 ON n2 CANCELLED AT 2026-11-19T12:58:21 DUE TO NODE FAILURE, SEE LOG ***": "NODE FAILURE",
}


@pytest.mark.parametrize(("line", "cause"), NOTICES.items(), ids=NOTICES.values())
def test_notices_of_slurmstepd(tmp_path, line, cause):
    run = RunFolder(str(tmp_path))
    assert read_notice(run, "3") is None
    (tmp_path / "slurm.out").write_text(f"loading modules\n{line}\n")
    assert read_notice(run, "3") == (cause, 1)
    assert read_notice(run, "4") is None and read_notice(run, "3", skip=1) is None
    assert last_line(run) == "loading modules"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"comment": "c", "time": "now"}'])
def test_damaged_records_are_ignored(tmp_path, text):
    (tmp_path / "slurm.json").write_text(text)
    assert read_record(RunFolder(str(tmp_path))) is None


def test_job_of_a_record_is_a_number(tmp_path):
    (tmp_path / "slurm.json").write_text('{"comment": "c", "time": 1, "job": "7; rm"}')
    assert read_record(RunFolder(str(tmp_path))) == {"comment": "c", "time": 1, "job": None}
