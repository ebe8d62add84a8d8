"""Fetching outputs from another machine preserves holes and content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from mlworkbench.errors import Unreachable
from mlworkbench.remote.output_scan import record_outputs
from mlworkbench.remote.run_reader import read_outputs
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.output_fetch import OutputFetcher
from mlworkbench.runfiles.output_manifest import read_outputs as listed

SIZE = 48 << 20


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    with open(os.path.join(folder.outputs, "sparse"), "wb") as file:
        for megabyte in (0, 7, 8, 31):
            file.seek((megabyte << 20) + 5001)
            file.write(b"data" * 3000)
        file.truncate(SIZE)  # the file ends with a hole
    record_outputs(folder, lambda: False)
    return folder


def fetch(run, destination, limit=SIZE):
    def ask(files):
        remaining = limit
        for index, data in read_outputs(run, [list(file) for file in files]):
            remaining -= len(data)
            if remaining < 0:
                raise Unreachable("cut")
            yield index, data

    return OutputFetcher(str(destination), ask, lambda done: None).fetch(listed(run.manifest))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_holes_are_preserved(run, tmp_path):
    outcome = fetch(run, tmp_path / "home")
    assert (outcome.copied, outcome.is_complete) == (1, True)
    source, copy = (place / "sparse" for place in (Path(run.outputs), tmp_path / "home"))
    assert digest(copy) == digest(source) and copy.stat().st_size == SIZE
    assert copy.stat().st_blocks <= 2 * source.stat().st_blocks


def test_a_fetch_interrupted_in_a_hole_resumes(run, tmp_path):
    with pytest.raises(Unreachable):
        fetch(run, tmp_path / "home", limit=20 << 20)
    [part] = (tmp_path / "home").iterdir()
    assert part.stat().st_size == 20 << 20, "what came counts, although nothing of it had to be written"
    outcome = fetch(run, tmp_path / "home")
    assert outcome.is_complete and outcome.size == SIZE - (20 << 20)
    assert digest(tmp_path / "home" / "sparse") == digest(Path(run.outputs, "sparse"))
