"""Events that the disk refuses: kept, and written in order as soon as it takes them, whatever a script does."""

from __future__ import annotations

import errno
import json
import os

import pytest

from mlworkbench.remote import journal as module
from mlworkbench.remote.journal import MOST_PENDING, Journal
from mlworkbench.remote.shared.layout import RunFolder

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that refuses every write")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run"
    made.mkdir()
    return made


@pytest.fixture
def journal(folder):
    """On a disk that is full, and not mounted any more."""
    made = Journal(RunFolder(str(folder)))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, made._descriptor)
    os.close(full)
    (folder / "events.jsonl").unlink()
    folder.rmdir()
    return made


@pytest.fixture
def full_disk(monkeypatch):
    """Takes half of each write, until the fixture is undone."""
    write_all = module.write_all

    def refuse(descriptor, data):
        write_all(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_all", refuse)
        yield patched


def kinds(folder):
    return [json.loads(line)["kind"] for line in (folder / "events.jsonl").read_text().splitlines() if line]


def mount_again(folder):
    folder.mkdir()
    (folder / "events.jsonl").touch()


@needs_full
def test_events_wait_in_order(journal, folder):
    journal.add("started", {})
    journal.add("finished", {}, lasting=True)
    assert journal.kinds == ["started", "finished"]
    with pytest.raises(FileNotFoundError):
        journal.flush()
    mount_again(folder)
    journal.flush()
    assert kinds(folder) == ["started", "finished"]


@needs_full
def test_the_next_event_brings_those_that_wait(journal, folder, capsys):
    journal.add("started", {})
    journal.add("step", {})
    mount_again(folder)
    journal.add("finished", {}, lasting=True)
    assert kinds(folder) == ["started", "step", "finished"]
    assert capsys.readouterr().err.count("cannot write the event journal") == 1, "it is logged once"


@needs_full
def test_there_is_a_limit_and_the_ending_is_beyond_it(journal, folder):
    for _ in range(MOST_PENDING + 10):
        journal.add("spark_progress", {})
    journal.add("finished", {}, lasting=True)
    mount_again(folder)
    journal.flush()
    assert len(kinds(folder)) == MOST_PENDING + 1
    assert kinds(folder)[-1] == "finished"


@needs_full
def test_a_disk_that_lost_lines_gets_the_next_ones_where_readers_look(journal, folder):
    journal._end = 1000  # readers have got that far
    journal.add("finished", {}, lasting=True)
    folder.mkdir()
    (folder / "events.jsonl").write_text('{"kind": "accepted"}\n{"kind": "hal')
    journal.flush()
    assert kinds(folder) == ["accepted", "finished"]
    assert (folder / "events.jsonl").read_bytes()[1000:].startswith(b'{"w"')


def test_a_full_disk_gets_no_half_lines(folder, full_disk):
    journal = Journal(RunFolder(str(folder)))
    journal.add("started", {})
    assert (folder / "events.jsonl").read_text() == ""
    full_disk.undo()
    journal.add("finished", {}, lasting=True)
    assert kinds(folder) == ["started", "finished"]


@pytest.mark.parametrize("damage", ["removed", "replaced", "shortened"])
def test_a_script_that_damages_the_journal_on_a_full_disk(folder, request, damage):
    """What repairs the file is refused, too: nothing is lost, and all of it is there when the disk has room."""
    journal, path = Journal(RunFolder(str(folder))), folder / "events.jsonl"
    journal.add("accepted", {})
    before = path.stat().st_size
    full_disk = request.getfixturevalue("full_disk")
    if damage == "shortened":
        os.truncate(path, 0)
    else:
        path.unlink()
    if damage == "replaced":
        path.write_text("of the script\n")
    journal.add("finished", {}, lasting=True)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    assert list(folder.glob("*.part")) == []
    full_disk.undo()
    journal.flush()
    assert kinds(folder) == (["finished"] if damage == "shortened" else ["accepted", "finished"])
    assert b'"finished"' in path.read_bytes()[before:], "readers go on where they were"


def test_a_handle_that_cannot_be_read_any_more(folder, tmp_path):
    """As after the restart of a file server: the name leads to another file on the same mount."""
    journal = Journal(RunFolder(str(folder)))
    journal.add("accepted", {})
    stale = os.open(tmp_path / "stale", os.O_WRONLY | os.O_CREAT)
    os.dup2(stale, journal._descriptor)
    os.close(stale)
    journal.add("finished", {}, lasting=True)
    journal.flush()
    assert kinds(folder) == ["accepted", "finished"]


@needs_full
def test_another_supervisor_may_have_ended_the_run_on_a_disk_that_was_mounted_again(journal, folder):
    assert not journal.has_ended()
    mount_again(folder)
    assert not journal.has_ended()
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._descriptor)
    os.close(full)
    other = Journal(RunFolder(str(folder)))
    other.add("finished", {}, lasting=True)
    assert journal.has_ended()
