from __future__ import annotations

import os
import time

import pytest

from mlworkbench.remote.shared import run_endings
from mlworkbench.remote.slurm.job_states import (
    advice,
    ending_of,
    expand_nodes,
    format_duration,
    parse_duration,
    parse_state,
    parse_time,
    standing_of,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RUNNING", ("RUNNING", None)),
        ("CANCELLED by 21001", ("CANCELLED", 21001)),
        ("CANCELLED+", ("CANCELLED", None)),  # sacct without -P shortens
        ("OUT_OF_MEMORY\n", ("OUT_OF_MEMORY", None)),
        ("", None),
        ("running", None),
        ("CANCELLED by root; rm -rf /", None),
    ],
)
def test_states_of_squeue_and_sacct(text, expected):
    assert parse_state(text) == expected


def test_each_state_is_queued_running_or_ended():
    queued = "PENDING CONFIGURING REQUEUED REQUEUE_HOLD SPECIAL_EXIT"
    running = "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING"
    ended = "COMPLETED FAILED TIMEOUT DEADLINE OUT_OF_MEMORY NODE_FAIL BOOT_FAIL PREEMPTED CANCELLED REVOKED"
    for standing, states in (("queued", queued), ("running", running), ("ended", ended)):
        assert {standing_of(state) for state in states.split()} == {standing}
    assert all(ending_of(state)[0] in run_endings.ALL for state in ended.split())
    assert standing_of("NEW_IN_SLURM_30") == "unknown"


def test_only_what_a_person_must_do_has_advice():
    assert advice("JobHeldUser", "7") == "it is held: release it with 'scontrol release 7'"
    assert advice("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "7") is not None
    for reason in ("Resources", "Priority", "BeginTime", "Dependency", "None", ""):
        assert advice(reason, "7") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1", ["n1"]),
        ("n[1-3,07],login", ["n1", "n2", "n3", "n07", "login"]),
        ("gpu[08-11]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib", "gpu11-ib"]),
        ("", []),
        ("(null)", []),
        ("n[1-", ["n", "1-"]),
        ("n[a-b]", ["n", "a-b"]),
    ],
)
def test_lists_of_nodes(text, expected):
    assert expand_nodes(text) == expected


def test_a_hostile_list_of_nodes_is_short():
    assert len(expand_nodes("n[0-999999999]")) <= 1000
    assert len(expand_nodes(",".join(["n[1-900]"] * 50))) <= 1000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:30", 30), ("1:00:00", 3600), ("1-00:00:01\n", 86401), ("UNLIMITED", None), ("NOT_SET", None), ("", None)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(60, "1 min"), (9000, "2 h 30 min"), (86400, "1 d"), (0, "0 s")])
def test_durations_for_people(seconds, text):
    assert format_duration(seconds) == text


def test_times_are_local(monkeypatch):
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_time("1970-01-02T09:00:00") == 86400
        assert parse_time("N/A") is None and parse_time("9" * 5000) is None
    finally:
        monkeypatch.undo()
        time.tzset()
