"""The conductor of a sweep as a real process. After any kill, each child starts and ends at most once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from mlworkbench.remote.shared.sweep_children import merge_spec, spec_difference
from tests.interpreters import oldest_and_newest

from .conftest import PYTHON, alive, end_marked, until
from .gpu_hosts import GpuHost

# A child that records its start and its end. Its first argument selects the behavior.
NOTES = """
import os, sys, time
place, word, name = {notes!r}, sys.argv[1], os.environ['MLW_RUN_ID']
def note(what):
    file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, ('%s %s\\n' % (what, name)).encode())
    os.close(file)
note('+')
if word == 'fail': note('-'); sys.exit(3)
if word == 'wait':
    while not os.path.exists(place + '.go'): time.sleep(0.01)
time.sleep(0.02)
note('-')
"""


class Sweep:
    """A sweep as the client submits it: a folder with the parent's spec, and a start message with the children."""

    def __init__(self, place, tmp_path, arguments, parallel=1, **more):
        self.place, self.notes = place, tmp_path / "notes"
        self.names = [f"c{number:03}" for number in range(len(arguments))]
        about = {"children": self.names, "parallel": parallel, "metric": None, "axes": {"word": ",".join(arguments)}}
        script = more.pop("script", NOTES.format(notes=str(self.notes)))
        self.folder = place.run("p", script, sweep={**about, **more.pop("about", {})}, name="all", **more)
        spec = json.loads((self.folder / "spec.json").read_text())
        self.children = [self._child(spec, *pair) for pair in zip(self.names, arguments, strict=True)]
        self.message = {"children": [spec_difference(spec, child) for child in self.children]}
        assert [merge_spec(spec, change) for change in self.message["children"]] == self.children

    def _child(self, spec, name, argument):
        environment = {**spec["environment"], "MLW_RUN_ID": name, "MLW_RUN_FOLDER": str(self.of(name))}
        commands = [{"step": "run", "argv": [PYTHON, "main.py", argument]}]
        fields = {"id": name, "parent": "p", "sweep": None, "name": f"word={argument}"}
        return {**spec, **fields, "commands": commands, "environment": environment}

    def of(self, name):
        return self.place.root / "runs" / name

    def start(self, **more):
        message = {**self.message, "secrets": more.pop("secrets", {})}
        return self.place.start("p", message=message, **more)

    def go(self):
        (self.notes.parent / "notes.go").touch()

    def noted(self):
        return [tuple(line.split()) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def endings(self):
        return [self.ending(name) for name in self.names]

    def ending(self, name):
        endings = [event["data"] for event in self.place.events(self.of(name)) if event["kind"] == "finished"]
        assert len(endings) == 1, (name, endings)
        return endings[0]["ending"]

    def must_be_sound(self):
        """Check that each child ran at most once and was recorded once, in its own journal and in the parent's log."""
        starts = [name for what, name in self.noted() if what == "+"]
        assert len(starts) == len(set(starts)), starts
        finished = [event for event in self.place.events(self.folder) if event["kind"] == "finished"]
        assert len(finished) == 1
        lines = [line.split() for line in (self.folder / "log").read_text().splitlines()]
        ended = [(fields[0], fields[-1]) for fields in lines if "/" in fields[0]]
        assert [first for first, _ in ended] == [f"{number + 1}/{len(self.names)}" for number in range(len(self.names))]
        assert sorted(name for _, name in ended) == self.names
        self.endings()
        return finished[0]["data"]

    def most_at_once(self):
        going = most = 0
        for what, _ in self.noted():
            going += 1 if what == "+" else -1
            most = max(most, going)
        return most

    def running(self, count):
        """Wait until this number of children have started, and return their names."""
        until(lambda: len([1 for what, _ in self.noted() if what == "+"]) >= count)
        return [name for what, name in self.noted() if what == "+"]

    def conductor(self):
        return self.place.event(self.folder, "accepted")["pid"]


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


def test_twenty_children_three_at_a_time(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait"] * 4 + ["x"] * 16, parallel=3)
    assert sweep.start()["claimed"]
    sweep.running(3)
    sweep.go()
    ending = place.ended(sweep.folder, 120)
    assert (ending["ending"], ending["cause"]) == ("succeeded", None)
    sweep.must_be_sound()
    assert sweep.most_at_once() == 3
    assert set(sweep.endings()) == {"succeeded"}
    begun = [name for what, name in sweep.noted() if what == "+"]
    assert sorted(begun[:3]) == sweep.names[:3]
    until(lambda: not alive(sweep.conductor()))


def test_some_fail_and_the_others_go_on(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["x", "fail", "x", "fail", "x"])
    sweep.start()
    ending = place.ended(sweep.folder)
    assert ending["ending"] == "failed"
    assert ending["cause"] == "2 of 5 children failed: word=fail (exit 3), word=fail (exit 3)"
    assert sweep.endings() == ["succeeded", "failed", "succeeded", "failed", "succeeded"]
    log = (sweep.folder / "log").read_text()
    assert "2/5 word=fail Failed (exit 3) c001\n" in log
    sweep.must_be_sound()


def test_starting_it_twice_is_starting_it_once(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait", "x"])
    assert sweep.start(nonce="one")["claimed"]
    assert not sweep.start(nonce="two")["claimed"]
    assert sweep.start(nonce="one")["claimed"]  # repeated, as if the first response had been lost
    sweep.go()
    place.ended(sweep.folder)
    sweep.must_be_sound()


def test_the_conductor_is_killed_and_the_next_child_that_ends_puts_a_new_one_to_work(place, tmp_path):
    """No client is involved, and the children of the new conductor still get the secrets."""
    script = NOTES.format(notes=str(tmp_path / "notes")) + "\nprint(os.environ['TOKEN'])\n"
    sweep = Sweep(place, tmp_path, ["x", "wait", "x"], script=script, secrets=["TOKEN"])
    sweep.start(secrets={"TOKEN": "hush"})
    sweep.running(2)
    kill(sweep.conductor())
    sweep.go()
    assert place.ended(sweep.folder)["ending"] == "succeeded"
    sweep.must_be_sound()
    assert [(sweep.of(name) / "log").read_text() for name in sweep.names] == ["hush\n"] * 3
    for path in sweep.place.root.rglob("*"):
        if path.is_file() and path.name != "log":
            assert b"hush" not in path.read_bytes(), path


def test_conductor_and_supervisors_are_killed_and_any_contact_goes_on(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait", "wait", "x", "x"], parallel=2)
    sweep.start()
    for pid in (sweep.conductor(), *(place.event(sweep.of(name), "accepted")["pid"] for name in sweep.running(2))):
        kill(pid)
    sweep.go()
    until(lambda: all((sweep.of(name) / "exit.json").exists() for name in sweep.names[:2]))
    assert place.call("adopt", "p")["state"] == "adopted"
    assert place.ended(sweep.folder)["ending"] == "succeeded"
    sweep.must_be_sound()


def test_a_killed_supervisor_is_replaced_by_the_conductor(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait", "x"])
    sweep.start()
    [name] = sweep.running(1)
    kill(place.event(sweep.of(name), "accepted")["pid"])
    sweep.go()
    assert place.ended(sweep.folder)["ending"] == "succeeded"
    sweep.must_be_sound()


@pytest.mark.parametrize(
    "stage",
    ["sweep-accepted", "sweep-started", "sweep-finishing", "claiming", "claimed", "placed", "launched", "finished"],
)
def test_killed_at_a_stage(place, tmp_path, stage):
    """The failpoint kills the first process that reaches it, a conductor or a supervisor."""
    sweep = Sweep(place, tmp_path, ["x", "x", "x"], parallel=2)
    sweep.start(env={"MLW_FAILPOINT": f"{stage}:kill"})

    def ended():
        place.call("start", "p", os.urandom(4).hex(), message={**sweep.message, "secrets": {}})
        place.call("adopt", "p")
        return [event for event in place.events(sweep.folder) if event["kind"] == "finished"]

    until(ended)
    until(lambda: sweep.must_be_sound())
    assert set(sweep.endings()) <= {"succeeded", "could not start"}


def test_lost_secrets(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait", "x", "x"], secrets=["TOKEN"])
    sweep.start(secrets={"TOKEN": "hush"})
    [name] = sweep.running(1)
    kill(sweep.conductor())
    kill(place.event(sweep.of(name), "accepted")["pid"])
    place.call("adopt", "p")
    sweep.go()
    ending = place.ended(sweep.folder)
    assert ending["ending"] == "failed"
    assert sweep.endings() == ["succeeded", "could not start", "could not start"]
    assert "secrets are lost" in place.ended(sweep.of("c002"))["cause"]
    assert len(sweep.noted()) == 2
    sweep.must_be_sound()


def test_cancel_ends_those_that_run_and_no_other_starts(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait"] * 6, parallel=2)
    sweep.start()
    sweep.running(2)
    place.call("cancel", "p", "ann")
    ending = place.ended(sweep.folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled by ann")
    assert sweep.endings() == ["cancelled"] * 6
    assert len(sweep.noted()) == 2
    assert place.ended(sweep.of("c005"))["cause"] == "canceled before it started"
    sweep.must_be_sound()


def test_cancel_without_a_conductor(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait"] * 3)
    sweep.start()
    [name] = sweep.running(1)
    kill(sweep.conductor())
    kill(place.event(sweep.of(name), "accepted")["pid"])
    place.call("cancel", "p")
    place.call("adopt", "p")
    assert place.ended(sweep.folder)["ending"] == "cancelled"
    assert sweep.endings() == ["cancelled"] * 3
    sweep.must_be_sound()


def test_cancelled_before_it_was_started(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["x"] * 3)
    place.call("cancel", "p", "ann")
    sweep.start()
    ending = place.ended(sweep.folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled before it started")
    assert sweep.endings() == ["cancelled"] * 3
    assert sweep.noted() == []
    sweep.must_be_sound()


def test_a_child_that_waits_is_cancelled_and_never_starts(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait", "x", "x"])
    sweep.start()
    sweep.running(1)
    place.call("cancel", "c001", "ann", message={"spec": sweep.children[1]})
    sweep.go()
    ending = place.ended(sweep.folder)
    assert (ending["ending"], ending["cause"]) == ("succeeded", "1 of 3 children was canceled")
    assert sweep.endings() == ["succeeded", "cancelled", "succeeded"]
    assert ("+", "c001") not in sweep.noted()
    sweep.must_be_sound()


@pytest.mark.parametrize("said", ["'x'", "sys.argv[1]"])
def test_common_cause_is_reported_once(place, tmp_path, said):
    script = f"import sys\nraise ValueError({said})"
    sweep = Sweep(place, tmp_path, ["a", "b"], script=script)
    sweep.start()
    cause = place.ended(sweep.folder)["cause"]
    assert cause.startswith("2 of 2 children failed: word=a (exit 1), word=b (exit 1)")
    assert ("; cause: ValueError: x" in cause) is (said == "'x'"), cause


def test_after_a_reboot_the_rest_goes_on(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["wait", "x", "x"])
    sweep.start()
    [name] = sweep.running(1)
    facts = json.loads((sweep.of(name) / "started.json").read_text())
    for pid in (sweep.conductor(), place.event(sweep.of(name), "accepted")["pid"], facts["launcher"], facts["pid"]):
        kill(pid)
    for folder in (sweep.folder, sweep.of(name)):
        for path in (folder / "claim" / "owner.json", folder / "gate.json"):
            path.write_text(re.sub(r'"boot_id": "[^"]*"', '"boot_id": "another"', path.read_text()))
    place.call("adopt", "p")
    ending = place.ended(sweep.folder)
    assert ending["ending"] == "failed"
    assert ending["cause"].startswith(
        "1 of 3 children failed: word=wait (target rebooted); cause: the machine was rebooted"
    )
    assert sweep.endings() == ["target rebooted", "succeeded", "succeeded"]
    sweep.must_be_sound()


def test_last_value_of_the_metric_is_reported(place, tmp_path):
    lines = [
        '{"n": "loss", "v": 0.75, "t": 5.0, "i": 1}\n',
        '{"n": "loss", "v": 0.5, "t": 6.0, "i": 2}\n',
        '{"n": "other", "v": 3, "t": 7.0, "i": 3}\n',
        '{"n": "loss", "v": [1], "t": 8.0, "i": 4}\n',
        '{"n": "loss", "v": 9, "t": 1.0, "i": 5}\n',
        '{"n": "loss", "v": 0.1, "t"',
    ]
    script = f"import os\nopen(os.environ['MLW_RUN_FOLDER'] + '/metrics/1-a', 'w').writelines({lines!r})"
    sweep = Sweep(place, tmp_path, ["x"], script=script, about={"metric": "loss"})
    sweep.start()
    place.ended(sweep.folder)
    assert (sweep.folder / "log").read_text().splitlines()[-1] == "1/1 word=x Completed loss=0.5 c000"


def test_an_environment_that_cannot_be_had_is_tried_once(place, tmp_path):
    """All children share the environment, so after the first failure no other child tries to build it."""
    lock = {"kind": "managed", "digest": "0" * 64, "prefix": "/nowhere"}
    sweep = Sweep(place, tmp_path, ["x"] * 4, lock=lock, prepare=False, compute={"name": "here"}, runconfig="local")
    sweep.start()
    ending = place.ended(sweep.folder)
    assert ending["cause"].startswith("4 of 4 children failed: word=x (environment failed)")
    assert sweep.endings() == ["environment failed"] * 4
    assert [(sweep.of(name) / "work").exists() for name in sweep.names] == [True, False, False, False]
    assert [event["kind"] for event in place.events(sweep.folder)] == ["accepted", "finished"]
    assert place.ended(sweep.of("c000"))["cause"] == place.ended(sweep.of("c003"))["cause"]
    sweep.must_be_sound()


def test_a_child_whose_folder_cannot_be_made_is_tried_again(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["x", "x"])
    sweep.of("c001").write_text("in the way")
    sweep.start()
    until(
        lambda: (
            "cannot start word=x: " in (sweep.folder / "log").read_text()
            if sweep.folder.joinpath("log").exists()
            else 0
        )
    )
    sweep.of("c001").unlink()
    assert place.ended(sweep.folder)["ending"] == "succeeded"
    sweep.must_be_sound()


@pytest.mark.parametrize("which", oldest_and_newest((3, 8)), ids=lambda item: ".".join(map(str, item[0])))
def test_on_old_and_new_pythons(place, tmp_path, which):
    place.python = which[1]
    sweep = Sweep(place, tmp_path, ["x", "wait", "fail", "x", "wait"], parallel=2, about={"metric": "loss"})
    sweep.start()
    sweep.running(2)
    kill(sweep.conductor())
    assert place.call("adopt", "p")["state"] in ("adopted", "supervised")  # a child may have adopted it
    place.call("cancel", "c004", "ann", message={"spec": sweep.children[4]})
    sweep.go()
    assert place.ended(sweep.folder)["cause"] == "1 of 5 children failed: word=fail (exit 3)"
    sweep.must_be_sound()
    for folder in (sweep.folder, *map(sweep.of, sweep.names)):
        assert (folder / "supervisor.log").read_text() == ""


def test_what_the_preparation_says_is_seen_where_the_sweep_is_followed(place, tmp_path):
    sweep = Sweep(place, tmp_path, ["x"])
    sweep.of("c000").mkdir()
    (sweep.of("c000") / "build.log").write_text("fetching this\n")
    sweep.start(env={"MLW_FAILPOINT": "placed:sleep=3"})
    until(lambda: (sweep.folder / "build.log").exists())
    assert "started" not in [event["kind"] for event in place.events(sweep.folder)]
    with (sweep.of("c000") / "build.log").open("a") as file:
        file.write("and that\n")
    place.event(sweep.folder, "started")
    assert (sweep.folder / "build.log").read_text() == "fetching this\nand that\n"
    assert place.ended(sweep.folder)["ending"] == "succeeded"


def test_full_disk_does_not_prevent_endings(place, tmp_path):
    """One child fills the disk and fails; the others continue as soon as there is space."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place.root)], check=True)
    script = (
        "import sys\nif sys.argv[1] == 'fill':\n    file = open('big', 'wb', buffering=0)\n"
        "    while True: file.write(b'x' * 4096)\n"
    )
    try:
        sweep = Sweep(place, tmp_path, ["x", "fill", "x"], script=script)
        sweep.start()
        assert "disk" in place.ended(sweep.of("c001"))["cause"]
        until(lambda: "cannot start word=x: the disk that holds" in (sweep.folder / "log").read_text())
        (sweep.of("c001") / "work" / "big").unlink()
        ending = place.ended(sweep.folder)
        assert ending["ending"] == "failed" and ending["cause"].endswith("c001 is full"), ending
        assert ending["cause"].startswith("1 of 3 children failed: word=fill (exit 1); cause: exit code 1")
        assert sweep.endings() == ["succeeded", "failed", "succeeded"]
    finally:
        end_marked(tmp_path)
        subprocess.run(["umount", "-l", str(place.root)], check=True)


@pytest.fixture
def host(tmp_path):
    yield GpuHost(tmp_path, 3)
    end_marked(tmp_path)


def test_as_many_at_a_time_as_the_gpus_are_enough_for(host, tmp_path):
    sweep = Sweep(host, tmp_path, ["wait"] * 3 + ["x"] * 5, parallel=None, gpus="1")
    sweep.start()
    sweep.running(3)
    assert not sweep.of("c003").exists()
    sweep.go()
    assert host.ended(sweep.folder, 120)["ending"] == "succeeded"
    assert sweep.most_at_once() <= 3
    assert host.order() == sorted(host.order())
    sweep.must_be_sound()
    assert list((host.root / "gpus" / "queue").iterdir()) == []


def test_children_wait_for_a_gpu_that_another_run_holds(host, tmp_path):
    door = tmp_path / "door"
    other = host.run(
        "other", f"import os, time\nwhile not os.path.exists({str(door)!r}): time.sleep(0.01)\n", gpus="all"
    )
    host.start("other")
    host.event(other, "started")
    sweep = Sweep(host, tmp_path, ["x", "x"], gpus="2")
    sweep.start()
    waits = until(lambda: [e for e in host.events(sweep.of("c000")) if e["kind"] == "queued"])
    assert "held by run other" in waits[0]["data"]["reason"]
    assert not sweep.of("c001").exists()
    door.touch()
    assert host.ended(sweep.folder, 120)["ending"] == "succeeded"
    sweep.must_be_sound()
