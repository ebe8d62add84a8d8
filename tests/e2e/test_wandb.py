"""Scripts that use W&B in offline mode: the run history contains their data, and ``wandb sync`` still works later."""

from __future__ import annotations

import pytest

from tests.e2e.python_environments import cached_environment
from tests.e2e.test_environment import set_compute_key
from tests.e2e.test_tracking import LocalTarget
from tests.machines.network import wait_until

TRAIN = """
import os, time
import wandb

run = wandb.init(project="demo", name="first", tags=["vision"], config={"lr": 0.1, "optimizer": {"name": "adam"}})
for step in range(5):
    if step == 3:
        while not os.path.exists(os.path.expanduser("~/go")):
            time.sleep(0.01)
    run.log({"loss": 1 / (step + 1), "val": {"acc": step / 4}})
run.summary["best"] = 0.9
run.finish()
"""


@pytest.mark.timeout(300)
def test_offline_runs_are_recorded_while_they_run(laptop):
    target = LocalTarget(laptop, "local")
    set_compute_key(target.project, "local", "pythonLocation", str(cached_environment("wandb", "wandb")))
    (target.project / "train.py").write_text(TRAIN)
    run = target.detach("--env", "WANDB_MODE=offline", "train.py")
    wait_until(lambda: laptop.info(run).get("val.acc") == 0.5, "metrics while it runs", 120)
    target.release()
    done = target.mlw("logs", "-f", run)
    assert done.code == 0, done
    shown = laptop.info(run)
    assert (shown["loss"], shown["val.acc"], shown["best"]) == (0.2, 1.0, 0.9)
    assert shown["params"] == {"lr": 0.1, "optimizer.name": "adam"}
    text = (laptop.folder(run) / "metrics" / "wandb").read_text()
    assert text.count('"n": "loss"') == 5 and '"wandb.exit_code", "value": "0"' in text
    assert '"wandb.tags", "value": "vision"' in text
    assert shown["unkept"] == [] and shown["left_out"] == []
    (folder,) = (laptop.folder(run) / "work" / "outputs" / "wandb").iterdir()
    assert folder.name.startswith("offline-run-")
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {"run", "files"}, "what `wandb sync` reads"
