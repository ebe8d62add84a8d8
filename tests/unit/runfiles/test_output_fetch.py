"""Outputs that come home from another machine: holes stay holes, and the bytes are the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from mlworkbench.errors import Unreachable
from mlworkbench.remote.outputs import record_outputs
from mlworkbench.remote.serve import read_outputs
from mlworkbench.remote.shared.layout import RunFolder
from mlworkbench.runfiles.incoming import Incoming
from mlworkbench.runfiles.manifest import read_outputs as listed

SIZE = 48 << 20


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    with open(os.path.join(folder.outputs, "sparse"), "wb") as file:
        for megabyte in (0, 7, 8, 31):
            file.seek((megabyte << 20) + 5001)
            file.write(b"data" * 3000)
        file.truncate(SIZE)  # it ends with a hole
    record_outputs(folder, lambda: False)
    return folder


def fetched(run, place, most=SIZE):
    def ask(files):
        left = most
        for index, data in read_outputs(run, [list(one) for one in files]):
            left -= len(data)
            if left < 0:
                raise Unreachable("cut")
            yield index, data

    return Incoming(str(place), ask, lambda done: None).fetch(listed(run.manifest))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_holes_stay_holes(run, tmp_path):
    outcome = fetched(run, tmp_path / "home")
    assert (outcome.copied, outcome.whole) == (1, True)
    source, found = (place / "sparse" for place in (Path(run.outputs), tmp_path / "home"))
    assert digest(found) == digest(source) and found.stat().st_size == SIZE
    assert found.stat().st_blocks <= 2 * source.stat().st_blocks


def test_one_that_was_cut_within_a_hole_goes_on_there(run, tmp_path):
    with pytest.raises(Unreachable):
        fetched(run, tmp_path / "home", most=20 << 20)
    [part] = (tmp_path / "home").iterdir()
    assert part.stat().st_size == 20 << 20, "what came counts, although nothing of it had to be written"
    outcome = fetched(run, tmp_path / "home")
    assert outcome.whole and outcome.size == SIZE - (20 << 20)
    assert digest(tmp_path / "home" / "sparse") == digest(Path(run.outputs, "sparse"))
