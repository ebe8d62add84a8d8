"""The sample project ``iris-sklearn``: its readme, with real scikit-learn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mlworkbench.config.gallery import GALLERY
from tests.e2e.python_environments import cached_environment
from tests.e2e.spark_projects import set_compute_key
from tests.machines.nvml import FakeGpus
from tests.machines.python_mirror import use_mirror

pytestmark = pytest.mark.timeout(600)
TIMEOUT = 500  # seconds; scikit-learn and matplotlib are downloaded and compiled
PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python with all packages from the sample's own environment file."""
    text = (GALLERY / "iris-sklearn" / "aml_config" / "conda_dependencies.yml").read_text()
    packages = re.findall(r"^    - (\S+)$", text, re.MULTILINE)
    assert len(packages) == 2, text
    return cached_environment("iris", *packages)


def created(user) -> Path:
    done = user.mlw("project", "create", "--name", "iris", "--template", "iris-sklearn")
    assert done.code == 0, done
    return user.home / "iris"


@pytest.fixture
def project(user, python) -> Path:
    root = created(user)
    set_compute_key(root, "local", "userManagedEnvironment", "true")
    set_compute_key(root, "local", "pythonLocation", str(python))
    return root


def accuracy(user, run: str) -> float:
    """Check a finished run and its files, and return its accuracy."""
    record = user.info(run)
    assert record["status"] == "Completed", record
    outputs = user.folder(run) / "work" / "outputs"
    assert {path.name for path in outputs.iterdir()} == {"model.joblib", "confusion.png", "roc.png"}
    assert all(path.read_bytes().startswith(PNG) for path in outputs.glob("*.png"))
    return float(record["accuracy"])


def test_arguments_and_shared_folder(user, project):
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


def test_readme_sweep(user, project):
    (line,) = re.findall(r"^mlw (submit .*--sweep.*)$", (project / "readme.md").read_text(), re.MULTILINE)
    assert "reg=10,1,0.1,0.01,0.001" in line
    # Fewer values take less time.
    done = user.mlw(*line.replace("10,1,0.1,0.01,0.001", "10,0.1").split(), cwd=project, timeout=TIMEOUT)
    assert done.code == 0, done
    best = re.search(r"^best: \S+  reg=(\S+)  accuracy (\S+) \(highest\)$", done.err, re.MULTILINE)
    assert best and best[1] == "0.1" and float(best[2]) > 0.9, done


def test_gpu_configuration_reports_unused_gpu(user, project, tmp_path):
    """Check the readme's claims about the run configuration for GPUs."""
    gpus = FakeGpus(tmp_path)
    gpus.add("GPU-0a", memory=(16 << 30, 0), name="NVIDIA H200", utilisation=0)
    user.env.update(gpus.env_nvml_only)
    done = user.mlw("submit", "-c", "local-gpu", "iris_sklearn.py", "0.01", cwd=project)
    assert done.code == 0, done
    assert "GPU used:  no – no process of the run opened a GPU" in done.err, done
    assert user.info(done.run)["gpus"] == "1", "it had asked for one"


def test_run_in_container_with_project_packages(laptop, engine, mirror):
    """Do what a user does. Only Python comes from a local mirror, because tests cannot reach its download server."""
    laptop.use_engine(engine)
    use_mirror(laptop, mirror)
    root = created(laptop)
    set_compute_key(root, "docker", "baseDockerImage", engine.image)
    done = laptop.mlw("submit", "-c", "docker", "iris_sklearn.py", "0.01", cwd=root, timeout=TIMEOUT)
    assert done.code == 0, done
    assert accuracy(laptop, done.run) > 0.9
    assert not re.search(r"warn", done.out, re.IGNORECASE), done
    assert re.search(r"Downloading scikit-learn \(\d", done.err), "megabytes are not fetched in silence"
    set_compute_key(root, "local", "userManagedEnvironment", "false")
    scored = laptop.mlw("submit", "-c", "local", "iris_score.py", cwd=root, timeout=TIMEOUT)
    assert scored.code == 0 and f"best: rate 0.01, run {done.run}" in scored.out, "one machine, one shared folder"
    assert "environment ready" not in scored.err, "and one environment for both"
    assert engine.containers() == []
