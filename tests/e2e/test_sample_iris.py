"""The sample project ``iris-sklearn``: its readme, followed with real scikit-learn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mlworkbench.config.gallery import GALLERY
from tests.e2e.pythons import kept
from tests.e2e.sparkling import say
from tests.machines.nvml import FakeGpus
from tests.machines.python_mirror import use_mirror

pytestmark = pytest.mark.timeout(600)
LONG = 500  # seconds; scikit-learn and matplotlib are fetched and compiled
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python that has all packages of the sample, as its own file names them."""
    text = (GALLERY / "iris-sklearn" / "aml_config" / "conda_dependencies.yml").read_text()
    packages = re.findall(r"^    - (\S+)$", text, re.MULTILINE)
    assert len(packages) == 2, text
    return kept("iris", *packages)


def created(user) -> Path:
    done = user.mlw("project", "create", "--name", "iris", "--template", "iris-sklearn")
    assert done.code == 0, done
    return user.home / "iris"


@pytest.fixture
def project(user, python) -> Path:
    root = created(user)
    say(root, "local", "userManagedEnvironment", "true")
    say(root, "local", "pythonLocation", str(python))
    return root


def accuracy(user, run: str) -> float:
    """Of a finished run, whose files are all there."""
    record = user.info(run)
    assert record["status"] == "Completed", record
    outputs = user.folder(run) / "work" / "outputs"
    assert {path.name for path in outputs.iterdir()} == {"model.joblib", "confusion.png", "roc.png"}
    assert all(path.read_bytes().startswith(PNG) for path in outputs.glob("*.png"))
    return float(record["accuracy"])


def test_arguments_and_the_shared_folder(user, project):
    nothing = user.mlw("submit", "-c", "local", "iris_score.py", cwd=project)
    assert nothing.code == 1 and "no models found in the shared folder" in nothing.out, nothing
    strong = user.mlw("submit", "-c", "local", "iris_sklearn.py", "100", cwd=project)
    assert strong.code == 0, strong
    assert "90 training samples, 60 test samples, regularization rate 100" in strong.out.splitlines()
    weak = user.mlw("submit", "-c", "local", "iris_sklearn.py", "--reg", "0.1", cwd=project)
    assert weak.code == 0, weak
    assert user.info(weak.run)["regularization_rate"] == 0.1
    assert accuracy(user, strong.run) < 0.85 < 0.9 < accuracy(user, weak.run), "what the readme says of rates"
    curves = json.loads(user.mlw("history", "metrics", weak.run, "-o", "json", cwd=project).out)
    assert [point["step"] for point in curves["metrics"]["accuracy_of_fewer"]] == [15, 30, 45, 60, 75, 90]

    scored = user.mlw("submit", "-c", "local", "iris_score.py", cwd=project)
    assert scored.code == 0, scored
    assert f"best: rate 0.1, run {weak.run}" in scored.out.splitlines(), "a model of an earlier run"
    rows = json.loads((user.folder(scored.run) / "work" / "outputs" / "scores.json").read_text())
    assert [row["run"] for row in rows] == [weak.run, strong.run]
    assert user.info(scored.run)["models"] == 2
    refused = user.mlw("submit", "-c", "local", "iris_sklearn.py", "0", cwd=project)
    assert refused.code == 2 and "must be greater than 0" in refused.out, refused


def test_the_sweep_of_the_readme(user, project):
    (line,) = re.findall(r"^mlw (submit .*--sweep.*)$", (project / "readme.md").read_text(), re.MULTILINE)
    assert "reg=10,1,0.1,0.01,0.001" in line
    done = user.mlw(
        *line.replace("10,1,0.1,0.01,0.001", "10,0.1").split(), cwd=project, timeout=LONG
    )  # less to wait for
    assert done.code == 0, done
    best = re.search(r"^best: \S+  reg=(\S+)  accuracy (\S+) \(highest\)$", done.err, re.MULTILINE)
    assert best and best[1] == "0.1" and float(best[2]) > 0.9, done


def test_a_gpu_that_it_waits_for_in_vain(user, project, tmp_path):
    """What the readme says of the run configuration for GPUs."""
    gpus = FakeGpus(tmp_path)
    gpus.add("GPU-0a", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only)
    done = user.mlw("submit", "-c", "local-gpu", "iris_sklearn.py", "0.01", cwd=project)
    assert done.code == 0, done
    assert "GPU used:  no – no process of the run opened a GPU" in done.err, done
    assert user.info(done.run)["gpus"] == "1", "it had asked for one"


def test_in_a_container_with_its_packages(laptop, engine, mirror):
    """As a user does it; only the Python comes from here, because no test reaches the place where it lives."""
    laptop.uses(engine)
    use_mirror(laptop, mirror)
    root = created(laptop)
    say(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "iris_sklearn.py", "0.01", cwd=root, timeout=LONG)
    assert done.code == 0, done
    assert accuracy(laptop, done.run) > 0.9
    assert not re.search(r"warn", done.out, re.IGNORECASE), done
    assert re.search(r"Downloading scikit-learn \(\d", done.err), "megabytes are not fetched in silence"
    say(root, "local", "userManagedEnvironment", "false")
    scored = laptop.mlw("submit", "-c", "local", "iris_score.py", cwd=root, timeout=LONG)
    assert scored.code == 0 and f"best: rate 0.01, run {done.run}" in scored.out, "one machine, one shared folder"
    assert "environment ready" not in scored.err, "and one environment for both"
    assert engine.containers() == []
