"""A disk that refuses writes when a run ends: the exit code is kept, and written as soon as possible."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mlworkbench.remote import serve
from mlworkbench.remote.shared.layout import RunFolder

from .conftest import alive, delete_run, until
from .test_death import kill

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")

# Ends with exit code 7 as soon as it may, without writing anything.
WAITS = """
import os, sys, time
print('up')
while not os.path.exists({go!r}): time.sleep(0.01)
sys.exit(7)
"""


@contextmanager
def mounted(*words: str):
    subprocess.run(["mount", *words], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", words[-1]], check=True)


@contextmanager
def read_only(folder: Path):
    """Whoever opens something below the folder by its path may not write it, as on a disk that went read-only."""
    with mounted("--bind", str(folder), str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield


@pytest.fixture
def small_disk(place):
    place.root.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place.root)):
        yield place


def begin(place, tmp_path):
    folder = place.run("r", WAITS.format(go=str(tmp_path / "go")))
    place.start("r")
    place.event(folder, "started")
    until(lambda: "up" in (folder / "log").read_text())
    return folder, json.loads((folder / "started.json").read_text())


def fill(folder: Path) -> Path:
    """Not one byte is left, and nothing that could be given back."""
    (folder / "reserve").unlink()
    with open(folder / "supervisor.log", "a") as file:
        file.write("its block is there\n")
    ballast = folder.parent.parent / "ballast"
    with open(ballast, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return ballast


def waiting(folder: Path) -> str:
    return serve.News(RunFolder(str(folder)), {}).unwritten()


def test_the_ending_waits_for_a_disk_that_is_read_only(place, tmp_path):
    folder, facts = begin(place, tmp_path)
    supervisor = place.event(folder, "accepted")["pid"]
    with read_only(place.root):
        assert waiting(folder) == ""
        (tmp_path / "go").touch()
        until(lambda: not alive(facts["pid"]))
        until(lambda: waiting(folder) == f"the file system of {folder} is read-only")
        until(lambda: "heartbeat" in (folder / "supervisor.log").read_text())
        until(lambda: "exit status" in (folder / "supervisor.log").read_text())
        assert alive(supervisor) and alive(facts["launcher"])
        assert not (folder / "exit.json").exists()
    told = place.ended(folder)
    assert (told["ending"], told["exit"], told["outputs"]) == ("failed", 7, 0)
    assert waiting(folder) == ""
    assert "Traceback" not in (folder / "supervisor.log").read_text()


def test_a_disk_that_failed_and_was_mounted_again(place, tmp_path):
    """The kernel makes a disk with an error read-only, open files included. What is mounted later is another one to
    all who have files open: the lock of the supervisor counts no more, and the run still ends once."""
    image, healed = tmp_path / "disk", tmp_path / "healed"
    subprocess.run(["truncate", "--size", "16M", str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    place.root.mkdir()
    with mounted("-o", "loop,errors=remount-ro", str(image), str(place.root)):
        words = ["findmnt", "--noheadings", "--output", "SOURCE", str(place.root)]
        device = Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()).name
        trigger = Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
        if not trigger.exists():
            pytest.skip("this kernel cannot be told to find an error on a disk")
        folder, facts = begin(place, tmp_path)
        supervisor = place.event(folder, "accepted")["pid"]
        subprocess.run(["sync", "--file-system", str(folder)], check=True)
        trigger.write_text("1")
        (tmp_path / "go").touch()
        until(lambda: waiting(folder) == f"the file system of {folder} is read-only")
        shutil.copy(image, healed)
        subprocess.run(["e2fsck", "-fy", str(healed)], check=False, stdout=subprocess.DEVNULL)
    with mounted("-o", "loop", str(healed), str(place.root)):
        place.call("adopt", "r")
        told = place.ended(folder)
        assert (told["ending"], told["exit"]) == ("failed", 7)
        until(lambda: not alive(supervisor) and not alive(facts["launcher"]))
        assert [event["kind"] for event in place.events(folder)].count("finished") == 1


def test_a_disk_without_a_byte_takes_the_exit_code(small_disk, tmp_path):
    """The supervisor is gone, so that only the launcher knows how the run ended, and then nobody."""
    folder, facts = begin(small_disk, tmp_path)
    kill(small_disk.event(folder, "accepted")["pid"])
    ballast = fill(folder)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["launcher"]))
    assert not (folder / "exit.json").exists()
    ballast.unlink()
    small_disk.call("adopt", "r")
    told = small_disk.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)
    until(lambda: not (folder / "exit.slot").exists())
    assert json.loads((folder / "exit.json").read_text())["code"] == 7


def test_the_reserve_is_enough_for_the_list_of_outputs(small_disk, tmp_path):
    """Others fill the disk; what this run holds back is still there when it ends."""
    folder, _ = begin(small_disk, tmp_path)
    (folder / "work" / "outputs" / "model.bin").write_bytes(b"x" * 10)
    with open(small_disk.root / "ballast", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    (tmp_path / "go").touch()
    told = small_disk.ended(folder)
    assert (told["ending"], told["exit"], told["outputs"]) == ("failed", 7, 1)


def test_the_supervisor_waits_for_room(small_disk, tmp_path):
    """The launcher was killed: what the supervisor reads of the process is only in its memory."""
    folder, facts = begin(small_disk, tmp_path)
    kill(facts["launcher"])
    supervisor = small_disk.event(folder, "accepted")["pid"]
    (folder / "exit.slot").unlink()
    ballast = fill(folder)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["pid"]))
    until(lambda: waiting(folder) == f"the file system of {folder} is full")
    until(lambda: "exit status" in (folder / "supervisor.log").read_text())
    assert alive(supervisor)
    ballast.unlink()
    told = small_disk.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)


def test_a_home_that_goes_away_with_only_the_supervisor_left(place, tmp_path):
    """The launcher was killed before, and the exit code is in the supervisor's memory alone."""
    folder, facts = begin(place, tmp_path)
    kill(facts["launcher"])
    hidden = place.root.with_name("hidden")
    place.root.rename(hidden)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["pid"]))
    until(lambda: "start decision" in (hidden / "runs" / "r" / "supervisor.log").read_text())
    hidden.rename(place.root)
    told = place.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)


def test_a_deleted_run_folder_is_not_waited_for(place, tmp_path):
    folder, facts = begin(place, tmp_path)
    supervisor = place.event(folder, "accepted")["pid"]
    delete_run(folder)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["launcher"]) and not alive(supervisor))


def test_a_home_that_is_not_mounted_for_a_while(place, tmp_path):
    folder, facts = begin(place, tmp_path)
    hidden = place.root.with_name("hidden")
    place.root.rename(hidden)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["pid"]))
    until(lambda: "exit status" in (hidden / "runs" / "r" / "supervisor.log").read_text())
    hidden.rename(place.root)
    told = place.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)


def test_a_cancel_that_came_after_the_end_changes_nothing(place, tmp_path):
    """The process had ended by itself, and only the note of it came late."""
    place.env["MLW_FAILPOINT"] = "before-exit:sleep=3"
    folder, facts = begin(place, tmp_path)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["pid"]))
    place.call("cancel", "r", "somebody")
    place.event(folder, "stopping")
    told = place.ended(folder)
    assert (told["ending"], told["exit"]) == ("failed", 7)
