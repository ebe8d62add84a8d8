"""The slot for the exit status of a run on a full disk: written completely or not at all."""

from __future__ import annotations

import fcntl
import json
import os

import pytest

from mlworkbench.remote.markers import read_exit
from mlworkbench.remote.preallocated_exit import SIZE, fill_slot, make_slot, read_slot
from mlworkbench.remote.run_lock import lock_holder
from mlworkbench.remote.run_reader import RunUpdates
from mlworkbench.remote.shared.layout import RunFolder

RECORD = {"code": 3, "signal": None, "problem": None, "ended": 1.5, "elapsed": 0.5}


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path))
    make_slot(folder)
    return folder


def test_empty_slot_has_no_exit_status(run, tmp_path):
    assert read_slot(run) is None and read_exit(run) is None
    assert (tmp_path / "exit.slot").stat().st_size == SIZE


def test_filled_slot_has_exit_status_and_same_size(run, tmp_path):
    fill_slot(run, RECORD)
    assert read_exit(run) == RECORD
    assert (tmp_path / "exit.slot").stat().st_size == SIZE


def test_exit_file_takes_precedence_over_slot(run, tmp_path):
    fill_slot(run, RECORD)
    (tmp_path / "exit.json").write_text(json.dumps({**RECORD, "code": 4}))
    assert read_exit(run)["code"] == 4


@pytest.mark.parametrize("offset", [0, 12, 40, 90])
def test_damaged_slot_is_ignored(run, tmp_path, offset):
    fill_slot(run, RECORD)
    block = bytearray((tmp_path / "exit.slot").read_bytes())
    block[offset] ^= 1
    (tmp_path / "exit.slot").write_bytes(block)
    assert read_exit(run) is None


def test_long_texts_are_truncated(run, tmp_path):
    fill_slot(run, {**RECORD, "problem": "é" * 5000, "stopped": "x" * 5000})
    record = read_exit(run)
    assert record["code"] == 3 and record["problem"].startswith("éé") and record["stopped"].startswith("xx")
    assert (tmp_path / "exit.slot").stat().st_size == SIZE


def test_write_without_slot_fails(tmp_path):
    with pytest.raises(FileNotFoundError):
        fill_slot(RunFolder(str(tmp_path)), RECORD)


@pytest.mark.timeout(30)
def test_fifo_as_slot_does_not_block(run, tmp_path):
    (tmp_path / "exit.slot").unlink()
    os.mkfifo(tmp_path / "exit.slot")
    assert read_exit(run) is None
    with pytest.raises(OSError):  # noqa: PT011 - the error depends on the system
        fill_slot(run, RECORD)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["lock", "watch"])
def test_fifo_as_lock_does_not_block(tmp_path, name):
    os.mkfifo(tmp_path / name)
    updates = RunUpdates(RunFolder(str(tmp_path)), {})
    assert not updates.status()["supervised"] and updates.unwritten_reason() == ""
    reader = os.open(tmp_path / name, os.O_RDWR)
    fcntl.flock(reader, fcntl.LOCK_EX)
    try:
        assert lock_holder(str(tmp_path / name)) is None
    finally:
        os.close(reader)
