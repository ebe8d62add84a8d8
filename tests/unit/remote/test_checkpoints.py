"""Copies of the checkpoints of another run."""

from __future__ import annotations

import pytest

from mlworkbench.remote.checkpoints import NoCheckpoints, prepare_checkpoints
from mlworkbench.remote.shared.layout import Root


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "runs" / "old" / "checkpoints" / "step-1"
    folder.mkdir(parents=True)
    (tmp_path / "runs" / "new").mkdir()
    for number in range(3):
        (folder / f"{number}.pt").write_text(str(number))
    return Root(str(tmp_path))


def test_a_copy_is_complete_and_reports_that_it_proceeds(root, tmp_path):
    beats = []
    prepare_checkpoints(root, root.run("new"), {"resumed": "old"}, lambda: beats.append(1), lambda: False)
    copies = tmp_path / "runs" / "new" / "checkpoints" / "step-1"
    assert [path.read_text() for path in sorted(copies.iterdir())] == ["0", "1", "2"]
    assert len(beats) == 3


def test_a_cancel_ends_the_copy(root):
    with pytest.raises(NoCheckpoints, match="canceled while the checkpoints of run old were copied"):
        prepare_checkpoints(root, root.run("new"), {"resumed": "old"}, lambda: None, lambda: True)


def test_the_folder_is_created_without_another_run(root, tmp_path):
    prepare_checkpoints(root, root.run("new"), {}, lambda: None, lambda: False)
    assert list((tmp_path / "runs" / "new" / "checkpoints").iterdir()) == []
