"""How the ranks of a run ended, for display."""

from __future__ import annotations

from mlworkbench.history.run_state import fold
from mlworkbench.model import Event, Run
from mlworkbench.report.rank_list import rank_lines, rank_pairs, rank_records
from tests.unit.history.test_run_state import SPEC

HOST = "gpu1"


def finished(ranks):
    data = {"ending": "failed", "exit": 1, "signal": None, "ranks": ranks}
    return fold(Run(SPEC), [Event("s", 1, 1.0, "finished", data)])


def test_ranks_that_ended_the_same_way_share_a_line():
    done = finished([[rank, HOST, 4711 + rank, 0, None] for rank in range(4)])
    assert rank_pairs(done) == [("Ranks", "ranks 0-3 on gpu1: exit 0")]
    failed = finished([[0, HOST, 7, None, 15], [1, HOST, 8, None, 15], [2, HOST, 9, 1, None], [3, HOST, 10, None, 15]])
    assert rank_pairs(failed) == [
        ("Ranks", "ranks 0-1, 3 on gpu1: signal 15 (SIGTERM)"),
        ("", "rank 2 on gpu1: exit 1 (PID 9)"),
    ]
    assert rank_records(failed)[2] == {"rank": 2, "host": HOST, "pid": 9, "exit": 1, "signal": None}


def test_attempts_have_their_own_ranks():
    data = {"attempt": 1, "ending": "failed", "exit": 1, "signal": None, "ranks": [[0, HOST, 7, 1, None]]}
    run = fold(Run(SPEC), [Event("s", 1, 1.0, "attempt_ended", data)])
    assert run.attempts[0]["ranks"][0]["exit"] == 1 and run.ranks == ()


def test_forged_ranks_are_left_out_or_unknown():
    rows = ["x", [], [1e999, HOST, 1, 0, None], [-1, HOST, 1, 0, None], [10**9, HOST, 1, 0, None]]
    assert finished(rows).ranks == () == finished({"0": 1}).ranks == finished(None).ranks
    run = finished([[0, "\x1b[2J" + "h" * 5000, "pid", -1, 4000], [1, ["x"], None, True, None]])
    assert [rank["exit"] for rank in run.ranks] == [rank["signal"] for rank in run.ranks] == [None, None]
    lines = rank_lines(run.ranks)
    assert len(lines) == 2 and all(line.isprintable() and len(line) < 200 for line in lines), lines
    assert len(finished([[rank, HOST, None, 0, None] for rank in range(5000)]).ranks) == 1024
    assert len(rank_lines([{"rank": rank, "exit": rank % 256} for rank in range(200)])) == 20
