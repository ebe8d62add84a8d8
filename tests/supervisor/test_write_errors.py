"""A disk that refuses writes when a run ends: the exit code is kept and written as soon as possible."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mlworkbench.remote import run_reader
from mlworkbench.remote.shared.layout import RunFolder

from .conftest import alive, delete_run, until
from .test_death import kill

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")

# Exits with code 7 as soon as the test allows it, without writing anything.
WAITS = """
import os, sys, time
print('up')
while not os.path.exists({go!r}): time.sleep(0.01)
sys.exit(7)
"""


@contextmanager
def mounted(*arguments: str):
    subprocess.run(["mount", *arguments], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", arguments[-1]], check=True)


@contextmanager
def read_only(folder: Path):
    """Refuse writes to files opened by their path below the folder, as on a read-only disk."""
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
    """Fill the disk completely, including the reserved space. Return the file whose removal frees the space."""
    (folder / "reserve").unlink()
    with open(folder / "supervisor.log", "a") as file:
        file.write("its block is there\n")
    ballast = folder.parent.parent / "ballast"
    with open(ballast, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return ballast


def waiting(folder: Path) -> str:
    return run_reader.RunUpdates(RunFolder(str(folder)), {}).unwritten_reason()


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
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"], ending["outputs"]) == ("failed", 7, 0)
    assert waiting(folder) == ""
    assert "Traceback" not in (folder / "supervisor.log").read_text()


def test_a_disk_that_failed_and_was_mounted_again(place, tmp_path):
    """After a disk error, the kernel makes the file system read-only, including open files. The disk is then mounted
    again. The lock of the old supervisor has no effect on the new mount, and the run still ends only once.
    """
    image, healed = tmp_path / "disk", tmp_path / "healed"
    subprocess.run(["truncate", "--size", "16M", str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    place.root.mkdir()
    with mounted("-o", "loop,errors=remount-ro", str(image), str(place.root)):
        command = ["findmnt", "--noheadings", "--output", "SOURCE", str(place.root)]
        device = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()).name
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
        ending = place.ended(folder)
        assert (ending["ending"], ending["exit"]) == ("failed", 7)
        until(lambda: not alive(supervisor) and not alive(facts["launcher"]))
        assert [event["kind"] for event in place.events(folder)].count("finished") == 1


def test_a_disk_without_a_byte_takes_the_exit_code(small_disk, tmp_path):
    """The supervisor was killed. The launcher writes the exit code to the reserved slot and exits."""
    folder, facts = begin(small_disk, tmp_path)
    kill(small_disk.event(folder, "accepted")["pid"])
    ballast = fill(folder)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["launcher"]))
    assert not (folder / "exit.json").exists()
    ballast.unlink()
    small_disk.call("adopt", "r")
    ending = small_disk.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
    until(lambda: not (folder / "exit.slot").exists())
    assert json.loads((folder / "exit.json").read_text())["code"] == 7


def test_the_reserve_is_enough_for_the_list_of_outputs(small_disk, tmp_path):
    """Other programs fill the disk. The reserved space is enough to record the end of the run."""
    folder, _ = begin(small_disk, tmp_path)
    (folder / "work" / "outputs" / "model.bin").write_bytes(b"x" * 10)
    with open(small_disk.root / "ballast", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    (tmp_path / "go").touch()
    ending = small_disk.ended(folder)
    assert (ending["ending"], ending["exit"], ending["outputs"]) == ("failed", 7, 1)


def test_the_supervisor_waits_for_room(small_disk, tmp_path):
    """The launcher was killed and the slot removed, so only the supervisor has the exit code, in memory."""
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
    ending = small_disk.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)


def test_a_home_that_goes_away_with_only_the_supervisor_left(place, tmp_path):
    """The launcher was killed, so only the supervisor has the exit code, in memory, until the folder is back."""
    folder, facts = begin(place, tmp_path)
    kill(facts["launcher"])
    hidden = place.root.with_name("hidden")
    place.root.rename(hidden)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["pid"]))
    until(lambda: "start decision" in (hidden / "runs" / "r" / "supervisor.log").read_text())
    hidden.rename(place.root)
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)


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
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)


def test_a_cancel_that_came_after_the_end_changes_nothing(place, tmp_path):
    """The script exits by itself before the cancel, but its exit status is recorded after the cancel."""
    place.env["MLW_FAILPOINT"] = "before-exit:sleep=3"
    folder, facts = begin(place, tmp_path)
    (tmp_path / "go").touch()
    until(lambda: not alive(facts["pid"]))
    place.call("cancel", "r", "somebody")
    place.event(folder, "stopping")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("failed", 7)
