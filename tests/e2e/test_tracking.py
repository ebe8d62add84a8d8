"""Scripts without mlworkbench: TensorBoard files and printed lines become metrics, locally and on targets."""

from __future__ import annotations

import json
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


BOARD_AND_LIBRARY = """
import struct, time
import mlworkbench
from writer import Writer, field, now, record, varint

def value(tag, *parts):
    return field(1, field(1, tag) + b"".join(parts))

def plugin(name, content=b""):
    return field(9, field(1, field(1, name) + field(2, content)))

main = Writer("runs/Nov16_07-53-15_vm")
session = Writer("runs/Nov16_07-53-15_vm/1763279595.03")
pair = field(1, field(1, b"units") + field(2, b"\\x11" + struct.pack("<d", 16)))
session.file.write(record(now() + field(5, value(b"_hparams_/session_start_info", plugin(b"hparams", field(3, pair))))))
for step in range(5):
    mlworkbench.log("loss", 1 / (step + 1), step)
    main.add("loss", 1 / (step + 1), step)
    main.add("accuracy", step / 5, step)
image = bytes.fromhex(open("image.hex").read())
main.file.write(record(now() + b"\\x10\\x03" + field(5, value(b"sample", field(4, field(4, image))))))
buckets = field(6, struct.pack("<2d", 1.5, 2.0)) + field(7, struct.pack("<2d", 1, 3))
for step in range(2):
    facts = b"".join(bytes([at << 3 | 1]) + struct.pack("<d", number) for at, number in enumerate((1, 2, 4, 7), 1))
    main.file.write(record(now() + bytes([16, step]) + field(5, value(b"weights", field(5, facts + buckets)))))
"""
IMAGE = (
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b550000000a4944415478da63600000000200"
    "01e527de8e0000000049454e44ae426082"
)


def test_tensorboard_next_to_the_library(user):
    """A script logs the same loss to both, with hyperparameters, an image, and a histogram in the default folder."""
    root = user.project("demo", train=BOARD_AND_LIBRARY)
    for name, text in {"writer.py": WRITER, "crc.py": CRC, "image.hex": IMAGE}.items():
        (root / name).write_text(text)
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code == 0, done
    shown = user.info(done.run)
    assert (shown["loss"], shown["tensorboard/loss"], shown["accuracy"]) == (0.2, 0.2, 0.8)
    assert [name for name in shown if "Nov16" in name] == []
    exported = user.mlw("history", "export", done.run, "--to", "runs.json", "--points", cwd=root)
    assert exported.code == 0, exported
    (run,) = json.loads((root / "runs.json").read_text())["runs"]
    assert {series["name"]: series["count"] for series in run["series"]} == {
        "loss": 5,
        "accuracy": 5,
        "tensorboard/loss": 5,
    }
    assert run["params"]["units"] == 16
    files = {file["path"].partition("outputs/")[2] or file["path"]: file.get("as") for file in run["files"]}
    assert files["images/sample-3.png"] == "image"
    (events,) = [name for name, kind in files.items() if kind == "tensorboard"]
    assert events.startswith("tensorboard/runs/Nov16_07-53-15_vm/events.out.tfevents.")
    assert any(tag.startswith("tensorboard.kept=histograms: weights") for tag in shown["tags"])
    printed = user.mlw("history", "tables", done.run, "histograms/weights", "-o", "json", cwd=root)
    assert [(row["step"], row["count"], row["mean"], row["max"]) for row in json.loads(printed.stdout)] == [
        (0, 4, 1.75, 2),
        (1, 4, 1.75, 2),
    ]


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
