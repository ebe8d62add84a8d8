"""``import mlflow`` in a container and on a remote machine: what it logs is fetched with the run."""

from __future__ import annotations

import pytest

from tests.e2e.remote_target import RemoteTarget
from tests.e2e.test_environment import enable_managed_environment, set_compute_key
from tests.e2e.test_mlflow import Ran
from tests.machines.channel import depend
from tests.machines.tools import give_tools_to

TIMEOUT = 560  # seconds; the environment is built first
pytestmark = pytest.mark.timeout(TIMEOUT + 40)

LOGS = """
import mlflow

mlflow.set_experiment("far away")
with mlflow.start_run(run_name="the first"):
    mlflow.log_params({"lr": 0.1, "depth": 5})
    mlflow.set_tag("stage", "trial")
    for step in range(5):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_text("a note", "notes/one.txt")
    with mlflow.start_run(run_name="inner", nested=True):
        mlflow.log_metric("fold", 7)
        mlflow.log_text("mine", "own.txt")
print("mlflow", mlflow.__version__, mlflow.get_tracking_uri())
"""


def assert_logged(laptop, done):
    assert done.code == 0, done
    ran = Ran(laptop, done)
    assert ran.info["status"] == "Completed"
    assert ran.info["loss"] == 0.2 and "fold" not in ran.info
    assert ran.series("loss") == [(step, 1 / (step + 1)) for step in range(5)]
    assert ran.named("param") == {"lr": "0.1", "depth": "5"}
    assert ran.named("tag")["stage"] == "trial"
    child = ran.children()["inner"]
    assert ran.info["children"] == [f"{ran.id}.{child['run'][:8]}"] and child["status"] == "completed"
    assert ran.named("metric", child["run"]) == {"fold": 7.0}
    assert ran.files() == {"notes/one.txt": "text"}
    assert (ran.outputs / "notes" / "one.txt").read_text() == "a note"
    [file] = ran.of("file", child["run"])
    assert (ran.outputs / file["path"]).read_text() == "mine"
    assert ran.of("ended") == [{"status": "completed"}]
    return ran


def test_run_in_container(laptop, engine, channel):
    laptop.use_engine(engine)
    root = laptop.project("demo", train=LOGS)
    depend(root, channel, "mlflow-skinny")  # the full package is tested with a sample
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "train.py", cwd=root, timeout=TIMEOUT)
    ran = assert_logged(laptop, done)
    assert "mlw:run" in ran.out


def test_run_on_remote_machine(laptop, machine, channel):
    """Run once with the newest MLflow and once with the last 2.x."""
    root = laptop.project("far", train=LOGS)
    host = machine()
    remote = RemoteTarget(laptop, host, "remote", project=root)
    give_tools_to(host)
    enable_managed_environment(root, "box")
    for package in ("mlflow-skinny", "mlflow-skinny<3"):
        depend(root, channel, package)
        ran = assert_logged(laptop, remote.submit("train.py", timeout=TIMEOUT))
        assert (" 2." in ran.out) == ("<3" in package), ran.out
