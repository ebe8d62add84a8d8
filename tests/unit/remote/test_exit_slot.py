"""The slot that takes the exit status of a run on a full disk: whole, or not at all."""

from __future__ import annotations

import fcntl
import json
import os

import pytest

from mlworkbench.remote.exit_slot import SIZE, fill_slot, make_slot, read_slot
from mlworkbench.remote.notes import read_exit
from mlworkbench.remote.run_lock import holder
from mlworkbench.remote.serve import News
from mlworkbench.remote.shared.layout import RunFolder

RECORD = {"code": 3, "signal": None, "problem": None, "ended": 1.5, "elapsed": 0.5}


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path))
    make_slot(folder)
    return folder


def test_an_empty_slot_is_no_ending(run, tmp_path):
    assert read_slot(run) is None and read_exit(run) is None
    assert (tmp_path / "exit.slot").stat().st_size == SIZE


def test_a_filled_slot_is_an_ending_and_as_large_as_before(run, tmp_path):
    fill_slot(run, RECORD)
    assert read_exit(run) == RECORD
    assert (tmp_path / "exit.slot").stat().st_size == SIZE


def test_the_file_counts_before_the_slot(run, tmp_path):
    fill_slot(run, RECORD)
    (tmp_path / "exit.json").write_text(json.dumps({**RECORD, "code": 4}))
    assert read_exit(run)["code"] == 4


@pytest.mark.parametrize("at", [0, 12, 40, 90])
def test_a_damaged_slot_is_no_ending(run, tmp_path, at):
    fill_slot(run, RECORD)
    block = bytearray((tmp_path / "exit.slot").read_bytes())
    block[at] ^= 1
    (tmp_path / "exit.slot").write_bytes(block)
    assert read_exit(run) is None


def test_texts_are_cut_to_fit(run, tmp_path):
    fill_slot(run, {**RECORD, "problem": "é" * 5000, "stopped": "x" * 5000})
    found = read_exit(run)
    assert found["code"] == 3 and found["problem"].startswith("éé") and found["stopped"].startswith("xx")
    assert (tmp_path / "exit.slot").stat().st_size == SIZE


def test_without_a_slot_the_write_fails(tmp_path):
    with pytest.raises(FileNotFoundError):
        fill_slot(RunFolder(str(tmp_path)), RECORD)


@pytest.mark.timeout(30)
def test_a_fifo_in_its_place_holds_nobody_up(run, tmp_path):
    (tmp_path / "exit.slot").unlink()
    os.mkfifo(tmp_path / "exit.slot")
    assert read_exit(run) is None
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
        fill_slot(run, RECORD)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["lock", "watch"])
def test_a_fifo_in_the_place_of_a_lock_holds_nobody_up(tmp_path, name):
    os.mkfifo(tmp_path / name)
    news = News(RunFolder(str(tmp_path)), {})
    assert not news.standing()["supervised"] and news.unwritten() == ""
    reader = os.open(tmp_path / name, os.O_RDWR)
    fcntl.flock(reader, fcntl.LOCK_EX)
    try:
        assert holder(str(tmp_path / name)) is None
    finally:
        os.close(reader)
