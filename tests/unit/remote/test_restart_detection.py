"""Whether the processes of a run can still be there, by what its claim recorded."""

from __future__ import annotations

import pytest

from mlworkbench.remote import restart
from mlworkbench.remote.restart import ELSEWHERE, REBOOTED, RESTARTED, SAME

HERE = {"machine": "m", "boot_id": "b", "processes": "pid:[2]", "init": 1000, "host": "pod"}
OLD = {**HERE, "processes": "pid:[1]", "init": 10, "start": 500}

CHANGES = {
    "nothing": ({**HERE, "start": 1200}, SAME),
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
    then, change = CHANGES[name]
    monkeypatch.setattr(restart, "origin", lambda: dict(HERE))
    assert restart.change_since(then) == change


def test_what_is_recorded_now_has_not_changed():
    assert restart.change_since({**restart.origin(), "start": 1}) == SAME
