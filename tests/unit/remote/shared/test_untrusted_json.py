"""JSON nested 100,000 levels deep: every reader of untrusted files skips it without failing."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from mlworkbench.history.journal_parsing import parse_events
from mlworkbench.history.series.series_store import Series
from mlworkbench.remote.child_spec_file import read_child
from mlworkbench.remote.disk_usage import _blobs_of_manifests
from mlworkbench.remote.engine import parse_state
from mlworkbench.remote.gpus.gpu_probe import _parse_result
from mlworkbench.remote.journal import Journal
from mlworkbench.remote.shared.layout import Root, RunFolder
from mlworkbench.remote.shared.snapshot_manifest import read_manifest, read_record
from mlworkbench.remote.shared.untrusted_json import parse_json
from mlworkbench.remote.snapshot_check import is_complete
from mlworkbench.remote.sweep_log import read_finished, read_last_value, read_start_time
from mlworkbench.snapshot.scan_cache import load_record
from mlworkbench.targets.image_libc import _read_cache
from mlworkbench.ui.operation_runner import _parse_result as parse_operation_result

DEEP = "[" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = Root(str(tmp_path)).run("c")
    os.makedirs(run.metrics)
    return run


def write(path: Path | str, text: str = DEEP) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return Path(path)


def test_metric_of_a_child_of_a_sweep(run):
    points = f'{{"n":"loss","t":1,"v":0.5}}\n{{"n":"loss","t":2,"v":{DEEP}\n'
    write(os.path.join(run.metrics, "m"), points)
    assert read_last_value(run, "loss") == "0.5"


@pytest.mark.parametrize(("read", "kind"), [(read_finished, "finished"), (read_start_time, "started")])
def test_event_of_a_child_of_a_sweep(run, read, kind):
    line = f'{{"w":"sup","seq":1,"t":1,"kind":"{kind}","data":{{"ending":"failed","time":1.5}}}}\n'
    write(run.events, line + f'{{"kind":"{kind}","data":{DEEP}\n')
    assert read(run)


def test_journal_continues(run):
    write(run.events, f'{{"w":"sup","seq":7,"t":1,"kind":"accepted","data":{{}}}}\n{DEEP}\n')
    journal = Journal(run)
    journal.add("started", {})
    journal.close()
    assert '"seq": 8' in Path(run.events).read_text().splitlines()[-1]


@pytest.mark.parametrize("seq", ["Infinity", "NaN", "9" * 4300, "-1", "7.5", '"8"'])
def test_event_numbers(run, seq):
    """A new supervisor continues the sequence numbers despite a forged event, and the history accepts its events."""
    forged = f'{{"w":"sup","seq":{seq},"t":1,"kind":"step","data":{{}}}}\n'
    write(run.events, '{"w":"sup","seq":7,"t":1,"kind":"accepted","data":{}}\n' + forged)
    journal = Journal(run)
    journal.add("started", {})
    journal.close()
    assert [event.seq for event in parse_events(Path(run.events).read_bytes())[0]] == [7, 8]


def test_child_of_a_sweep(run, tmp_path):
    write(run.children, f"x-1 {DEEP}\n")
    assert read_child(Root(str(tmp_path)), run, {}, "x-1") is None


def test_manifest(tmp_path):
    with pytest.raises(OSError, match="damaged"):
        read_manifest(str(write(tmp_path / "list")))


def test_snapshot(tmp_path):
    root = Root(str(tmp_path))
    write(root.snapshot("a" * 64))
    assert is_complete(root, "a" * 64) is False


READERS: list[tuple[Callable[[Path], Any], Any]] = [
    (lambda path: read_record(str(write(path))), None),
    (lambda path: _blobs_of_manifests([(str(write(path)), "")]), {}),
    (lambda path: _read_cache(write(path)), {}),
    (lambda path: load_record(write(path, f"{crc32(DEEP.encode()):x}\n{DEEP}"), []), None),
    (lambda path: parse_state(DEEP)["status"], "down"),
    (lambda path: _parse_result(DEEP, "torch")["error"], "unexpected output"),
    (lambda path: parse_operation_result(DEEP.encode()), DEEP),
]


@pytest.mark.parametrize(("read", "expected"), READERS)
def test_other_files_and_answers(read, expected, tmp_path):
    assert read(tmp_path / "file") == expected


def test_value_that_only_a_shallow_caller_can_parse(run):
    """The value is stored with few frames on the stack, and read with too many to parse it."""
    depth = sys.getrecursionlimit() // 2
    write(os.path.join(run.metrics, "1"), f'{{"n":"a","v":{"[" * depth}{"]" * depth},"t":1}}\n')

    def call_deeper(frames: int) -> list[Any]:
        return call_deeper(frames - 1) if frames else series.values("a")

    with Series(run) as series:
        series.catch_up()
        room = sys.getrecursionlimit() - len(inspect.stack()) - 100
        assert [point.value for point in call_deeper(room)] == [None]


def test_every_error_is_a_value_error():
    for text in (DEEP, "{", b"\xff", "[" + "9" * 5000 + "]"):
        with pytest.raises(ValueError):  # noqa: PT011 - the messages differ
            parse_json(text)
