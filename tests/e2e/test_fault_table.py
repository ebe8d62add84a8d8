"""Check that the fault table is complete, and test the faults that no other module covers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import end_processes, need
from tests.e2e import kill_harness
from tests.e2e.fault_table import ROWS
from tests.e2e.remote_target import RemoteTarget, content, second_laptop, ticks
from tests.machines.laptop import Laptop
from tests.machines.network import read, wait_until

ROOT = Path(__file__).parents[2]
THIS_MODULE = "tests/e2e/test_fault_table.py"

# -- table -----------------------------------------------------------------------------------------------


def test_table_has_forty_faults_and_every_listed_test_exists():
    assert [row.number for row in ROWS] == list(range(1, 41))
    assert len({row.fault for row in ROWS}) == 40
    defined = {
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = {proof for row in ROWS for proof in row.proofs}
    assert {proof.partition("[")[0] for proof in named} - defined == set()
    cases = {proof.rpartition("[")[2].rstrip("]") for proof in named if proof.startswith(f"{THIS_MODULE}::test_fault[")}
    assert cases == set(FAULTS), "every case is in the table, and the table names no other"
    long = [row.number for row in ROWS if row.soak]
    assert long and re.search(r"^soak:", (ROOT / "Makefile").read_text(), re.MULTILINE)


# -- shared machine --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory, module_machine):
    """A laptop whose data folder is on a small separate disk, and an attached machine."""
    place = tmp_path_factory.mktemp("laptop")
    laptop = Laptop(place)
    laptop.store.mkdir(mode=0o700)
    host = module_machine(sshd="PermitUserEnvironment yes")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(laptop.store)], check=True)
    try:
        yield RemoteTarget(laptop, host)
    finally:
        end_processes(place)
        subprocess.run(["umount", "--lazy", str(laptop.store)], check=True)
        shutil.rmtree(laptop.runtime, ignore_errors=True)


@pytest.fixture
def remote(shared):
    yield shared
    (shared.host.home / ".ssh" / "environment").unlink(missing_ok=True)
    shared.release()  # end scripts that a failed test left running


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """Build a library that adds an offset from a file to the time of day, so that a process's clock can jump."""
    place = tmp_path_factory.mktemp("clock")
    (place / "clock.c").write_text(CLOCK)
    subprocess.run([need("cc"), "-shared", "-fPIC", "-o", place / "clock.so", place / "clock.c", "-ldl"], check=True)
    return place / "clock.so"


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static volatile long *offset;
int clock_gettime(clockid_t clock, struct timespec *time) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    if (!offset && getenv("CLOCK_OFFSET")) {
        int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
        offset = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        close(file);
    }
    int code = real(clock, time);
    if (clock == CLOCK_REALTIME && offset) time->tv_sec += *offset;
    return code;
}
"""


class Case:
    """A run that is active during the fault."""

    def __init__(self, remote, name, request):
        self.remote, self.name, self.request = remote, name, request
        self.host, self.laptop = remote.host, remote.laptop
        self.follower = None
        self.run = ""

    def submit(self):
        (self.remote.home / "go").unlink(missing_ok=True)
        self.run = self.remote.detach("--timeout", "1h", "work.py", self.name, "--ticks")
        self.remote.await_ticks(self.run)
        journal = self.remote.target_folder(self.run) / "events.jsonl"
        wait_until(lambda: '"started"' in read(journal), "the event that it has started")

    def follow(self):
        """Start ``mlw logs -f`` and wait until it has fetched some output."""
        self.follower = self.remote.start("logs", "-f", self.run)
        wait_until(lambda: b"tick 3\n" in content(self.laptop.folder(self.run) / "log"), "the log here")

    def await_more(self):
        remote_log = self.remote.target_folder(self.run) / "log"
        mark = len(content(remote_log))
        wait_until(lambda: len(content(remote_log)) > mark, "more of the log")

    def assert_running(self):
        """Check that ``mlw ps`` shows the run as running. Return the state of the contact."""
        [shown] = [row for row in self.remote.ps() if row["run_id"] == self.run]
        assert shown["status"] == "Running", shown
        return shown["contact"]

    def assert_complete(self):
        self.remote.release()
        if self.follower is not None:
            out, err = self.follower.communicate(timeout=90)
            assert self.follower.returncode == 0, err
            numbers = ticks(out)
            assert numbers == list(range(len(numbers))) and out == content(self.remote.target_folder(self.run) / "log")
        done = self.remote.mlw("logs", "-f", self.run)
        assert done.code == 0, done
        return self.remote.assert_complete(self.run, self.name)

    def assert_canceled(self):
        record = self.laptop.info(self.run)
        assert (record["status"], record["ending"]) == ("Canceled", "cancelled"), record
        assert (self.remote.count("start", self.name), self.remote.count("end", self.name)) == (1, 0)

    def masters(self):
        """Return the laptop's ssh processes that hold a connection."""
        pids = kill_harness.processes_using(self.laptop.runtime)
        return [pid for pid in pids if "\0-M\0" in read(Path(f"/proc/{pid}/cmdline"))]


# -- clocks ----------------------------------------------------------------------------------------------


def target_clock_jumps(case, seconds):
    """Durations and the time limit of an hour do not depend on the time of day."""
    offset = case.host.home / "offset"
    offset.write_bytes(struct.pack("l", 0))
    shutil.copy(case.request.getfixturevalue("clock"), case.host.home / "clock.so")
    environment = case.host.home / ".ssh" / "environment"
    environment.write_text(f"LD_PRELOAD={case.host.home}/clock.so\nCLOCK_OFFSET={offset}\n")
    case.submit()
    with offset.open("r+b") as file:
        file.write(struct.pack("l", seconds))
    case.await_more()
    assert case.assert_running() == "in contact"
    record = case.assert_complete()
    assert record["duration"].startswith("0:"), record


def laptop_clock_jumps(case, seconds):
    """Commands under a wrong clock leave correct records once the clock is right again."""
    offset = case.laptop.home / "offset"
    offset.write_bytes(struct.pack("l", seconds))
    env = {"LD_PRELOAD": str(case.request.getfixturevalue("clock")), "CLOCK_OFFSET": str(offset)}
    case.submit()
    for arguments in (("ps",), ("status", case.run), ("logs", case.run)):
        done = case.remote.mlw(*arguments, env=env)
        assert done.code == 0 and "Traceback" not in done.err and "-1 day" not in done.out, done
    later = case.remote.submit("work.py", "later", env=env)
    assert later.code == 0, later
    record, after = case.assert_complete(), case.laptop.info(later.run)
    assert after["run_number"] == record["run_number"] + 1
    for run in (record, after):
        assert run["duration"].startswith("0:"), run


# -- the laptop ------------------------------------------------------------------------------------------


def laptop_reboots(case):
    """A reboot ends all processes and connections and removes the runtime folder; only files remain."""
    case.submit()
    case.follow()
    case.follower.kill()
    case.follower.communicate()
    case.follower = None
    end_processes(case.laptop.store)
    shutil.rmtree(case.laptop.runtime)
    case.laptop.runtime.mkdir(mode=0o700)
    assert case.assert_running() == "in contact"
    case.assert_complete()


def laptop_sleeps(case):
    """The laptop's processes are stopped while the run ends and the connection is lost; then they resume normally."""
    case.submit()
    case.follow()
    asleep = [case.follower.pid, *case.masters()]
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    case.remote.release()
    case.remote.await_end(case.run)
    case.host.reset_connections()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    case.assert_complete()


def laptop_disk_full(case):
    """The log and outputs do not fit: a message reports it, the run is not affected, and the fetch completes later."""
    case.submit()
    case.follow()
    with full(case.laptop.store):
        case.remote.release()
        case.remote.await_end(case.run)
        _, err = case.follower.communicate(timeout=90)
        code, case.follower = case.follower.returncode, None
        assert code != 0 and b"Traceback" not in err, err
        assert b"has only 0 B" in err or b"No space" in err, err
        listed = case.remote.mlw("ps", "-o", "json")
        assert listed.code == 0 and "Traceback" not in listed.err, listed
        assert case.run in listed.err and "has only 0 B available" in listed.err, (
            "the list says of which run it has no news, and why"
        )
    case.assert_complete()


@contextmanager
def full(folder):
    """Fill the disk of the folder while the block runs."""
    filler = folder / "filler"
    disk = os.statvfs(folder)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize)
    try:
        yield
    finally:
        filler.unlink()


def laptop_copy_removed(case):
    """The local run folder is deleted: the machine still has everything, and other runs are not affected."""
    case.submit()
    assert case.assert_running() == "in contact"
    shutil.rmtree(case.laptop.folder(case.run))
    other = case.remote.detach("work.py", "beside", "--ticks")
    case.remote.await_ticks(other)
    assert {row["run_id"]: row["status"] for row in case.remote.ps()} == {case.run: "Running", other: "Running"}
    case.assert_complete()
    journals = [
        read(place / "events.jsonl") for place in (case.laptop.folder(case.run), case.remote.target_folder(case.run))
    ]
    assert journals[0] == journals[1]
    assert case.remote.mlw("logs", "-f", other).code == 0


# -- two laptops -----------------------------------------------------------------------------------------


def two_laptops_cancel(case):
    """Two laptops cancel the same run at the same moment: it ends once, and both get the same result."""
    case.submit()
    with second_laptop(case.laptop.home / "second") as other:
        project = other.home / "far"
        shutil.copytree(case.remote.project, project)
        for name in ("box.compute", "box.runconfig"):
            (project / "aml_config" / name).unlink()
        second = RemoteTarget(other, case.host, name="same", project=project)
        assert second.mlw("history", "fetch", "-t", "same").code == 0
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(target.mlw, "cancel", case.run) for target in (case.remote, second)]
            done = [job.result() for job in jobs]
        assert [target.code for target in done] == [0, 0], done
        assert other.info(case.run)["status"] == "Canceled"
        assert read(case.remote.target_folder(case.run) / "events.jsonl").count('"finished"') == 1
        end_processes(other.store)
    case.assert_canceled()


# -- processes and files on the target -------------------------------------------------------------------


def supervisor_stopped(case):
    case.submit()
    pid = json.loads(read(case.remote.target_folder(case.run) / "claim/owner.json"))["pid"]
    case.host.run("kill", "-STOP", str(pid))
    assert case.assert_running() == "in contact"
    done = case.remote.mlw("cancel", case.run, timeout=50)
    assert done.code == 0, done
    case.assert_canceled()


def programs_deleted(case):
    """``~/.mlw/lib`` is deleted: the run continues, and the next command uploads the programs again."""
    case.submit()
    end_processes(case.laptop.runtime)
    case.host.run("rm", "-rf", f"{case.host.home}/.mlw/lib")
    assert case.assert_running() == "in contact"
    case.assert_complete()


def log_truncated(case):
    """The log on the target is truncated: fetched lines stay, the ending is correct, and a warning is printed."""
    case.submit()
    case.follow()
    wait_until(lambda: b"tick 120\n" in content(case.laptop.folder(case.run) / "log"), "more than what comes later")
    before = content(case.laptop.folder(case.run) / "log")
    os.truncate(case.remote.target_folder(case.run) / "log", 0)
    case.remote.release()
    case.remote.await_end(case.run)
    out, err = case.follower.communicate(timeout=90)
    assert case.follower.returncode == 0 and b"Traceback" not in err, err
    assert b"warning: the log on box was truncated" in err, err
    assert out.startswith(before), "nothing that was shown is taken back"
    record = case.laptop.info(case.run)
    assert (record["status"], record["ending"]) == ("Completed", "succeeded"), record
    assert content(case.laptop.folder(case.run) / "log").startswith(before)


def journal_damaged(case):
    """Invalid bytes and half a line are appended to the event journal: the run continues and completes."""
    case.submit()
    with open(case.remote.target_folder(case.run) / "events.jsonl", "ab") as file:
        file.write(b'\x00\xff{"w": "sup", "seq": 99, "ki')
    assert case.assert_running() == "in contact"
    case.assert_complete()


# -- keys ------------------------------------------------------------------------------------------------


def key_revoked(case):
    """The machine temporarily rejects the laptop's key: the run stays active and completes."""
    case.submit()
    assert case.assert_running() == "in contact"
    keys = case.host.home / ".ssh" / "authorized_keys"
    keys.rename(keys.with_name("revoked"))
    end_processes(case.laptop.runtime)
    contact = case.assert_running()
    assert contact.startswith("no contact since") and "was refused" in contact, contact
    keys.with_name("revoked").rename(keys)
    case.assert_complete()


def host_key_changed(case):
    """The machine cannot be verified: the run keeps its state until the user accepts the new key."""
    case.submit()
    assert case.assert_running() == "in contact"
    end_processes(case.laptop.runtime)
    case.host.change_host_key()
    contact = case.assert_running()
    assert contact.startswith("no contact since") and "key" in contact, contact
    accepted = ("computetarget", "reset-key", "box", "--host-key", case.host.host_key_fingerprint)
    assert case.remote.mlw(*accepted).code == 0
    case.assert_complete()


FAULTS = {
    "target clock jumps ahead": lambda case: target_clock_jumps(case, 86400),
    "target clock jumps back": lambda case: target_clock_jumps(case, -86400),
    "laptop clock ahead": lambda case: laptop_clock_jumps(case, 86400),
    "laptop clock back": lambda case: laptop_clock_jumps(case, -86400),
    "laptop reboots": laptop_reboots,
    "laptop sleeps": laptop_sleeps,
    "laptop disk full": laptop_disk_full,
    "laptop copy removed": laptop_copy_removed,
    "two laptops cancel": two_laptops_cancel,
    "supervisor stopped": supervisor_stopped,
    "programs deleted": programs_deleted,
    "log truncated": log_truncated,
    "journal damaged": journal_damaged,
    "key revoked": key_revoked,
    "host key changed": host_key_changed,
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(remote, name, request):
    FAULTS[name](Case(remote, name.replace(" ", "-"), request))


def test_jump_host_restart(laptop, machine):
    """The run is not affected, and the follower continues."""
    gateway = machine()
    host = machine(jump=gateway)
    laptop.trust_host_keys(gateway)
    laptop.ssh_config(f"Host {gateway.address}\n  IdentityFile {gateway.key}\n")
    remote = RemoteTarget(laptop, host, attach=("--jump", f"{gateway.user}@{gateway.address}"))
    run = remote.detach("work.py", "k", "--ticks")
    remote.await_ticks(run)
    follower = remote.start("logs", "-f", run)
    wait_until(lambda: b"tick 3\n" in content(laptop.folder(run) / "log"), "the log here")
    gateway.stop_sshd(sessions=True)
    [shown] = remote.ps()
    assert shown["status"] == "Running" and shown["contact"].startswith("no contact since"), shown
    gateway.start_sshd()
    remote.release()
    out, err = follower.communicate(timeout=90)
    assert follower.returncode == 0, err
    assert out == content(remote.target_folder(run) / "log")
    remote.assert_complete(run, "k")
