"""W&B runs in offline mode, as written by wandb 0.31, and damaged ones."""

from __future__ import annotations

import math
import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from mlworkbench.history.ingest import ingest_bytes
from mlworkbench.history.nested_runs import children_of
from mlworkbench.history.rows import ReadPosition
from mlworkbench.model import Run, Status
from mlworkbench.remote.script_files import ScriptFiles
from mlworkbench.remote.tracking.file_search import TrackingFiles
from mlworkbench.remote.tracking.wandb_file import HEADER, iterate_records
from mlworkbench.remote.tracking.wandb_reader import WandbReader

from ...history.test_run_state import SPEC

RECORDED = Path(__file__).parents[2] / "recorded" / "wandb-0.31-offline.zip"
STARTED = 1795039500.0  # before the recorded runs


class RunFiles:
    """Two W&B runs of a script. The file of the first one has several blocks."""

    def __init__(self, folder: Path) -> None:
        self.work, self.target = folder / "work", folder / "metrics" / "wandb"
        shutil.unpack_archive(RECORDED, self.work)
        self.first, self.second = sorted(self.work.rglob("*.wandb"), key=lambda path: path.parent.name)

    def reader(self, started: float = STARTED) -> WandbReader:
        files = TrackingFiles(str(self.work))
        files.search(now=True)
        return WandbReader(files, str(self.target), started)

    def history(self) -> Run:
        return ingest_bytes(Run(SPEC), ReadPosition(), {"metrics/wandb": self.target.read_bytes()})[0]

    def points(self) -> list[str]:
        return [line for line in self.target.read_text().splitlines() if '"n": ' in line or '"k": "metric"' in line]


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path)


def only_first(files: RunFiles) -> None:
    shutil.rmtree(files.second.parent)


def test_a_single_run_is_the_run_of_the_script(files):
    only_first(files)
    reader = files.reader()
    assert reader.finish()
    run = files.history()
    assert run.children == {}
    assert run.params["lr"] == 0.1 and run.params["opt.name"] == "adam" and run.params["opt.betas"] == "[0.9, 0.99]"
    assert run.params["later"] == 3 and run.params["long"] == "x" * 6000 and run.params["none"] == "None"
    assert {name: run.metrics[name] for name in ("loss", "nested.x", "flag", "big")} == {
        "loss": 0.2, "nested.x": 4, "flag": 1, "big": 1e20,
    }  # fmt: skip
    assert run.spans["loss"].length == 5 and run.spans["loss"].step == 4 and run.spans["big"].step == 100
    assert math.isnan(run.metrics["nan"]) and run.metrics["inf"] == math.inf
    assert not [name for name in run.metrics if name.startswith("hist")], "an HTML file"
    assert run.metrics["best"] == 0.9 and run.spans["best"].step is None, "only in the summary"
    assert run.spans["loss"].time > STARTED
    tags = {name: value for name, value in run.told_tags.items() if name != "wandb.run_id"}
    assert tags.pop("wandb.left-out") == "values that are not numbers are only in the W&B files"
    assert tags == {
        "wandb.project": "demo", "wandb.name": "my-run", "wandb.tags": "a, b, c", "wandb.notes": "note",
        "wandb.group": "g", "wandb.job_type": "jt", "wandb.exit_code": "0",
    }  # fmt: skip
    found = ScriptFiles()
    reader.describe_files(found)
    folder = files.first.parent.relative_to(files.work).as_posix()
    assert found.recorded == {folder} and found.keep == [f"{folder}/{files.first.name}", f"{folder}/files"]
    assert found.unread.lines() == []


def test_several_runs_are_children(files):
    assert files.reader().finish()
    run = files.history()
    first, second = children_of(run)
    assert (first.name, second.name) == ("my-run", "second1")
    assert first.metrics == run.metrics and second.metrics == {"loss": 3}
    assert second.status is Status.FAILED and second.told_tags["wandb.exit_code"] == "1"
    assert second.started and second.ended and second.started > STARTED


def test_a_growing_file_is_read_once(files):
    """The file grows in pieces that end anywhere, and another supervisor continues after each of them."""
    only_first(files)
    data = files.first.read_bytes()
    for size in [*range(0, len(data), 997), len(data)]:
        files.first.write_bytes(data[:size])
        reader = files.reader()
        assert reader.poll()
        reader._file.close()
    assert files.reader().finish()
    assert files.reader().finish(), "after the end"
    points = files.points()
    assert len(points) == len(set(points)) == 5 * 6 + 2
    assert files.history().metrics["best"] == 0.9


def test_a_moved_folder_is_not_recorded_again(files):
    only_first(files)
    assert files.reader().finish()
    before = files.points()
    (files.work / "outputs").mkdir()
    shutil.move(files.work / "wandb", files.work / "outputs" / "wandb")
    assert files.reader().finish()
    assert files.points() == before


def test_older_and_online_runs_are_ignored(files):
    reader = files.reader(started=STARTED + 1e9)
    assert reader.finish()
    found = ScriptFiles()
    reader.describe_files(found)
    assert found.keep == [] and files.points() == []
    os.rename(files.first.parent, files.first.parent.parent / "run-20261118_220526-x")
    assert files.reader().finish()
    assert [child.name for child in children_of(files.history())] == [] and files.history().metrics == {"loss": 3}


def chunk(data: bytes, kind: int = 1) -> bytes:
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def version(text: bytes) -> bytes:
    """Return a record with the version of the format."""
    content = b"\x0a\x0b0.99.0+a1b2" + b"\x12" + bytes([len(text)]) + text
    content = b"\x0a" + bytes([len(content)]) + content
    return chunk(b"\xaa\x01" + bytes([len(content)]) + content)


UNKNOWN = {
    "magic": (b":W&B\xe1\xbe\x01" + bytes(20), "its format is unknown"),
    "other": (b"text", "its format is unknown"),
    "newer": (HEADER + version(b"1.0.0"), "the format of wandb 0.99.0 is unknown"),
    "invalid": (HEADER + version(b"x"), "the format of wandb 0.99.0 is unknown"),
    "empty": (HEADER, "it contains no run"),
    "old, without a version": (HEADER + chunk(b"\xaa\x01\x00"), "it contains no run"),
    "damaged": (HEADER + chunk(b"abc")[:-1] + b"x", "a wrong checksum"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_formats_are_named_and_kept(files, case):
    content, reason = UNKNOWN[case]
    only_first(files)
    files.first.write_bytes(content)
    reader = files.reader()
    reader.finish()
    found = ScriptFiles()
    reader.describe_files(found)
    folder = files.first.parent.relative_to(files.work).as_posix()
    assert found.unread.lines() == [f"{folder}: the W&B run is not recorded, but its folder is kept: {reason}"]
    assert found.keep == [folder] and found.recorded == set()


def test_damage_ends_the_data_of_a_file(files):
    only_first(files)
    data = bytearray(files.first.read_bytes())
    position = data.index(b"0.3333333333333333")
    data[position] ^= 1
    files.first.write_bytes(data)
    reader = files.reader()
    reader.poll()
    assert "damaged" not in files.history().told_tags["wandb.left-out"], "the data may still be incomplete"
    reader.finish()
    run = files.history()
    assert run.metrics["loss"] == 0.5
    assert "a W&B file is damaged" in run.told_tags["wandb.left-out"]


def test_incomplete_records_are_skipped():
    assert [record for _, record in iterate_records(chunk(b"a") + chunk(b"b"), 7)] == [b"a", b"b"]
    assert list(iterate_records(chunk(b"a", 2), 7)) == [], "the rest is not written yet"
