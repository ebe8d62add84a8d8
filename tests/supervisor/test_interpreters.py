"""The supervisor on every Python of this machine from 3.8, and scripts on every Python from 3.6."""

from __future__ import annotations

import json

import pytest

from tests.interpreters import from_version, oldest_and_newest

from .conftest import alive, marked, until
from .gpu_hosts import LOOKED, GpuHost

SUPERVISORS = from_version((3, 8))
SCRIPTS = from_version((3, 6))


def name(interpreter):
    return ".".join(map(str, interpreter[0]))


@pytest.mark.parametrize("which", SUPERVISORS, ids=name)
def test_life_of_a_run(place, which):
    place.python = which[1]
    good = place.run("good", "print('hello')", files={"data/räksmörgås.txt": "x"})
    assert place.start("good")["claimed"]
    assert place.ended(good)["ending"] == "succeeded"
    assert (good / "log").read_text() == "hello\n"

    slow = place.run("slow", "import time; print('up'); time.sleep(1000)")
    place.start("slow")
    until(lambda: (slow / "log").exists() and (slow / "log").read_text())
    supervisor = place.event(slow, "accepted")["pid"]
    __import__("os").kill(supervisor, 9)
    until(lambda: not alive(supervisor))
    assert place.call("adopt", "slow")["state"] == "adopted"
    place.call("cancel", "slow", "me", "5")
    assert place.ended(slow)["ending"] == "cancelled"
    assert marked(slow) == []
    assert (slow / "supervisor.log").read_text() == ""


@pytest.mark.parametrize("which", oldest_and_newest((3, 8)), ids=name)
def test_gpus(tmp_path, which):
    host = GpuHost(tmp_path, 1)
    host.python = which[1]
    script = "use_gpu(memory=1 << 30, utilisation=80)\n" + LOOKED
    first = host.run("first", script, gpus="1")
    second = host.run("second", script, gpus="h200:8g")
    host.start("first")
    host.start("second")
    for folder in (first, second):
        assert host.ended(folder)["gpu"]["used"] == "yes"
        assert (folder / "supervisor.log").read_text() == ""
    assert host.order() == ["first", "second"]


@pytest.mark.parametrize("which", SCRIPTS, ids=name)
def test_script_logs_metrics(place, which):
    import mlworkbench.remote as remote

    script = (
        "from mlworkbench import log\nfrom azureml.logging import get_azureml_logger\n"
        "log('accuracy', 0.9, step=3)\nget_azureml_logger().log('rate', 1)\nraise ValueError('at the end')"
    )
    folder = place.run("r", script, python=which[1])
    spec = json.loads((folder / "spec.json").read_text())
    spec["environment"]["PYTHONPATH"] = remote.__path__[0] + "/inrun"
    (folder / "spec.json").write_text(json.dumps(spec))
    place.start("r")
    ending = place.ended(folder)
    assert ending["cause"] == "ValueError: at the end (main.py:5)"
    lines = [json.loads(line) for path in (folder / "metrics").iterdir() for line in path.read_text().splitlines()]
    assert [(metric["n"], metric["v"], metric.get("s")) for metric in lines] == [
        ("accuracy", 0.9, 3),
        ("rate", 1, None),
    ]
