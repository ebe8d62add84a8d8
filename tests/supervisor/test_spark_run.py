"""A Spark run under the real supervisor. The driver is a script that prints recorded Spark output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mlworkbench
from mlworkbench.remote.shared.failure import failure
from tests.machines.nvml import USE_GPU

from .conftest import alive, end_marked, marked, until
from .gpu_hosts import GpuHost

RECORDED = Path(__file__).parents[1] / "unit" / "recorded"
SPARK = {"master": "local[2]", "deploy": "client"}
DRIVER = """
import os, signal, subprocess, sys, time
lines = open(%r, "rb").read().splitlines(True)
folder = os.environ["MLW_RUN_FOLDER"] + "/spark/eventlog_v2_app-1"

def write(some):
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/events_1_app-1", "ab") as file:
        file.writelines(some)

def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)

"""
# Processes that spark-submit can leave: a Python process that outlives its JVM, and one that ignores SIGTERM.
ORPHANS = """
python = [sys.executable, "-c", "import time; time.sleep(1000)"]
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); open('deaf', 'w').close(); time.sleep(1000)"
subprocess.Popen(python, start_new_session=True)
subprocess.Popen([sys.executable, "-c", deaf])
wait("deaf")
"""


def driver(text, recorded="spark4-executor-lost"):
    return DRIVER % str(RECORDED / f"{recorded}.events") + text


def kinds(place, folder):
    return [event["kind"] for event in place.events(folder)]


def test_spark_progress_is_reported_while_it_runs(place):
    folder = place.run("r", driver("write(lines[:-1]); wait('go'); write(lines[-1:])"), spark=SPARK)
    place.start("r")
    assert place.event(folder, "spark")["version"] == "4.3.0"
    assert place.event(folder, "spark_trouble")["reason"] == "Command exited with code 137"
    progress = place.event(folder, "spark_progress")
    assert (progress["ended"], progress["executors"]["lost"]) == (False, 1)
    (folder / "work" / "go").write_text("")
    assert place.ended(folder)["ending"] == "succeeded"
    last = [event["data"] for event in place.events(folder) if event["kind"] == "spark_progress"][-1]
    assert last["ended"]
    assert last["tasks"] == {"done": 6, "total": 6, "failed": 1}


def test_another_supervisor_goes_on_where_the_first_one_was(place):
    text = "write(lines[:20]); wait('go'); write(lines[20:])"
    folder = place.run("r", driver(text), spark=SPARK)
    place.start("r")
    place.event(folder, "spark_progress")
    pid = place.event(folder, "accepted")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    assert place.call("adopt", "r")["state"] == "adopted"
    (folder / "work" / "go").write_text("")
    assert place.ended(folder)["ending"] == "succeeded"
    assert kinds(place, folder).count("spark_trouble") == 1
    last = [event["data"] for event in place.events(folder) if event["kind"] == "spark_progress"][-1]
    assert (last["tasks"], last["ended"]) == ({"done": 6, "total": 6, "failed": 1}, True)


def test_a_driver_that_is_killed_leaves_nothing_behind(place):
    folder = place.run("r", driver("write(lines[:-9])\n" + ORPHANS + "os.kill(os.getpid(), 9)"), spark=SPARK)
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["signal"], ending["leftovers"]) == ("failed", 9, [])
    assert ending["cause"].startswith("the Spark driver was lost: killed by signal 9 (SIGKILL); ")
    assert ending["cause"].endswith(" of 2 stages completed")
    assert marked(folder) == []


def test_spark_that_is_not_there_could_not_start(place):
    """The program that starts Spark writes the cause to a file, and the supervisor reads it."""
    starter = Path(mlworkbench.__file__).parent / "remote" / "inrun" / "mlworkbench" / "_spark"
    text = f"sys.path.insert(0, {str(starter)!r}); import runpy; print('looking')\n"
    text += f"starter = runpy.run_path({str(starter / '__main__.py')!r})\n"
    text += "sys.exit(starter['refuse']('there is no Java', 'install Java 17'))"
    folder = place.run("r", driver(text), spark=SPARK)
    place.start("r")
    ending = place.ended(folder)
    assert (ending["ending"], ending["exit"]) == ("could not start", 78)
    assert ending["cause"] == "there is no Java; hint: install Java 17"
    assert ending["failure"] == failure("no-spark", "there is no Java", "install Java 17", "no-spark")
    assert (folder / "log").read_text().endswith("mlw: there is no Java; hint: install Java 17\n")


def test_failed_task_is_the_cause_without_secrets(place):
    text = "write(lines); sys.stderr.write('ValueError: number three is bad\\n'); sys.exit(1)"
    recorded = "spark4-task-failed"
    folder = place.run("r", driver(text, recorded), spark=SPARK, secrets=["TOKEN"])
    place.start("r", message={"secrets": {"TOKEN": "number three"}})
    ending = place.ended(folder)
    assert "number three" not in (folder / "events.jsonl").read_text()
    assert "ValueError: *** is bad" in ending["cause"]
    assert place.event(folder, "spark_trouble")["reason"].startswith("ValueError: *** is bad")


@pytest.mark.parametrize("what", ["os.symlink('/etc', folder)", "os.mkfifo(folder)", "open(folder, 'w').write('x')"])
def test_whatever_a_script_puts_there_the_run_ends_as_it_would(place, what):
    folder = place.run("r", driver(f"{what}\nwait('go')"), spark=SPARK)
    place.start("r")
    place.event(folder, "started")
    until(lambda: list((folder / "spark").iterdir()))
    (folder / "work" / "go").write_text("")
    assert place.ended(folder)["ending"] == "succeeded"
    assert "spark" not in kinds(place, folder)
    assert (folder / "supervisor.log").read_text() == ""


# -- GPUs of executors ---------------------------------------------------------------------------------------

EXECUTOR = """
import json
info = {"Host": %r, "Total Cores": 1, "Resources": {"gpu": {"name": "gpu", "addresses": ["0"]}}}
added = {"Event": "SparkListenerExecutorAdded", "Executor ID": "9", "Executor Info": info}
write(lines[:-1] + [json.dumps(added, separators=(",", ":")).encode() + b"\\n"]); wait('go'); write(lines[-1:])
"""
ASKED = ["--conf", "spark.executor.resource.gpu.amount=1"]


@pytest.fixture
def host(tmp_path):
    yield GpuHost(tmp_path, 1)
    end_marked(tmp_path)


def test_an_executor_on_this_machine_uses_the_gpu_for_the_run(host, tmp_path):
    argv = [host.python, "main.py", *ASKED]
    folder = host.run("r", driver(EXECUTOR % "127.0.0.1"), spark=SPARK, argv=argv)
    host.start("r")
    host.event(folder, "spark_progress")
    text = USE_GPU + "import time\nuse_gpu(memory=1 << 30, utilisation=80)\ntime.sleep(1000)\n"
    app = host.event(folder, "spark")["app"]
    executor = subprocess.Popen([sys.executable, "-c", text, "--app-id", app], env={**os.environ, **host.env})
    try:
        until(lambda: (folder / "gpu.jsonl").exists() and '"processes":1' in (folder / "gpu.jsonl").read_text())
        (folder / "work" / "go").write_text("")
        gpu = host.ended(folder)["gpu"]
    finally:
        executor.kill()
        executor.wait()
    assert gpu["used"] in ("yes", "partly"), gpu
    assert f"(pid {executor.pid})" in gpu["line"]
    assert gpu["evidence"]["executors"] == ["GPU 0 of 127.0.0.1"]


def test_what_executors_elsewhere_do_is_unknown(host):
    folder = host.run("r", driver(EXECUTOR % "192.0.2.77"), spark=SPARK, argv=[host.python, "main.py", *ASKED])
    host.start("r")
    host.event(folder, "spark_progress")
    (folder / "work" / "go").write_text("")
    gpu = host.ended(folder)["gpu"]
    assert gpu["used"] == "unknown"
    assert gpu["line"].endswith("executors received GPUs that cannot be measured from here: GPU 0 of 192.0.2.77")


def test_no_executor_with_a_gpu_is_no(place):
    folder = place.run("r", driver("write(lines)"), spark=SPARK, argv=[place.python, "main.py", *ASKED])
    place.start("r")
    gpu = place.ended(folder)["gpu"]
    assert gpu["line"] == "GPU used: no – no executor received a GPU"
    assert "spark.worker.resource.gpu.discoveryScript" in gpu["diagnosis"]["remedy"]
