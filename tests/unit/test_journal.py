"""Events that the disk refuses: kept, and written in order as soon as it takes them."""

from __future__ import annotations

import json
import os

import pytest

from mlworkbench.remote.folder import RunFolder
from mlworkbench.remote.journal import MOST_PENDING, Journal

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that refuses every write")


@pytest.fixture
def journal(tmp_path):
    """On a disk that is full, and not mounted any more."""
    made = Journal(RunFolder(str(tmp_path)))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, made._descriptor)
    os.close(full)
    (tmp_path / "events.jsonl").unlink()
    return made


def kinds(tmp_path):
    return [json.loads(line)["kind"] for line in (tmp_path / "events.jsonl").read_text().splitlines() if line]


def give_room(tmp_path):
    """The file of a disk that was mounted again."""
    (tmp_path / "events.jsonl").touch()


def test_events_wait_in_order(journal, tmp_path):
    journal.add("started", {})
    journal.add("finished", {}, lasting=True)
    assert journal.kinds == ["started", "finished"]
    give_room(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()  # the last attempt on the file that is gone
    journal.flush()
    assert kinds(tmp_path) == ["started", "finished"]


def test_the_next_event_brings_those_that_wait(journal, tmp_path, capsys):
    journal.add("started", {})
    give_room(tmp_path)
    journal.add("collecting", {})
    journal.add("finished", {}, lasting=True)
    assert kinds(tmp_path) == ["started", "collecting", "finished"]
    assert capsys.readouterr().err.count("cannot write the event journal") == 1, "it is logged once"


def test_there_is_a_limit_and_the_ending_is_beyond_it(journal, tmp_path):
    for _ in range(MOST_PENDING + 10):
        journal.add("spark_progress", {})
    journal.add("finished", {}, lasting=True)
    give_room(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    journal.flush()
    assert len(kinds(tmp_path)) == MOST_PENDING + 1
    assert kinds(tmp_path)[-1] == "finished"
