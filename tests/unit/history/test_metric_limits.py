"""Arbitrary files in the metrics folder: the client still learns the end of the run, and skipped files are reported."""

from __future__ import annotations

import json
import os

import pytest

from mlworkbench.follow import Follower
from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.rows import ReadPosition
from mlworkbench.history.run_folders import read_parts
from mlworkbench.history.series.series_store import Series
from mlworkbench.history.store import History
from mlworkbench.hosts import host
from mlworkbench.model import Run
from mlworkbench.paths import UserPaths
from mlworkbench.remote.run_reader import RunUpdates
from mlworkbench.remote.shared import metric_limits
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.local_copy import LocalCopy
from mlworkbench.targets.target import Target
from tests.unit.history.test_run_state import SPEC

MIB = 1024 * 1024
LIMIT = 4 * MIB
POINT = b'{"n": "a", "v": 1, "t": 1.5}\n'


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.metrics)
    os.makedirs(folder.claim)
    for path in (folder.spec, folder.owner):
        with open(path, "w") as file:
            file.write("{}")
    event = {"w": "sup", "seq": 1, "t": 1.0, "kind": "finished", "data": {"ending": "succeeded"}}
    with open(folder.events, "w") as file:
        file.write(json.dumps(event) + "\n")
    return folder


def write_metrics(run, name, data=b"", size=None):
    path = os.path.join(run.metrics, name)
    with open(path, "wb") as file:
        file.write(data)
    if size is not None:
        os.truncate(path, size)  # creates a sparse file


def follow(run, limit=40, local_copy=None):
    """Read the run folder like a follower, until nothing is pending. Return the run and the read position."""
    state, reading = Run(SPEC), ReadPosition()
    for _ in range(limit):
        updates = RunUpdates(run, dict(reading.offsets))
        parts = dict(updates.parts(LIMIT))
        if local_copy:
            for name, data in parts.items():
                local_copy.write(name, reading.offsets.get(name, 0), data)
        before = reading
        state, reading = ingest_bytes(state, reading, parts)
        if not updates.pending and reading == before:
            return state, reading
    raise AssertionError("the client never has everything")


def test_files_without_a_line_do_not_fill_a_response(run):
    for number in range(18):
        write_metrics(run, f"junk{number}", size=LIMIT - 1)
    write_metrics(run, "1-a", POINT)
    first = dict(RunUpdates(run, {"events.jsonl": 0}).parts(LIMIT))
    assert list(first) == ["events.jsonl", "metrics/1-a"]
    assert follow(run)[0].metrics == {"a": 1}


def test_events_and_log_precede_metrics(run):
    for number in range(20):
        write_metrics(run, f"full{number}", b"x" * 1000 + b"\n" + b"y" * (LIMIT - 1002) + b"\n")
    with open(run.log, "wb") as file:
        file.write(b"said\n")
    updates = RunUpdates(run, {"events.jsonl": 0, **{f"metrics/full{n}": 0 for n in range(20)}, "log": 0})
    names = [name for name, _ in updates.parts(LIMIT)]
    assert names[:2] == ["events.jsonl", "log"] and len(names) < 20
    assert updates.pending


def test_a_huge_file_is_read_up_to_the_limit_of_a_run(run, monkeypatch):
    monkeypatch.setattr(metric_limits, "MAX_BYTES", 32 * MIB)
    write_metrics(run, "1-a", POINT)
    write_metrics(run, "2-vast", size=1 << 42)
    state, reading = follow(run)
    assert state.metrics == {"a": 1} and state.status.final
    assert sum(reading.offsets.values()) <= 32 * MIB + LIMIT
    assert [line.partition(";")[0] for line in state.left_out] == ["metrics/2-vast: skipped a line longer than 4 MiB"]
    assert sum(len(data) for parts in read_parts(run, {}) for data in parts.values()) <= 32 * MIB + LIMIT
    with Series(run) as series:
        series.catch_up()
        assert [name.name for name in series.names()] == ["a"]
        series.catch_up()


def test_lines_after_a_long_one_are_read_but_not_after_a_huge_one(run):
    write_metrics(run, "1-long", b"x" * (LIMIT + 5) + b"\n" + POINT)
    write_metrics(run, "2-vast", size=metric_limits.MAX_SKIPPED + LIMIT)
    with open(os.path.join(run.metrics, "2-vast"), "ab") as file:
        file.write(b"\n" + POINT.replace(b'"a"', b'"b"'))
    state, reading = follow(run)
    assert state.metrics == {"a": 1} and len(state.left_out) == 2
    assert reading.offsets["metrics/2-vast"] == metric_limits.MAX_SKIPPED
    again = Run(SPEC)
    for parts in read_parts(run, {}):
        again, _ = ingest_bytes(again, ReadPosition(), parts)
    assert again.metrics == {"a": 1}


def test_more_files_than_a_run_may_have(run, monkeypatch):
    monkeypatch.setattr(metric_limits, "MAX_FILES", 5)
    for number in range(12):
        write_metrics(run, f"m{number}", POINT)
    local_copy = LocalCopy(RunFolder(run.path + "-home"))
    os.makedirs(run.path + "-home")
    state, reading = follow(run, local_copy=local_copy)
    assert state.status.final
    assert len([name for name in reading.offsets if name.startswith("metrics/")]) == 5
    assert len({name for parts in read_parts(run, {}) for name in parts}) == 6


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "half a line", "odd name"])
def test_waiting_does_not_return_without_updates(run, what):
    """In earlier versions, each of these entries made every wait return immediately, and the client kept polling."""
    path = os.path.join(run.metrics, "1-x")
    if what == "folder":
        os.mkdir(path)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        os.symlink("/etc/passwd", path)
    elif what == "half a line":
        write_metrics(run, "1-x", b"{")
    else:
        write_metrics(run, "a b", POINT)
    pauses = []
    updates = RunUpdates(run, {"events.jsonl": os.path.getsize(run.events)})
    updates.status = lambda: dict.fromkeys(("exists", "claimed", "supervised", "scheduled"), True)
    updates.wait(60.0, lambda seconds: pauses.append(seconds) or len(pauses) == 3)
    assert len(pauses) == 3
    assert list(updates.parts(LIMIT)) == []


def test_a_completed_line_is_an_update(run):
    write_metrics(run, "1-x", b'{"n": "a", ')
    updates = RunUpdates(run, {"events.jsonl": os.path.getsize(run.events)})
    updates.status = lambda: dict.fromkeys(("exists", "claimed", "supervised", "scheduled"), True)

    def pause(seconds):
        assert not os.path.exists(run.log), "the second half was not noticed"
        with open(run.log, "w"), open(os.path.join(run.metrics, "1-x"), "ab") as file:
            file.write(b'"v": 1, "t": 1.5}\n')
        return False

    updates.wait(60.0, pause)
    assert dict(updates.parts(LIMIT)) == {"metrics/1-x": b'{"n": "a", "v": 1, "t": 1.5}\n'}


def test_skipped_files_are_reported(run, monkeypatch):
    monkeypatch.setattr(metric_limits, "MAX_FILES", 2)
    monkeypatch.setattr(metric_limits, "MAX_BYTES", 10)
    write_metrics(run, "1-a", POINT)
    write_metrics(run, "2-b", POINT)
    write_metrics(run, "3-c", POINT)
    write_metrics(run, "a b", POINT)
    os.mkdir(os.path.join(run.metrics, "x"))
    os.symlink("/etc/passwd", os.path.join(run.metrics, "link"))
    unread = metric_limits.list_unread(run.metrics)
    assert len(unread) == 4
    assert unread[0] == "metrics/a b: not a metrics file name"
    assert {unread[1], unread[2]} == {"metrics/link: not a file", "metrics/x: not a file"}
    assert unread[3] == "metrics: 3 files with 87 bytes; at most 2 files and 10 bytes are read"


class EndlessHost:
    """A host whose run logs as fast as the client reads, for a number of responses."""

    is_remote = False
    identity = "local"

    def __init__(self, answers):
        self.left = answers

    def news(self, run_id, offsets, limit, wait=0.0):
        self.left -= 1
        end = {"w": "sup", "seq": 2, "t": 1.0, "kind": "finished", "data": {"ending": "succeeded"}}
        events = b"" if offsets.get("events.jsonl") else json.dumps(end).encode() + b"\n"
        return host.News({"events.jsonl": events, "metrics/1-a": POINT if self.left else b""}, pending=self.left > 0)


@pytest.fixture
def history(tmp_path):
    (tmp_path / "runs").mkdir()
    history = History(UserPaths(tmp_path))
    yield history
    history.close()


def test_refreshing_a_local_run_has_a_deadline(history):
    spec, _ = history.add(SPEC)
    endless = EndlessHost(1000)
    follower = Follower(history, history.get(spec.id), Target(endless))
    run = follower.refresh(deadline=0.0)
    assert (endless.left, follower.overdue, run.status.final) == (999, True, False)
    assert run.metrics == {"a": 1}, "what came is kept"


def test_the_end_is_recorded_after_everything_that_was_logged_before(history):
    spec, _ = history.add(SPEC)
    follower = Follower(history, history.get(spec.id), Target(EndlessHost(5)))
    run = follower.refresh()
    assert run.status.final and not follower.overdue
    assert run.spans["a"].length == 4
