"""The list that a run's end writes of its outputs: right, in order, in little memory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from mlworkbench.remote import outputs as module
from mlworkbench.remote.journal import keep_room
from mlworkbench.remote.outputs import each_output, record_outputs
from mlworkbench.remote.shared.layout import RunFolder


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    return folder


def put(run, path, data=b"x"):
    place = Path(run.outputs, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


def listed(run):
    return json.loads(Path(run.manifest).read_text())["outputs"]


NAMES = ["a", "a.txt", "a-dir/x", "a0/x", "ab.d/c", "é/x", "Z/deep/er", "z", "ab"]


def test_by_path_as_if_sorted(run):
    for name in NAMES:
        put(run, name, name.encode())
    os.symlink("a", os.path.join(run.outputs, "a+link"))
    assert record_outputs(run, lambda: False) == (len(NAMES) + 1, sum(len(name.encode()) for name in NAMES), 0)
    found = listed(run)
    assert [one["path"] for one in found] == sorted([*NAMES, "a+link"])
    assert {one["path"]: one["sha256"] for one in found if one["kind"] == "file"} == {
        name: hashlib.sha256(name.encode()).hexdigest() for name in NAMES
    }
    assert sorted(os.listdir(run.path)) == ["outputs.json", "work"]


def test_no_outputs(run):
    assert record_outputs(run, lambda: False) == (0, 0, 0)
    assert listed(run) == []


def test_many_in_little_memory(run):
    """Of 20,000 outputs; the names of one folder at a time, and no entry but the one at hand."""
    first = put(run, "d00/f0")
    for number in range(1, 20_000):
        place = Path(run.outputs, f"d{number // 1000:02}")
        place.mkdir(exist_ok=True)
        os.link(first, place / f"f{number}")
    tracemalloc.start()
    assert record_outputs(run, lambda: False) == (20_000, 20_000, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.parametrize("where", [0, 1, (9 << 20) + 5])
def test_holes_count_as_zeros(run, where):
    place = put(run, "hole", b"")
    with open(place, "r+b") as file:
        file.truncate(10 << 20)
        file.seek(where)
        file.write(b"data")
    record_outputs(run, lambda: False)
    [one] = listed(run)
    assert (one["size"], one["kind"]) == (10 << 20, "file")
    assert one["sha256"] == hashlib.sha256(place.read_bytes()).hexdigest()


def test_in_a_hurry_within_a_file(run):
    """A cancelled run does not wait until terabytes are hashed."""
    put(run, "a", b"small")
    os.truncate(put(run, "b"), 64 << 20)
    put(run, "c", b"later")
    asked = []
    found = {one["path"]: one for one in each_output(run.outputs, lambda: asked.append(1) or len(asked) > 2)}
    assert found["a"]["kind"] == "file"
    assert (found["b"]["kind"], found["b"]["sha256"], found["b"]["size"]) == ("not hashed", None, 64 << 20)


def test_a_full_disk_gets_the_reserve(run, monkeypatch):
    put(run, "a", b"kept")
    keep_room(run)
    real = os.write

    def write(descriptor, data):
        if os.path.exists(run.reserve):
            real(descriptor, data[:5])  # a nearly full disk takes a part
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(module.os, "write", write)
    assert record_outputs(run, lambda: False) == (1, 4, 0)
    assert [one["path"] for one in listed(run)] == ["a"]


def test_a_disk_that_stays_full_leaves_nothing(run, monkeypatch):
    put(run, "a")
    keep_room(run)

    def write(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "write", write)
    with pytest.raises(OSError, match="No space"):
        record_outputs(run, lambda: False)
    assert sorted(os.listdir(run.path)) == ["exit.slot", "work"]
