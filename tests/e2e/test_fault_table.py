"""The faults of the table that no other test proves, on one attached machine; and that the table is complete."""

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
from tests.e2e import killing
from tests.e2e.elsewhere import Away, content, second_laptop, ticks
from tests.e2e.fault_table import ROWS
from tests.machines.laptop import Laptop
from tests.machines.network import read, wait_until

ROOT = Path(__file__).parents[2]
HERE = "tests/e2e/test_fault_table.py"

# -- the table -------------------------------------------------------------------------------------------


def test_the_table_has_forty_faults_and_every_proof_exists():
    assert [row.number for row in ROWS] == list(range(1, 41))
    assert len({row.fault for row in ROWS}) == 40
    defined = {
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = {proof for row in ROWS for proof in row.proofs}
    assert {proof.partition("[")[0] for proof in named} - defined == set()
    cases = {proof.rpartition("[")[2].rstrip("]") for proof in named if proof.startswith(f"{HERE}::test_a_fault[")}
    assert cases == set(FAULTS), "every case is in the table, and the table names no other"
    long = [row.number for row in ROWS if row.soak]
    assert long and re.search(r"^soak:", (ROOT / "Makefile").read_text(), re.MULTILINE)


# -- one machine for all ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory, module_machine):
    """A laptop whose data folder is a small disk of its own, and a machine that it is attached to."""
    place = tmp_path_factory.mktemp("laptop")
    laptop = Laptop(place)
    laptop.store.mkdir(mode=0o700)
    host = module_machine(sshd="PermitUserEnvironment yes")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(laptop.store)], check=True)
    try:
        yield Away(laptop, host)
    finally:
        end_processes(place)
        subprocess.run(["umount", "--lazy", str(laptop.store)], check=True)
        shutil.rmtree(laptop.runtime, ignore_errors=True)


@pytest.fixture
def away(shared):
    yield shared
    (shared.host.home / ".ssh" / "environment").unlink(missing_ok=True)
    shared.let_go()  # whatever a failed test has left comes to its end


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """A library that adds the seconds in a file to the time of day, so that a clock can jump while a process runs."""
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
    """A run that goes on while the fault happens."""

    def __init__(self, away, name, request):
        self.away, self.name, self.request = away, name, request
        self.host, self.laptop = away.host, away.laptop
        self.follower = None
        self.run = ""

    def submit(self):
        (self.away.home / "go").unlink(missing_ok=True)
        self.run = self.away.detach("--timeout", "1h", "work.py", self.name, "--ticks")
        self.away.await_ticks(self.run)
        journal = self.away.there(self.run) / "events.jsonl"
        wait_until(lambda: '"started"' in read(journal), "the event that it has started")

    def follow(self):
        """``mlw logs -f``, which has shown something."""
        self.follower = self.away.start("logs", "-f", self.run)
        wait_until(lambda: b"tick 3\n" in content(self.laptop.folder(self.run) / "log"), "the log here")

    def await_more(self):
        there = self.away.there(self.run) / "log"
        mark = len(content(there))
        wait_until(lambda: len(content(there)) > mark, "more of the log")

    def must_be_running(self):
        """What every list says meanwhile: it runs, and this is what is known of the contact."""
        [shown] = [one for one in self.away.ps() if one["run_id"] == self.run]
        assert shown["status"] == "Running", shown
        return shown["contact"]

    def must_be_whole(self):
        self.away.let_go()
        if self.follower is not None:
            out, err = self.follower.communicate(timeout=90)
            assert self.follower.returncode == 0, err
            numbers = ticks(out)
            assert numbers == list(range(len(numbers))) and out == content(self.away.there(self.run) / "log")
        done = self.away.mlw("logs", "-f", self.run)
        assert done.code == 0, done
        return self.away.must_be_whole(self.run, self.name)

    def must_be_cancelled(self):
        record = self.laptop.info(self.run)
        assert (record["status"], record["ending"]) == ("Canceled", "cancelled"), record
        assert (self.away.count("start", self.name), self.away.count("end", self.name)) == (1, 0)

    def masters(self):
        """The laptop's ssh processes that hold a connection."""
        pids = killing.marked(self.laptop.runtime)
        return [pid for pid in pids if b"\0-M\0" in (Path("/proc") / str(pid) / "cmdline").read_bytes()]


# -- clocks ----------------------------------------------------------------------------------------------


def target_clock_jumps(case, seconds):
    """Durations and the time limit of an hour do not go by the time of day."""
    offset = case.host.home / "offset"
    offset.write_bytes(struct.pack("l", 0))
    shutil.copy(case.request.getfixturevalue("clock"), case.host.home / "clock.so")
    environment = case.host.home / ".ssh" / "environment"
    environment.write_text(f"LD_PRELOAD={case.host.home}/clock.so\nCLOCK_OFFSET={offset}\n")
    case.submit()
    with offset.open("r+b") as file:
        file.write(struct.pack("l", seconds))
    case.await_more()
    assert case.must_be_running() == "in contact"
    record = case.must_be_whole()
    assert record["duration"].startswith("0:"), record


def laptop_clock_jumps(case, seconds):
    """What a laptop with a wrong clock looked at is right when the clock is right again."""
    offset = case.laptop.home / "offset"
    offset.write_bytes(struct.pack("l", seconds))
    env = {"LD_PRELOAD": str(case.request.getfixturevalue("clock")), "CLOCK_OFFSET": str(offset)}
    case.submit()
    for words in (("ps",), ("status", case.run), ("logs", case.run)):
        done = case.away.mlw(*words, env=env)
        assert done.code == 0 and "Traceback" not in done.err and "-1 day" not in done.out, done
    later = case.away.submit("work.py", "later", env=env)
    assert later.code == 0, later
    record, after = case.must_be_whole(), case.laptop.info(later.run)
    assert after["run_number"] == record["run_number"] + 1
    for one in (record, after):
        assert one["duration"].startswith("0:"), one


# -- the laptop ------------------------------------------------------------------------------------------


def laptop_reboots(case):
    """Only files are left: no process, no connection, no runtime folder."""
    case.submit()
    case.follow()
    case.follower.kill()
    case.follower.communicate()
    case.follower = None
    end_processes(case.laptop.store)
    shutil.rmtree(case.laptop.runtime)
    case.laptop.runtime.mkdir(mode=0o700)
    assert case.must_be_running() == "in contact"
    case.must_be_whole()


def laptop_sleeps(case):
    """Everything there stands still while the run ends and the connection is lost; it goes on where it was."""
    case.submit()
    case.follow()
    asleep = [case.follower.pid, *case.masters()]
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    case.away.let_go()
    case.away.await_end(case.run)
    case.host.reset_connections()
    for pid in asleep:
        os.kill(pid, signal.SIGCONT)
    case.must_be_whole()


def laptop_disk_full(case):
    """The log and the outputs do not fit: that is said, the run does not care, and all comes later."""
    case.submit()
    case.follow()
    with full(case.laptop.store):
        case.away.let_go()
        case.away.await_end(case.run)
        _, err = case.follower.communicate(timeout=90)
        code, case.follower = case.follower.returncode, None
        assert code != 0 and b"Traceback" not in err, err
        assert b"has only 0 B" in err or b"No space" in err, err
        listed = case.away.mlw("ps", "-o", "json")
        assert listed.code == 0 and "Traceback" not in listed.err, listed
        assert case.run in listed.err and "has only 0 B available" in listed.err, (
            "the list says of which run it has no news, and why"
        )
    case.must_be_whole()


@contextmanager
def full(folder):
    """Its disk has no room for now."""
    filler = folder / "filler"
    disk = os.statvfs(folder)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize)
    try:
        yield
    finally:
        filler.unlink()


def laptop_copy_removed(case):
    """Somebody deletes the run's folder at home: the machine still has all of it, and other runs are not affected."""
    case.submit()
    assert case.must_be_running() == "in contact"
    shutil.rmtree(case.laptop.folder(case.run))
    other = case.away.detach("work.py", "beside", "--ticks")
    case.away.await_ticks(other)
    assert {one["run_id"]: one["status"] for one in case.away.ps()} == {case.run: "Running", other: "Running"}
    case.must_be_whole()
    journals = [read(place / "events.jsonl") for place in (case.laptop.folder(case.run), case.away.there(case.run))]
    assert journals[0] == journals[1]
    assert case.away.mlw("logs", "-f", other).code == 0


# -- two laptops -----------------------------------------------------------------------------------------


def two_laptops_cancel(case):
    """The same run, from both at the same moment: it is ended once, and both are told the same."""
    case.submit()
    with second_laptop(case.laptop.home / "second") as other:
        project = other.home / "far"
        shutil.copytree(case.away.project, project)
        for name in ("box.compute", "box.runconfig"):
            (project / "aml_config" / name).unlink()
        second = Away(other, case.host, name="same", project=project)
        assert second.mlw("history", "fetch", "-t", "same").code == 0
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(one.mlw, "cancel", case.run) for one in (case.away, second)]
            done = [job.result() for job in jobs]
        assert [one.code for one in done] == [0, 0], done
        assert other.info(case.run)["status"] == "Canceled"
        assert read(case.away.there(case.run) / "events.jsonl").count('"finished"') == 1
        end_processes(other.store)
    case.must_be_cancelled()


# -- processes and files on the target -------------------------------------------------------------------


def supervisor_stopped(case):
    case.submit()
    pid = json.loads(read(case.away.there(case.run) / "claim/owner.json"))["pid"]
    case.host.run("kill", "-STOP", str(pid))
    assert case.must_be_running() == "in contact"
    done = case.away.mlw("cancel", case.run, timeout=50)
    assert done.code == 0, done
    case.must_be_cancelled()


def programs_deleted(case):
    """``~/.mlw/lib`` is gone: the run goes on, and the next command brings the programs again."""
    case.submit()
    end_processes(case.laptop.runtime)
    case.host.run("rm", "-rf", f"{case.host.home}/.mlw/lib")
    assert case.must_be_running() == "in contact"
    case.must_be_whole()


def log_truncated(case):
    """What has come home stays, the ending is the script's, and a warning says that lines may be missing."""
    case.submit()
    case.follow()
    wait_until(lambda: b"tick 120\n" in content(case.laptop.folder(case.run) / "log"), "more than what comes later")
    before = content(case.laptop.folder(case.run) / "log")
    os.truncate(case.away.there(case.run) / "log", 0)
    case.away.let_go()
    case.away.await_end(case.run)
    out, err = case.follower.communicate(timeout=90)
    assert case.follower.returncode == 0 and b"Traceback" not in err, err
    assert b"warning: the log on box was truncated" in err, err
    assert out.startswith(before), "nothing that was shown is taken back"
    record = case.laptop.info(case.run)
    assert (record["status"], record["ending"]) == ("Completed", "succeeded"), record
    assert content(case.laptop.folder(case.run) / "log").startswith(before)


def journal_damaged(case):
    """Half a line and bytes that mean nothing, at the end of the event journal."""
    case.submit()
    with open(case.away.there(case.run) / "events.jsonl", "ab") as file:
        file.write(b'\x00\xff{"w": "sup", "seq": 99, "ki')
    assert case.must_be_running() == "in contact"
    case.must_be_whole()


# -- keys ------------------------------------------------------------------------------------------------


def key_revoked(case):
    """The account does not let the laptop in for a while."""
    case.submit()
    assert case.must_be_running() == "in contact"
    keys = case.host.home / ".ssh" / "authorized_keys"
    keys.rename(keys.with_name("revoked"))
    end_processes(case.laptop.runtime)
    contact = case.must_be_running()
    assert contact.startswith("no contact since") and "was refused" in contact, contact
    keys.with_name("revoked").rename(keys)
    case.must_be_whole()


def host_key_changed(case):
    """Not this machine, for all that is known: the run stays as it was until the user accepts the key."""
    case.submit()
    assert case.must_be_running() == "in contact"
    end_processes(case.laptop.runtime)
    case.host.change_host_key()
    contact = case.must_be_running()
    assert contact.startswith("no contact since") and "key" in contact, contact
    accepted = ("computetarget", "reset-key", "box", "--host-key", case.host.host_key_fingerprint)
    assert case.away.mlw(*accepted).code == 0
    case.must_be_whole()


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
def test_a_fault(away, name, request):
    FAULTS[name](Case(away, name.replace(" ", "-"), request))


def test_a_jump_host_that_restarts(laptop, machine):
    """The run behind it does not notice, and the follower goes on."""
    gateway = machine()
    host = machine(jump=gateway)
    laptop.knows(gateway)
    laptop.ssh_config(f"Host {gateway.address}\n  IdentityFile {gateway.key}\n")
    away = Away(laptop, host, attach=("--jump", f"{gateway.user}@{gateway.address}"))
    run = away.detach("work.py", "k", "--ticks")
    away.await_ticks(run)
    follower = away.start("logs", "-f", run)
    wait_until(lambda: b"tick 3\n" in content(laptop.folder(run) / "log"), "the log here")
    gateway.stop_sshd(sessions=True)
    [shown] = away.ps()
    assert shown["status"] == "Running" and shown["contact"].startswith("no contact since"), shown
    gateway.start_sshd()
    away.let_go()
    out, err = follower.communicate(timeout=90)
    assert follower.returncode == 0, err
    assert out == content(away.there(run) / "log")
    away.must_be_whole(run, "k")
