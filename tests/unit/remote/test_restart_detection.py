"""Detect from the record of a claim whether processes of a run can still exist."""

from __future__ import annotations

import pytest

from mlworkbench.remote import restart_detection
from mlworkbench.remote.restart_detection import ELSEWHERE, REBOOTED, RESTARTED, SAME

CURRENT = {"machine": "m", "boot_id": "b", "processes": "pid:[2]", "init": 1000, "host": "pod"}
OLD = {**CURRENT, "processes": "pid:[1]", "init": 10, "start": 500}

CHANGES = {
    "nothing": ({**CURRENT, "start": 1200}, SAME),
    "another machine": ({**OLD, "machine": "n", "boot_id": "c"}, ELSEWHERE),
    "a reboot": ({**OLD, "boot_id": "c"}, REBOOTED),
    "nothing is recorded": ({}, REBOOTED),
    "a restart": (OLD, RESTARTED),
    "a restart, and the namespace has the same number": ({**OLD, "processes": "pid:[2]"}, RESTARTED),
    "another container of the machine": ({**OLD, "host": "other"}, ELSEWHERE),
    "the run began after the first process here": ({**OLD, "start": 1001}, ELSEWHERE),
    "an older version recorded it here": ({"machine": "m", "boot_id": "b", "processes": "pid:[2]"}, SAME),
    "an older version recorded it elsewhere": ({"machine": "m", "boot_id": "b", "processes": "pid:[1]"}, ELSEWHERE),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change(monkeypatch, name):
    recorded, change = CHANGES[name]
    monkeypatch.setattr(restart_detection, "origin", lambda: dict(CURRENT))
    assert restart_detection.change_since(recorded) == change


def test_current_record_is_unchanged():
    assert restart_detection.change_since({**restart_detection.origin(), "start": 1}) == SAME
