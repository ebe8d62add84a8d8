from __future__ import annotations

from mlworkbench.remote.slurm.job_queue import Queue, parse_queue

# squeue of Slurm 22.05 with the format of the product; the name and comment of other jobs may contain anything.
OUTPUT = """\
14|RUNNING|None|2026-11-19T13:15:01|2026-11-19T14:15:01|n3|r|mlw r 2e62b4
19|PENDING|JobHeldUser|N/A|N/A||held|mlw held 2e62b4
20|PENDING|ReqNodeNotAvail, UnavailableNodes:n1|N/A|N/A||x|mlw x 2e62b4
21|RUNNING|None|2026-11-19T13:15:01|2026-11-19T14:15:01|n3|other|(null)
22|RUNNING|None|2026-11-19T13:15:01|2026-11-19T14:15:01|n3|a|b|mlw r 2e62b4
"""


def test_rows_of_all_jobs():
    """A plugin of the cluster may have changed the comment of a job, so other jobs are rows, too."""
    rows = parse_queue(OUTPUT)
    assert sorted(rows) == ["14", "19", "20", "21", "22"]
    assert (rows["14"]["state"], rows["14"]["nodes"]) == ("RUNNING", "n3")
    assert rows["20"]["reason"] == "ReqNodeNotAvail, UnavailableNodes:n1"


def test_a_job_is_found_by_name_and_comment():
    rows = parse_queue(OUTPUT + "9|PENDING|Priority|N/A|N/A||r|mlw r 2e62b4\n")
    queue = Queue(rows, 0.0, None)
    found = queue.find("r", "mlw r 2e62b4")
    assert found is not None and found["job"] == "9", "the oldest one, which may already run"
    assert queue.find("r", "mlw r 000000") is None and queue.find("r|mlw r", "2e62b4") is None


def test_hostile_lines_are_skipped():
    lines = ["", "|", "x|RUNNING|||||r|mlw r", "1;rm|RUNNING|||||r|mlw r", "1|rm -rf|||||r|mlw r", "1|RUNNING|r|mlw r"]
    assert parse_queue("\n".join([*lines, "\0" * 99, "99999999999|RUNNING|||||r|mlw r"])) == {}
