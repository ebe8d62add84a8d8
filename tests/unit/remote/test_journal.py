"""Events that the disk refuses are kept and written later, in order, even if a script damages the file."""

from __future__ import annotations

import errno
import json
import os

import pytest

from mlworkbench.remote import journal as module
from mlworkbench.remote.journal import MAX_PENDING, Journal
from mlworkbench.remote.shared.layout import RunFolder

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that refuses every write")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def journal(folder):
    """Return a journal whose disk is full and whose run folder was removed."""
    journal = Journal(RunFolder(str(folder)))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._descriptor)
    os.close(full)
    (folder / "events.jsonl").unlink()
    folder.rmdir()
    return journal


@pytest.fixture
def full_disk(monkeypatch):
    """Make each write fail after half of the data, until the test undoes the patch."""
    write_all = module.write_all

    def refuse(descriptor, data):
        write_all(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_all", refuse)
        yield patched


def kinds(folder):
    return [json.loads(line)["kind"] for line in (folder / "events.jsonl").read_text().splitlines() if line]


def remount(folder):
    folder.mkdir()
    (folder / "events.jsonl").touch()


@needs_full
def test_pending_events_keep_their_order(journal, folder):
    journal.add("started", {})
    journal.add("finished", {}, durable=True)
    assert journal.kinds == ["started", "finished"]
    with pytest.raises(FileNotFoundError):
        journal.flush()
    remount(folder)
    journal.flush()
    assert kinds(folder) == ["started", "finished"]


@needs_full
def test_next_event_writes_pending_events(journal, folder, capsys):
    journal.add("started", {})
    journal.add("step", {})
    remount(folder)
    journal.add("finished", {}, durable=True)
    assert kinds(folder) == ["started", "step", "finished"]
    assert capsys.readouterr().err.count("cannot write the event journal") == 1, "it is logged once"


@needs_full
def test_limit_of_pending_events_excludes_the_ending(journal, folder):
    for _ in range(MAX_PENDING + 10):
        journal.add("spark_progress", {})
    journal.add("finished", {}, durable=True)
    remount(folder)
    journal.flush()
    assert len(kinds(folder)) == MAX_PENDING + 1
    assert kinds(folder)[-1] == "finished"


@needs_full
def test_lines_after_lost_ones_keep_their_offset(journal, folder):
    journal._end = 1000  # readers continue at this offset
    journal.add("finished", {}, durable=True)
    folder.mkdir()
    (folder / "events.jsonl").write_text('{"kind": "accepted"}\n{"kind": "hal')
    journal.flush()
    assert kinds(folder) == ["accepted", "finished"]
    assert (folder / "events.jsonl").read_bytes()[1000:].startswith(b'{"w"')


def test_full_disk_gets_no_partial_lines(folder, full_disk):
    journal = Journal(RunFolder(str(folder)))
    journal.add("started", {})
    assert (folder / "events.jsonl").read_text() == ""
    full_disk.undo()
    journal.add("finished", {}, durable=True)
    assert kinds(folder) == ["started", "finished"]


@pytest.mark.parametrize("damage", ["removed", "replaced", "shortened"])
def test_damaged_journal_on_full_disk(folder, request, damage):
    """Repairing the journal fails, too, but no event is lost: all are written when the disk has space again."""
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
    journal.add("finished", {}, durable=True)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    assert list(folder.glob("*.part")) == []
    full_disk.undo()
    journal.flush()
    assert kinds(folder) == (["finished"] if damage == "shortened" else ["accepted", "finished"])
    assert b'"finished"' in path.read_bytes()[before:], "readers continue at their offset"


def test_stale_descriptor(folder, tmp_path):
    """After a file server restarts, the open descriptor may refer to a different file than the path."""
    journal = Journal(RunFolder(str(folder)))
    journal.add("accepted", {})
    stale = os.open(tmp_path / "stale", os.O_WRONLY | os.O_CREAT)
    os.dup2(stale, journal._descriptor)
    os.close(stale)
    journal.add("finished", {}, durable=True)
    journal.flush()
    assert kinds(folder) == ["accepted", "finished"]


@needs_full
def test_ending_by_another_supervisor_after_remount(journal, folder):
    assert not journal.has_ended()
    remount(folder)
    assert not journal.has_ended()
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._descriptor)
    os.close(full)
    other = Journal(RunFolder(str(folder)))
    other.add("finished", {}, durable=True)
    assert journal.has_ended()
