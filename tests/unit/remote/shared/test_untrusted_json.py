"""JSON nested a hundred thousand levels deep: each reader of foreign files passes over it, and nothing stops."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from mlworkbench.history.reading import parse_events
from mlworkbench.history.series.series import Series
from mlworkbench.remote.children import read_child
from mlworkbench.remote.engine import read_state
from mlworkbench.remote.gpus.doctor import _parsed
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.present import is_whole
from mlworkbench.remote.progress import how_ended, last_value, when_started
from mlworkbench.remote.shared.layout import Root, RunFolder
from mlworkbench.remote.shared.manifest import read_manifest, read_record
from mlworkbench.remote.shared.untrusted import parse_json
from mlworkbench.remote.space import _contents
from mlworkbench.snapshot.record import load_record
from mlworkbench.targets.images import _recall
from mlworkbench.ui.errands import _parsed as parsed_answer

DEEP = "[" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = Root(str(tmp_path)).run("c")
    os.makedirs(run.metrics)
    return run


def file(path: Path | str, text: str = DEEP) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return Path(path)


def test_metric_of_a_child_of_a_sweep(run):
    points = f'{{"n":"loss","t":1,"v":0.5}}\n{{"n":"loss","t":2,"v":{DEEP}\n'
    file(os.path.join(run.metrics, "m"), points)
    assert last_value(run, "loss") == "0.5"


@pytest.mark.parametrize(("read", "kind"), [(how_ended, "finished"), (when_started, "started")])
def test_event_of_a_child_of_a_sweep(run, read, kind):
    line = f'{{"w":"sup","seq":1,"t":1,"kind":"{kind}","data":{{"ending":"failed","time":1.5}}}}\n'
    file(run.events, line + f'{{"kind":"{kind}","data":{DEEP}\n')
    assert read(run)


def test_journal_goes_on(run):
    file(run.events, f'{{"w":"sup","seq":7,"t":1,"kind":"accepted","data":{{}}}}\n{DEEP}\n')
    journal = Journal(run)
    journal.add("started", {})
    journal.close()
    assert '"seq": 8' in Path(run.events).read_text().splitlines()[-1]


@pytest.mark.parametrize("seq", ["Infinity", "NaN", "9" * 4300, "-1", "7.5", '"8"'])
def test_numbers_of_events(run, seq):
    """A supervisor that takes over counts on, and the history takes its events in."""
    forged = f'{{"w":"sup","seq":{seq},"t":1,"kind":"step","data":{{}}}}\n'
    file(run.events, '{"w":"sup","seq":7,"t":1,"kind":"accepted","data":{}}\n' + forged)
    journal = Journal(run)
    journal.add("started", {})
    journal.close()
    assert [one.seq for one in parse_events(Path(run.events).read_bytes())[0]] == [7, 8]


def test_child_of_a_sweep(run, tmp_path):
    file(run.children, f"x-1 {DEEP}\n")
    assert read_child(Root(str(tmp_path)), run, {}, "x-1") is None


def test_manifest(tmp_path):
    with pytest.raises(OSError, match="damaged"):
        read_manifest(str(file(tmp_path / "list")))


def test_snapshot(tmp_path):
    root = Root(str(tmp_path))
    file(root.snapshot("a" * 64))
    assert is_whole(root, "a" * 64) is False


READERS: list[tuple[Callable[[Path], Any], Any]] = [
    (lambda path: read_record(str(file(path))), None),
    (lambda path: _contents([(str(file(path)), "")]), {}),
    (lambda path: _recall(file(path)), {}),
    (lambda path: load_record(file(path, f"{crc32(DEEP.encode()):x}\n{DEEP}"), []), None),
    (lambda path: read_state(DEEP)["status"], "down"),
    (lambda path: _parsed(DEEP, "torch")["error"], "unexpected output"),
    (lambda path: parsed_answer(DEEP.encode()), DEEP),
]


@pytest.mark.parametrize(("read", "expected"), READERS)
def test_other_files_and_answers(read, expected, tmp_path):
    assert read(tmp_path / "file") == expected


def test_value_that_only_a_shallow_caller_can_parse(run):
    """It was written down by a caller with fewer frames on its stack than the one that draws curves."""
    depth = sys.getrecursionlimit() // 2
    file(os.path.join(run.metrics, "1"), f'{{"n":"a","v":{"[" * depth}{"]" * depth},"t":1}}\n')

    def below(frames: int) -> list[Any]:
        return below(frames - 1) if frames else series.values("a")

    with Series(run) as series:
        series.catch_up()
        room = sys.getrecursionlimit() - len(inspect.stack()) - 100
        assert [one.value for one in below(room)] == [None]


def test_every_fault_is_a_value_error():
    for text in (DEEP, "{", b"\xff", "[" + "9" * 5000 + "]"):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            parse_json(text)
