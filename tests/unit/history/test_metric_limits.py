"""A script fills its metrics folder with anything: the run's end still arrives, and what is left out is named."""

from __future__ import annotations

import json
import os

import pytest

from mlworkbench.follow import Follower
from mlworkbench.history.folders import read_parts
from mlworkbench.history.intake import take_in
from mlworkbench.history.rows import Reading
from mlworkbench.history.series.series import Series
from mlworkbench.history.store import History
from mlworkbench.hosts import host
from mlworkbench.model import Run
from mlworkbench.paths import UserPaths
from mlworkbench.remote.serve import News
from mlworkbench.remote.shared import metric_files
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.mirror import Mirror
from mlworkbench.targets.target import Target
from tests.unit.test_fold import SPEC

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


def put(run, name, data=b"", size=None):
    path = os.path.join(run.metrics, name)
    with open(path, "wb") as file:
        file.write(data)
    if size is not None:
        os.truncate(path, size)  # sparse


def follow(run, most=40, mirror=None):
    """Read as a follower does, until an answer leaves nothing pending."""
    state, reading = Run(SPEC), Reading()
    for _ in range(most):
        news = News(run, dict(reading.offsets))
        parts = dict(news.parts(LIMIT))
        if mirror:
            for name, data in parts.items():
                mirror.write(name, reading.offsets.get(name, 0), data)
        before = reading
        state, reading = take_in(state, reading, parts)
        if not news.pending and reading == before:
            return state, reading
    raise AssertionError("the client never has everything")


def test_files_without_a_line_do_not_use_up_the_room_of_an_answer(run):
    for number in range(18):
        put(run, f"junk{number}", size=LIMIT - 1)
    put(run, "1-a", POINT)
    first = dict(News(run, {"events.jsonl": 0}).parts(LIMIT))
    assert list(first) == ["events.jsonl", "metrics/1-a"]
    assert follow(run)[0].metrics == {"a": 1}


def test_events_and_log_come_first_whatever_the_metrics_are(run):
    for number in range(20):
        put(run, f"full{number}", b"x" * 1000 + b"\n" + b"y" * (LIMIT - 1002) + b"\n")
    with open(run.log, "wb") as file:
        file.write(b"said\n")
    news = News(run, {"events.jsonl": 0, **{f"metrics/full{n}": 0 for n in range(20)}, "log": 0})
    names = [name for name, _ in news.parts(LIMIT)]
    assert names[:2] == ["events.jsonl", "log"] and len(names) < 20
    assert news.pending


def test_a_vast_file_is_read_up_to_the_limit_of_a_run(run, monkeypatch):
    monkeypatch.setattr(metric_files, "MOST_BYTES", 32 * MIB)
    put(run, "1-a", POINT)
    put(run, "2-vast", size=1 << 42)
    state, reading = follow(run)
    assert state.metrics == {"a": 1} and state.status.final
    assert sum(reading.offsets.values()) <= 32 * MIB + LIMIT
    assert [line.partition(";")[0] for line in state.left_out] == ["metrics/2-vast: skipped a line longer than 4 MiB"]
    assert sum(len(data) for parts in read_parts(run, {}) for data in parts.values()) <= 32 * MIB + LIMIT
    with Series(run) as series:
        series.catch_up()
        assert [one.name for one in series.names()] == ["a"]
        series.catch_up()


def test_lines_after_a_long_one_are_read_and_those_after_a_vast_one_are_not(run):
    put(run, "1-long", b"x" * (LIMIT + 5) + b"\n" + POINT)
    put(run, "2-vast", size=metric_files.LONGEST_SKIPPED + LIMIT)
    with open(os.path.join(run.metrics, "2-vast"), "ab") as file:
        file.write(b"\n" + POINT.replace(b'"a"', b'"b"'))
    state, reading = follow(run)
    assert state.metrics == {"a": 1} and len(state.left_out) == 2
    assert reading.offsets["metrics/2-vast"] == metric_files.LONGEST_SKIPPED
    again = Run(SPEC)
    for parts in read_parts(run, {}):
        again, _ = take_in(again, Reading(), parts)
    assert again.metrics == {"a": 1}


def test_more_files_than_a_run_may_have(run, monkeypatch):
    monkeypatch.setattr(metric_files, "MOST_FILES", 5)
    for number in range(12):
        put(run, f"m{number}", POINT)
    mirror = Mirror(RunFolder(run.path + "-home"))
    os.makedirs(run.path + "-home")
    state, reading = follow(run, mirror=mirror)
    assert state.status.final
    assert len([name for name in reading.offsets if name.startswith("metrics/")]) == 5
    assert len({name for parts in read_parts(run, {}) for name in parts}) == 6


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "half a line", "odd name"])
def test_nothing_new_is_waited_for_quietly(run, what):
    """Each of these made every wait return at once: the agent polled as fast as it could."""
    path = os.path.join(run.metrics, "1-x")
    if what == "folder":
        os.mkdir(path)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        os.symlink("/etc/passwd", path)
    elif what == "half a line":
        put(run, "1-x", b"{")
    else:
        put(run, "a b", POINT)
    pauses = []
    news = News(run, {"events.jsonl": os.path.getsize(run.events)})
    news.standing = lambda: {"supervised": True}
    news.wait(60.0, lambda seconds: pauses.append(seconds) or len(pauses) == 3)
    assert len(pauses) == 3
    assert list(news.parts(LIMIT)) == []


def test_a_line_that_gets_its_end_is_news(run):
    put(run, "1-x", b'{"n": "a", ')
    news = News(run, {"events.jsonl": os.path.getsize(run.events)})
    news.standing = lambda: {"supervised": True}

    def pause(seconds):
        assert not os.path.exists(run.log), "the second half was not noticed"
        with open(run.log, "w"), open(os.path.join(run.metrics, "1-x"), "ab") as file:
            file.write(b'"v": 1, "t": 1.5}\n')
        return False

    news.wait(60.0, pause)
    assert dict(news.parts(LIMIT)) == {"metrics/1-x": b'{"n": "a", "v": 1, "t": 1.5}\n'}


def test_what_is_left_out_is_named(run, monkeypatch):
    monkeypatch.setattr(metric_files, "MOST_FILES", 2)
    monkeypatch.setattr(metric_files, "MOST_BYTES", 10)
    put(run, "1-a", POINT)
    put(run, "2-b", POINT)
    put(run, "3-c", POINT)
    put(run, "a b", POINT)
    os.mkdir(os.path.join(run.metrics, "x"))
    os.symlink("/etc/passwd", os.path.join(run.metrics, "link"))
    found = metric_files.left_out(run.metrics)
    assert len(found) == 4
    assert found[0] == "metrics/a b: not a metrics file name"
    assert {found[1], found[2]} == {"metrics/link: not a file", "metrics/x: not a file"}
    assert found[3] == "metrics: 3 files with 87 bytes; at most 2 files and 10 bytes are read"


class Endless:
    """A host whose run logs as fast as anybody reads, up to some number of answers."""

    distant = False
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


def test_a_look_at_a_run_of_this_machine_has_a_deadline(history):
    spec, _ = history.add(SPEC)
    endless = Endless(1000)
    follower = Follower(history, history.get(spec.id), Target(endless))
    run = follower.refresh(deadline=0.0)
    assert (endless.left, follower.overdue, run.status.final) == (999, True, False)
    assert run.metrics == {"a": 1}, "what came is kept"


def test_the_end_is_recorded_after_everything_that_was_logged_before(history):
    spec, _ = history.add(SPEC)
    follower = Follower(history, history.get(spec.id), Target(Endless(5)))
    run = follower.refresh()
    assert run.status.final and not follower.overdue
    assert run.spans["a"].length == 4
