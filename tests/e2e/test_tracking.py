"""Scripts without mlworkbench: TensorBoard files and printed lines become metrics, locally and on targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_docker_local import set_compute_key
from tests.machines.network import wait_until
from tests.supervisor.test_tracking import CRC, WRITER

TRAINS = """
import os, time
from writer import Writer

train, validation = Writer("logs/train"), Writer("logs/validation")
for step in range(4):
    if step == 2:
        while not os.path.exists(os.path.expanduser("~/go")):
            time.sleep(0.01)
    train.add("loss", 1 / (step + 1), step)
    validation.add("loss", 2 / (step + 1), step)
    print("epoch %d - accuracy: %g" % (step, step / 4))
"""


def set_runconfig_key(root: Path, name: str, key: str, value: str) -> None:
    """Set a line of a run configuration."""
    path = root / "aml_config" / f"{name}.runconfig"
    path.write_text(re.sub(rf"(?m)^#? ?{key}:.*\n", "", path.read_text()) + f"\n{key}: {value}\n")


class LocalTarget:
    """The laptop itself as a target."""

    def __init__(self, laptop, name: str) -> None:
        self.laptop, self.name = laptop, name
        self.project = laptop.project("demo")

    def detach(self, *arguments: str) -> str:
        done = self.mlw("submit", "-c", self.name, "--detach", *arguments)
        assert done.code == 0, done
        return done.run

    def mlw(self, *arguments: str):
        return self.laptop.mlw(*arguments, cwd=self.project)

    def release(self) -> None:
        homes = [*(self.laptop.store / "homes").glob("*")] if self.name == "docker" else [self.laptop.home]
        for home in homes:
            (home / "go").touch()


@pytest.fixture(params=["local", "docker", "remote"])
def target(request, laptop):
    if request.param == "remote":
        return RemoteTarget(laptop, request.getfixturevalue("machine")())
    local = LocalTarget(laptop, request.param)
    if request.param == "docker":
        engine = request.getfixturevalue("engine")
        laptop.use_engine(engine)
        set_compute_key(local.project, "baseDockerImage", engine.image)
        set_compute_key(local.project, "userManagedEnvironment", "true")
    return local


def test_metrics_are_available_during_and_after_run(target):
    for name, text in {"train.py": TRAINS, "writer.py": WRITER, "crc.py": CRC}.items():
        (target.project / name).write_text(text)
    set_runconfig_key(target.project, target.name, "MetricsFromLog", "true")
    run = target.detach("train.py")
    info = target.laptop.info

    def live() -> bool:
        shown = info(run)
        return (shown.get("train/loss"), shown.get("validation/loss"), shown.get("accuracy")) == (0.5, 1.0, 0.25)

    wait_until(live, "metrics while it runs", 60)
    assert info(run)["status"] == "Running"
    target.release()
    assert target.mlw("logs", "-f", run).code == 0
    shown = info(run)
    assert shown["status"] == "Completed"
    assert (shown["train/loss"], shown["validation/loss"], shown["accuracy"]) == (0.25, 0.5, 0.75)
    points = (target.laptop.folder(run) / "metrics" / "tensorboard").read_text().count('"n": ')
    assert points == 8, "each once"


LOGS = "import mlworkbench\nmlworkbench.log('loss', 1)\nmlworkbench.set_tag('x')\nprint('accuracy: 0.5')\n"


def test_printed_lines_become_metrics_only_on_request(user):
    root = user.project("demo", train=LOGS)
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code == 0, done
    shown = user.info(done.run)
    assert shown["loss"] == 1 and "accuracy" not in shown
    set_runconfig_key(root, "local", "MetricsFromLog", "true")
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert user.info(done.run)["accuracy"] == 0.5


def test_untracked_run_records_nothing(user):
    root = user.project("demo", train=LOGS + "import os\nprint(os.environ.get('MLFLOW_TRACKING_URI'))\n")
    set_runconfig_key(root, "local", "TrackedRun", "false")
    set_runconfig_key(root, "local", "MetricsFromLog", "true")
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code == 0, done
    assert done.out == "accuracy: 0.5\nNone\n"
    shown = user.info(done.run)
    assert "loss" not in shown and "accuracy" not in shown
    assert list((user.folder(done.run) / "metrics").iterdir()) == []


def test_invalid_tracking_value_is_reported(user):
    root = user.project("demo", train=LOGS)
    set_runconfig_key(root, "local", "MetricsFromLog", "perhaps")
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code != 0 and "MetricsFromLog" in done.err, done


def test_metrics_are_indexed_while_run_is_followed(user):
    """The script logs until ``series.db`` exists, so the follower must create this index while the run is active."""
    script = """
import os, time, mlworkbench
kept, until = os.path.join(os.environ["MLW_RUN_FOLDER"], "series.db"), time.monotonic() + 60
while not os.path.exists(kept) and time.monotonic() < until:
    mlworkbench.log("loss", 1.0)
    time.sleep(0.2)
print("kept" if os.path.exists(kept) else "not kept")
"""
    project = user.project("demo", train=script)
    done = user.mlw("submit", "train.py", cwd=project)
    assert done.code == 0 and done.out.startswith("kept"), done
