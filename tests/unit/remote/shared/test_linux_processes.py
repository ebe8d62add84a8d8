"""Processes of a run on Linux, from the files in /proc."""

from __future__ import annotations

import pytest

from mlworkbench.remote.shared.machine import linux

# Recorded, without the zeros at the end. The kernel had removed the variables of the first process: it was exiting.
EXITING = b"23739 (python3.11) R 23732 23739 23739 0 -1 4194380 310 1284 0 0 0 0 1 1 20 0 1 0 100485 0 0"
RUNNING = b"412 (a) S (b)) S 400 412 411 0 -1 4194560 310 1284 0 0 0 0 1 1 20 0 1 0 99120 0 0"
ZOMBIE = b"25551 (python3.11) Z 25538 25551 25551 0 -1 4227148 311 1286 0 0 0 0 1 0 20 0 1 0 102892 0 0"


@pytest.mark.parametrize(
    ("data", "expected"),
    [(EXITING, (23732, 23739, 100485, True)), (RUNNING, (400, 411, 99120, False)), (ZOMBIE, None)],
)
def test_state_of_a_process(data, expected):
    assert linux.parse_stat(data) == expected


def test_exiting_processes_are_not_of_the_run_but_their_children_are(monkeypatch):
    files = {"/proc/412/stat": RUNNING.replace(b"400", b"23739"), "/proc/23739/stat": EXITING.replace(b"23732", b"400")}
    monkeypatch.setattr(linux.os, "listdir", lambda path: ["412", "23739", "self"])
    monkeypatch.setattr(linux, "_read", files.get)
    assert linux.find_processes("/run", [400], []) == [(412, 99120)]
