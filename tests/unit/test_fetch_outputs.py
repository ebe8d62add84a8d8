"""Outputs from a hostile machine: downloads never exceed the sizes in the run's list of outputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.errors import HistoryError, HostError
from mlworkbench.fetch_outputs import download_outputs
from mlworkbench.model import Compute, Run, Status
from mlworkbench.remote.shared.layout import Root, RunFolder
from mlworkbench.runfiles import disk_limit
from mlworkbench.runfiles.local_copy import LocalCopy
from tests.unit.history.test_run_state import SPEC

MB = 1 << 20


class Machine:
    """A remote machine that sends the data of the test, whatever the client requests."""

    is_remote = True
    identity = "eve@far:22"

    def __init__(self, manifest: bytes, sent: Any = (), files: dict[str, bytes] | None = None) -> None:
        self.files = {"outputs.json": manifest, **(files or {})}
        self.sent = sent
        self.asked: list[tuple[str, int, int]] = []

    def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
        return self.files.get(name, b"")[offset : offset + limit]

    def outputs(self, run_id: str, files: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, bytes]]:
        self.asked += files
        yield from self.sent


def entry(name: str, data: bytes = b"", **changes: Any) -> dict[str, Any]:
    known = {"path": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "kind": "file"}
    return {**known, **changes}


def listed(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"outputs": list(entries)}).encode()


def ended(fetch: str = "all", outputs: int | None = 1, output_bytes: int | None = None) -> Run:
    spec = replace(SPEC, compute=Compute("far", "remote", "far", "eve"), fetch=fetch)
    return replace(Run(spec), status=Status.COMPLETED, outputs=outputs, output_bytes=output_bytes)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = Root(str(tmp_path)).run(SPEC.id)
    os.makedirs(found.path)
    return found


def bring(run: Run, machine: Any, folder: RunFolder) -> Any:
    return download_outputs(run, machine, folder, lambda done, total: None)


def stored(folder: RunFolder) -> int:
    return sum(path.stat().st_size for path in Path(folder.outputs).rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", ["file", "not hashed", "changed while read"])
def test_no_more_bytes_are_stored_than_declared(folder, kind):
    data = b"0123456789"
    machine = Machine(listed(entry("model.bin", data, kind=kind)), ((0, bytes(MB)) for _ in range(304)))
    with pytest.raises(HostError, match=r"sent more of 'model\.bin' than the 10 bytes"):
        bring(ended(), machine, folder)
    assert stored(folder) <= len(data)


def test_a_part_that_was_begun_counts(folder):
    data = bytes(range(256)) * 40
    cut = Machine(listed(entry("model.bin", data)), [(0, data[:1000])])
    bring(ended(), cut, folder)  # the transfer was incomplete, and its partial file counts toward the size
    machine = Machine(listed(entry("model.bin", data)), [(0, data), (0, data)])
    with pytest.raises(HostError, match="sent more of"):
        bring(ended(), machine, folder)
    assert stored(folder) <= len(data)


def test_what_was_asked_for_comes(folder):
    data = b"model"
    machine = Machine(listed(entry("model.bin", data)), [(0, data[:2]), (0, data[2:])])
    assert bring(ended(), machine, folder).outcome.copied == 1
    assert (Path(folder.outputs) / "model.bin").read_bytes() == data
    assert machine.asked == [("model.bin", 0, 5)]


@pytest.mark.parametrize("index", [-1, 1, 7])
def test_files_that_were_not_asked_for_do_not_come(folder, index):
    machine = Machine(listed(entry("small", b"1"), entry("large", bytes(2000))), [(index, b"2")])
    with pytest.raises(HostError, match="an unrequested file"):
        bring(ended(fetch="1 kB", outputs=2), machine, folder)
    assert stored(folder) == 0


def test_fetch_outputs_none_stores_nothing(folder):
    machine = Machine(listed(entry("a", b"1"), {"path": "l", "size": 0, "sha256": None, "kind": "link", "to": "a"}))
    machine.sent = [(0, b"1")]
    bring(ended(fetch="none", outputs=2), machine, folder)
    assert stored(folder) == 0
    assert machine.asked == []


@pytest.mark.parametrize(("outputs", "output_bytes"), [(1, None), (2, 1), (1, 2)])
def test_the_list_must_be_what_the_end_of_the_run_reported(folder, outputs, output_bytes):
    machine = Machine(listed(entry("a", b"1"), entry("b", b"2")))
    with pytest.raises(HostError, match="list of outputs"):
        bring(ended(outputs=outputs, output_bytes=output_bytes), machine, folder)
    assert not os.path.exists(folder.manifest)


def test_a_list_without_end_is_given_up(folder):
    class Endless(Machine):
        def read_file(self, run_id: str, name: str, offset: int, limit: int) -> bytes:
            assert offset < 16 * MB, "nobody stopped it"
            head = b'{"outputs": [' if offset == 0 else b" "
            return head + b" " * (MB - len(head)) if name == "outputs.json" else b""

    with pytest.raises(HostError, match="list of outputs"):
        bring(ended(), Endless(b""), folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": float("inf")}, {"size": float("nan")}, {"size": 1e300}, {"size": 2**70}, {"size": True},
        {"size": -1}, {"size": "1"}, {"sha256": 5}, {"sha256": ["a"] * 64}, {"sha256": "é" * 64}, {"kind": []},
        {"path": None}, {"to": 5},
    ],
)  # fmt: skip
def test_entries_that_make_no_sense_are_one_sentence(folder, changes):
    with pytest.raises(HistoryError, match="contains an invalid entry"):
        bring(ended(), Machine(listed(entry("a", b"1", **changes))), folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"size": ' + "9" * 5000 + "}", '{"path": "\\ud8'])
def test_lists_that_no_parser_likes(folder, text):
    with pytest.raises(HistoryError, match="is damaged"):
        bring(ended(outputs=20), Machine(b'{"outputs": [' + text.encode()), folder)


@pytest.mark.parametrize("name", ["x" * 256, "d/" + "é" * 130, "\ud800", "a/\udfff/b"])
def test_names_that_no_disk_takes_are_refused_one_by_one(folder, name):
    machine = Machine(listed(entry(name, b"1"), entry("good", b"2")), [(0, b"2")])
    brought = bring(ended(outputs=2), machine, folder)
    assert brought.outcome.copied == 1
    assert [path for path, _ in brought.outcome.failed] == [name]


def test_a_target_does_not_fill_the_disk(folder, monkeypatch):
    monkeypatch.setattr(disk_limit, "free_bytes", lambda path: 50 * MB)
    monkeypatch.setattr(disk_limit, "reserve", lambda path: 20 * MB)
    machine = Machine(listed(entry("a", b"1", size=40 * MB)), [(0, bytes(MB))])
    with pytest.raises(HistoryError, match=r"needs 41\.9 MB"):
        bring(ended(), machine, folder)
    assert machine.asked == []
    with pytest.raises(HistoryError, match="disk"):
        LocalCopy(folder).write("log", 0, bytes(31 * MB))


def test_mirrored_files_have_limits(folder, monkeypatch):
    monkeypatch.setattr("mlworkbench.remote.shared.metric_limits.MAX_FILES", 2)
    mirror = LocalCopy(folder)
    with pytest.raises(HostError, match="events.jsonl"):
        mirror.write("events.jsonl", 2**30, b"x")
    for number in range(4):
        mirror.write(f"metrics/1-{number}", 0, b"x")
    mirror.write("metrics/1-0", 1, b"x")
    with pytest.raises(HostError, match="metric files"):
        LocalCopy(folder).write("metrics/1-4", 0, b"x")
