"""Starters: the built-in one, and a plugin whose scheduler is a folder of scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlworkbench.hosts.local_host import LocalHost
from mlworkbench.remote.shared.layout import Root

from .conftest import PYTHON, REMOTE, Place, until

# A starter as plugin authors write it: it uses only the standard library, not mlworkbench.
SCHEDULER = '''
"""Jobs are scripts in a folder; whoever runs "script ID" starts one."""
import json, os, shlex, subprocess

FOLDER = %r

def start(run, spec, secrets, supervision):
    name = "job-%%d" %% len(os.listdir(FOLDER))
    if os.path.exists(FOLDER + "/../broken"):
        raise RuntimeError("no partition of that name")
    os.mkdir(os.path.join(FOLDER, name))
    with open(os.path.join(FOLDER, name, "message"), "wb") as file:
        file.write(supervision.message)
    with open(os.path.join(FOLDER, name, "script"), "w") as file:
        file.write("exec " + " ".join(map(shlex.quote, supervision.command)))
    if not os.path.exists(FOLDER + "/../busy"):
        run_job(name)
    return {"job": name}

def run_job(name):
    with open(os.path.join(FOLDER, name, "message"), "rb") as message:
        words = ["sh", os.path.join(FOLDER, name, "script")]
        subprocess.Popen(words, stdin=message, stdout=subprocess.DEVNULL, start_new_session=True)
    open(os.path.join(FOLDER, name, "begun"), "w").close()

def status(handles):
    with open(FOLDER + "/../asked", "a") as file:
        file.write(json.dumps(sorted(handles)) + "\\n")
    found = {}
    for run, handle in handles.items():
        job = os.path.join(FOLDER, handle["job"])
        if os.path.exists(job + "/cancelled") or os.path.exists(handle["folder"] + "/exit.json"):
            found[run] = {"state": "ended", "reason": "removed by the administrator"}
        elif os.path.exists(job + "/begun"):
            found[run] = {"state": "running"}
        else:
            found[run] = {"state": "queued", "position": 1}
    return found

def cancel(handle, grace):
    with open(os.path.join(FOLDER, handle["job"], "cancelled"), "w") as file:
        file.write(repr(grace))
'''
NAME = "plugin:scripted"


class Cluster(Place):
    """A target whose runs are started by the plugin."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        self.program = folder / "lib" / "remote"
        shutil.copytree(REMOTE, self.program, ignore=shutil.ignore_patterns("__pycache__"))
        self.plugin = self.program / "starters" / "plugins" / "scripted.py"
        self.plugin.write_text(SCHEDULER % str(self.jobs))

    def run(self, run_id: str, script: str, **changes: Any) -> Path:
        return super().run(run_id, script, **{"starter": NAME, **changes})

    def statuses(self, *runs: str) -> dict[str, Any]:
        code = "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        code += "from remote.shared.layout import Root\nfrom remote.starters.starter import read_statuses\n"
        code += "print(json.dumps(read_statuses(Root(sys.argv[2]), sys.argv[3:])))"
        command = [PYTHON, "-I", "-S", "-c", code, str(self.program.parent), str(self.root), *runs]
        return dict(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))

    def begin(self, job: str) -> dict[str, Any]:
        """Act as the scheduler: start the job and wait for it."""
        with (self.jobs / job / "message").open("rb") as message:
            command = ["sh", str(self.jobs / job / "script")]
            return dict(json.loads(subprocess.run(command, stdin=message, capture_output=True, check=True).stdout))


@pytest.fixture
def cluster(tmp_path, place):  # place kills the remaining processes
    return Cluster(tmp_path)


# -- built-in starter ----------------------------------------------------------------------------------------


def test_many_detached_runs_are_asked_about_at_once(cluster):
    runs = {name: cluster.run(name, script, starter="detached") for name, script in LASTING.items()}
    for name in runs:
        cluster.start(name)
    cluster.ended(runs["short"])
    until(lambda: cluster.statuses("short")["short"]["state"] == "ended")
    statuses = cluster.statuses("short", "long", "none")
    assert [statuses[name]["state"] for name in ("short", "long", "none")] == ["ended", "running", "unknown"]
    assert not (runs["short"] / "starter.json").exists(), "the claim is the handle"
    cluster.call("cancel", "long")
    assert cluster.ended(runs["long"])["ending"] == "cancelled"


LASTING = {"short": "print(1)", "long": "import time; time.sleep(1000)"}


# -- starter of a plugin -------------------------------------------------------------------------------------


def test_a_plugin_starts_the_supervisor(cluster):
    folder = cluster.run("r", "import os; print(os.environ['TOKEN'])", secrets=["TOKEN"])
    assert cluster.start("r", message={"secrets": {"TOKEN": "s3cret"}}) == {"ok": True, "claimed": True}
    assert cluster.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == "s3cret\n"
    assert json.loads((folder / "starter.json").read_text()) == {"starter": NAME, "handle": {"job": "job-0"}}
    supervisor = json.loads((folder / "claim" / "owner.json").read_text())["pid"]
    assert supervisor != os.getpid()
    again = cluster.start("r", "n2")
    assert again["owner"]["pid"] == supervisor and os.listdir(cluster.jobs) == ["job-0"], "it is started once"


def test_a_run_in_the_queue_is_not_started_again_and_not_judged(cluster):
    (cluster.folder / "busy").write_text("")
    folder = cluster.run("r", "print('at last')")
    assert cluster.start("r")["claimed"]
    assert cluster.start("r", "n2")["claimed"], "the answer was lost, and the client asks again"
    assert os.listdir(cluster.jobs) == ["job-0"]
    standing = {"state": "queued", "position": 1}
    assert cluster.call("adopt", "r") == {"ok": True, "state": "scheduled", "standing": standing}
    host = LocalHost(Root(str(cluster.root)), cluster.env)
    assert host.news("r", {}, 100).claimed, "a client must not take it for an interrupted submit"
    assert cluster.begin("job-0")["claimed"]
    assert cluster.ended(folder)["ending"] == "succeeded"
    assert cluster.call("adopt", "r")["state"] == "finished"


def test_each_scheduler_is_asked_once(cluster):
    for name in ("a", "b", "c"):
        cluster.run(name, "print(1)")
        cluster.start(name)
    cluster.run("d", "print(1)", starter="detached")
    (cluster.folder / "asked").unlink(missing_ok=True)
    statuses = cluster.statuses("a", "b", "c", "d")
    assert (cluster.folder / "asked").read_text() == '["a", "b", "c"]\n'
    assert set(statuses) == {"a", "b", "c", "d"} and statuses["d"]["state"] == "unknown"


def test_a_cancel_reaches_the_queue(cluster):
    (cluster.folder / "busy").write_text("")
    folder = cluster.run("r", "print('never')")
    cluster.start("r")
    assert cluster.call("cancel", "r", "ada", "2.5")["state"] == "asked"
    assert (cluster.jobs / "job-0" / "cancelled").read_text() == "2.5"
    cluster.call("adopt", "r")
    ending = cluster.ended(folder)
    assert (ending["ending"], ending["cause"]) == ("cancelled", "canceled before it started")
    assert cluster.begin("job-0")["claimed"] is False, "a job that the scheduler starts all the same"
    assert not (folder / "log").exists()


def test_a_job_that_vanishes_ends_the_run(cluster):
    (cluster.folder / "busy").write_text("")
    folder = cluster.run("r", "print('never')")
    cluster.start("r")
    (cluster.jobs / "job-0" / "cancelled").write_text("")
    assert cluster.call("adopt", "r")["state"] == "adopted"
    ending = cluster.ended(folder)
    assert ending["ending"] == "could not start"
    assert ending["cause"] == "the job ended before the run started; removed by the administrator"
    assert [event["kind"] for event in cluster.events(folder)] == ["accepted", "finished"], "nothing was prepared"
    assert cluster.begin("job-0")["claimed"] is False
    assert not (folder / "log").exists()


def test_a_running_one_is_cancelled_by_its_supervisor(cluster):
    folder = cluster.run("r", "import time; print('up', flush=True); time.sleep(1000)")
    cluster.start("r")
    cluster.event(folder, "started")
    cluster.call("cancel", "r")
    assert cluster.ended(folder)["ending"] == "cancelled"


def test_a_starter_that_fails(cluster):
    (cluster.folder / "broken").write_text("")
    folder = cluster.run("r", "print(1)")
    answer = cluster.start("r")
    assert answer == {"ok": False, "problem": f"starter {NAME} failed: RuntimeError: no partition of that name"}
    (cluster.folder / "broken").unlink()
    assert cluster.start("r", "n2")["claimed"], "the same command goes on"
    assert cluster.ended(folder)["ending"] == "succeeded"


def test_a_scheduler_that_does_not_respond_is_no_evidence(cluster):
    (cluster.folder / "busy").write_text("")
    cluster.run("r", "print(1)")
    cluster.start("r")
    cluster.plugin.write_text(cluster.plugin.read_text() + "\ndef status(handles): raise OSError('timed out')\n")
    answer = cluster.call("adopt", "r")
    assert answer["state"] == "scheduled"
    assert answer["standing"] == {"state": "unknown", "reason": "OSError: timed out"}


@pytest.mark.parametrize("name", ["plugin:missing", "plugin:../../x", "unheard-of"])
def test_a_starter_that_is_not_there(cluster, name):
    cluster.run("r", "print(1)", starter=name)
    answer = cluster.start("r")
    assert not answer["ok"] and "starter" in answer["problem"]


def test_the_conductor_of_a_sweep_needs_no_scheduler(cluster):
    child = {"id": {"=": "c1"}, "sweep": {"=": None}, "parent": {"=": "p"}}
    environment = {"MLW_RUN_ID": "c1", "MLW_RUN_FOLDER": str(cluster.root / "runs" / "c1")}
    child["environment"] = {"+": environment}
    parent = cluster.run("p", "print('child')", sweep={"children": ["c1"], "parallel": 1})
    cluster.call("start", "p", "n1", message={"secrets": {}, "children": [child]})
    assert cluster.ended(parent)["ending"] == "succeeded"
    assert not (parent / "starter.json").exists()
    assert os.listdir(cluster.jobs) == ["job-0"], "the child went through the scheduler"


# -- imports and memory of a supervisor ------------------------------------------------------------------------


def test_a_supervisor_does_not_load_typing(cluster):
    """Python lists the imported modules of the supervisor in its log."""
    folder = cluster.run("r", "print(1)", spoken=True)
    command = [PYTHON, "-I", "-S", "-X", "importtime", str(cluster.program / "__main__.py"), "supervise"]
    done = subprocess.run(
        [*command, str(cluster.root), "r", "n1"],
        input=b'{"secrets": {}}',
        capture_output=True,
        env={**cluster.env, "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
    )
    assert json.loads(done.stdout)["claimed"]
    assert cluster.ended(folder)["ending"] == "succeeded"
    lines = (done.stderr.decode() + (folder / "supervisor.log").read_text()).splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert {"remote.supervisor", "remote.companions.group", "remote.starters.starter"} <= modules
    assert not modules & {"typing", "dataclasses", "inspect", "subprocess", "importlib", "remote.sweep_conductor"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_supervisor_is_little_more_than_an_interpreter(place):
    """A supervisor may take 3 MB more memory than a sleeping Python process. It usually takes 2 MB more."""
    compiled = place.run("first", "pass")  # the first run compiles modules, which takes memory, too
    place.start("first")
    place.ended(compiled)
    sleeping = subprocess.Popen([PYTHON, "-I", "-S", "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    assert sleeping.stdout is not None and sleeping.stdin is not None
    sleeping.stdout.readline()
    folder = place.run("r", "import time; print('up'); time.sleep(1000)")
    place.start("r")
    until(lambda: (folder / "effort.jsonl").exists())  # the supervisor has taken its first usage sample
    supervisor = place.event(folder, "accepted")["pid"]
    more = _rss(supervisor) - _rss(sleeping.pid)
    sleeping.communicate()
    place.call("cancel", "r")
    place.ended(folder)
    assert more <= 3 * 1024, f"{more} kB"


def _rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


# -- where environments are built ------------------------------------------------------------------------------

STEP = """
import sys, json
sys.path.insert(0, sys.argv[1])
from remote.shared.layout import Root
from remote.environments.environment_step import prepare_environment
from remote.run_spec import read_spec
root = Root(sys.argv[2])
run = root.run(sys.argv[3])
built = []
print(json.dumps([prepare_environment(root, run, read_spec(run), {}, lambda: built.append(True)), len(built)]))
"""


@pytest.mark.parametrize("elsewhere", [True, False], ids=["before the start", "in the supervisor"])
def test_an_environment_is_built_where_the_step_is_called(cluster, builder, elsewhere):
    lock = builder.lock([builder.wheel("greet", {"greet.py": "print('hello')\n"})])
    folder = cluster.run(
        "r", "import greet", starter="detached", lock=lock, python=f"{builder.prefix(lock)}/bin/python"
    )
    if elsewhere:
        command = [PYTHON, "-I", "-S", "-c", STEP, str(cluster.program.parent), str(cluster.root), "r"]
        done = subprocess.run(command, capture_output=True, env=cluster.env, check=True)
        assert json.loads(done.stdout) == [None, 1]
    cluster.start("r")
    assert cluster.ended(folder)["ending"] == "succeeded"
    assert (folder / "log").read_text() == "hello\n"
    steps = [event["data"]["step"] for event in cluster.events(folder) if event["kind"] == "step"]
    assert steps == ["code"] if elsewhere else steps == ["code", "environment"]
