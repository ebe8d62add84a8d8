from __future__ import annotations

from mlworkbench.remote.slurm.accounting import last_rows, parse_accounting, read_accounting

# sacct -D -P -X of Slurm 22.05: one line per execution of a job.
OUTPUT = """\
3|REQUEUED|0:0|2026-11-19T12:57:28|2026-11-19T12:57:31|n1|r3
8|NODE_FAIL|0:0|2026-11-19T12:58:18|2026-11-19T12:58:21|n2|r8
3|CANCELLED by 21001|0:0|2026-11-19T12:57:48|2026-11-19T12:58:12|n1|r3
8|RUNNING|0:0|2026-11-19T12:58:32|Unknown|n2|r8
"""


def test_the_last_execution_counts():
    rows = parse_accounting(OUTPUT)
    assert [row["state"] for row in rows if row["job"] == "8"] == ["NODE_FAIL", "RUNNING"]
    last = last_rows(rows)
    assert {job: row["state"] for job, row in last.items()} == {"3": "CANCELLED by 21001", "8": "RUNNING"}
    assert last["3"]["label"] == "r3"


def test_hostile_lines_are_skipped():
    assert parse_accounting("\n".join(["x|y", "1_[2-3]|RUNNING|0:0|a|b|n1|r", "1|a b|0:0|a|b|n1|r", "\0"])) == []


def test_a_cluster_without_sacct_has_no_accounting(tmp_path, monkeypatch):
    monkeypatch.setattr("mlworkbench.remote.slurm.slurm_programs.which", lambda name, path: None)
    assert read_accounting(["1"]) == ([], "")
