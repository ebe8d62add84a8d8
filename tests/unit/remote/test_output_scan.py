"""The list of outputs at the end of a run: correct, sorted, and with little memory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from mlworkbench.remote import output_scan as module
from mlworkbench.remote.journal import reserve_space
from mlworkbench.remote.output_scan import iterate_outputs, record_outputs
from mlworkbench.remote.shared.layout import RunFolder


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    return folder


def write_output(run, path, data=b"x"):
    path = Path(run.outputs, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def read_list(run):
    return json.loads(Path(run.manifest).read_text())["outputs"]


NAMES = ["a", "a.txt", "a-dir/x", "a0/x", "ab.d/c", "é/x", "Z/deep/er", "z", "ab"]


def test_entries_are_sorted_by_path(run):
    for name in NAMES:
        write_output(run, name, name.encode())
    os.symlink("a", os.path.join(run.outputs, "a+link"))
    assert record_outputs(run, lambda: False) == (len(NAMES) + 1, sum(len(name.encode()) for name in NAMES), 0)
    entries = read_list(run)
    assert [entry["path"] for entry in entries] == sorted([*NAMES, "a+link"])
    assert {entry["path"]: entry["sha256"] for entry in entries if entry["kind"] == "file"} == {
        name: hashlib.sha256(name.encode()).hexdigest() for name in NAMES
    }
    assert sorted(os.listdir(run.path)) == ["outputs.json", "work"]


def test_no_outputs(run):
    assert record_outputs(run, lambda: False) == (0, 0, 0)
    assert read_list(run) == []


def test_many_outputs_in_little_memory(run):
    """Only the names of one folder and one entry are in memory at a time."""
    first = write_output(run, "d00/f0")
    for number in range(1, 20_000):
        path = Path(run.outputs, f"d{number // 1000:02}")
        path.mkdir(exist_ok=True)
        os.link(first, path / f"f{number}")
    tracemalloc.start()
    assert record_outputs(run, lambda: False) == (20_000, 20_000, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.parametrize("offset", [0, 1, (9 << 20) + 5])
def test_holes_count_as_zeros(run, offset):
    path = write_output(run, "hole", b"")
    with open(path, "r+b") as file:
        file.truncate(10 << 20)
        file.seek(offset)
        file.write(b"data")
    record_outputs(run, lambda: False)
    [entry] = read_list(run)
    assert (entry["size"], entry["kind"]) == (10 << 20, "file")
    assert entry["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_hurry_within_a_file(run):
    """When a run is canceled, hashing stops even in the middle of a large file."""
    write_output(run, "a", b"small")
    os.truncate(write_output(run, "b"), 64 << 20)
    write_output(run, "c", b"later")
    calls = []
    entries = {
        entry["path"]: entry for entry in iterate_outputs(run.outputs, lambda: calls.append(1) or len(calls) > 2)
    }
    assert entries["a"]["kind"] == "file"
    assert (entries["b"]["kind"], entries["b"]["sha256"], entries["b"]["size"]) == ("not hashed", None, 64 << 20)


def test_full_disk_uses_the_reserve(run, monkeypatch):
    write_output(run, "a", b"kept")
    reserve_space(run)
    real_write = os.write

    def write(descriptor, data):
        if os.path.exists(run.reserve):
            real_write(descriptor, data[:5])  # a nearly full disk accepts a part of the data
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data)

    monkeypatch.setattr(module.os, "write", write)
    assert record_outputs(run, lambda: False) == (1, 4, 0)
    assert [entry["path"] for entry in read_list(run)] == ["a"]


def test_full_disk_leaves_no_partial_list(run, monkeypatch):
    write_output(run, "a")
    reserve_space(run)

    def write(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "write", write)
    with pytest.raises(OSError, match="No space"):
        record_outputs(run, lambda: False)
    assert sorted(os.listdir(run.path)) == ["exit.slot", "work"]
