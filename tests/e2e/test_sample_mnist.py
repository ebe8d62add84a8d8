"""The MNIST samples: create, run on this machine and in a container, and inspect, as in their readmes.

Each sample uses the packages of its own file. Tests replace only what they cannot download: Python comes from a
mirror or a channel on this machine, PyTorch is the local build, and the container uses the test engine's image.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Done, end_processes
from tests.e2e.package_index import Index
from tests.e2e.python_environments import ONE_THREAD
from tests.e2e.test_environment import set_compute_key
from tests.e2e.test_environment_frameworks import openmpi, wheels
from tests.interpreters import interpreters
from tests.machines.channel import SHORT, VERSION, Channel, allow_packages
from tests.machines.engine import Engine
from tests.machines.laptop import Laptop
from tests.machines.package_cache import cached_store
from tests.machines.python_mirror import use_mirror
from tests.machines.tools import give_tools

TIMEOUT = 560  # seconds; hundreds of megabytes are downloaded and unpacked
EVERYWHERE = pytest.mark.parametrize("target", ["local", "docker"])
SYSTEM = ("ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libutil.", "libstdc++.", "libgcc_s.")
pytestmark = pytest.mark.timeout(TIMEOUT + 40)


@pytest.fixture(scope="module")
def user(mirror: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """One user for all samples, so that packages are reused by later tests and sessions."""
    place = tmp_path_factory.mktemp("samples")
    with cached_store("samples", VERSION) as store:
        laptop = Laptop(place)
        (place / "store").symlink_to(store)  # for helpers that expect it beside the home
        laptop.store, laptop.env["MLW_HOME"] = store, str(store)
        use_mirror(laptop, mirror)
        give_tools(laptop.store)
        yield laptop
        end_processes(store)
        shutil.rmtree(laptop.runtime, ignore_errors=True)


class Sample:
    """A project created from a sample, and the results of its runs."""

    def __init__(self, user: Laptop, name: str, channel: Channel | None = None) -> None:
        self.user, self.root = user, user.home / name
        if not self.root.exists():
            result = user.mlw("project", "create", "--name", name, "--template", name)
            assert result.code == 0, result
            if channel:
                allow_packages(self.root, channel.folder)
                self.change("#channels:\n#  - conda-forge", f"channels:\n  - {channel.url}")
            else:
                self.change("  - python=3.11\n", f"  - python={SHORT}\n")

    def change(self, old: str, new: str, file: str = "conda_dependencies.yml") -> None:
        path = self.root / "aml_config" / file
        text = path.read_text()
        assert old in text, path
        path.write_text(text.replace(old, new))

    def submit(self, engine: Engine, target: str, *arguments: str, options: tuple[str, ...] = ()) -> Done:
        self.user.use_engine(engine)
        set_compute_key(self.root, "docker", "baseDockerImage", engine.image)
        command = ("submit", "-c", target, *ONE_THREAD, *options, "train.py", *arguments)
        return self.user.mlw(*command, cwd=self.root, timeout=TIMEOUT)

    def outputs(self, done: Done) -> Path:
        return self.user.folder(done.run) / "work" / "outputs"

    def series(self, done: Done, name: str) -> list[tuple[float, float]]:
        result = self.user.mlw("history", "metrics", done.run, name, "-o", "json", cwd=self.root)
        assert result.code == 0, result
        return [(entry["step"], entry["value"]) for entry in json.loads(result.out)["metrics"][name]]


def assert_accuracy(sample: Sample, done: Done, model: str) -> dict:
    """Check that most test images are classified correctly, and that the model and the plot exist."""
    assert done.code == 0, done
    record = sample.user.info(done.run)
    assert record["status"] == "Completed" and 0.85 < record["test_accuracy"] < 1, record
    assert [path for path in sample.outputs(done).rglob(model) if path.stat().st_size > 10_000]
    assert (sample.outputs(done) / "confusion.png").read_bytes().startswith(b"\x89PNG")
    return record


def assert_epochs(sample: Sample, done: Done, count: int) -> None:
    losses = sample.series(done, "loss")
    assert [step for step, _ in losses] == list(range(1, count + 1))
    assert losses[-1][1] < losses[0][1] / 2
    assert [step for step, _ in sample.series(done, "test_accuracy")] == list(range(1, count + 1))
    assert "2000 training images, 500 test images" in done.out.splitlines(), done


@EVERYWHERE
def test_tensorflow(user, engine, target):
    sample = Sample(user, "mnist-tensorflow")
    done = sample.submit(engine, target, "--epochs", "4")
    assert_accuracy(sample, done, "model.keras")
    assert_epochs(sample, done, 4)
    assert re.search(r"^TensorFlow [\d.]+ on the CPU$", done.out, re.MULTILINE), done


@EVERYWHERE
def test_keras_with_mlflow(user, engine, target):
    """The script does not import mlworkbench."""
    sample = Sample(user, "mlflow-keras")
    assert "mlworkbench" not in (sample.root / "train.py").read_text()
    # In one of the two runs, MLflow also searches the requirements of the model, in a second Python.
    search = () if target == "local" else ("--env", "MLFLOW_REQUIREMENTS_INFERENCE_TIMEOUT=1")
    done = sample.submit(engine, target, "--epochs", "6", options=search)
    record = assert_accuracy(sample, done, "data/model.keras")
    losses = sample.series(done, "loss")
    assert [step for step, _ in losses] == list(range(6)) and losses[-1][1] < losses[0][1] / 2
    assert record["accuracy"] > 0.9
    assert (sample.outputs(done) / "model_summary.txt").is_file()
    assert not list(sample.root.glob("mlruns")) and not list(sample.root.glob("*.db"))


def pytorch_sample(user: Laptop, name: str) -> Sample:
    """Create a sample that installs PyTorch's CPU build from this machine."""
    folder, version = wheels()
    sample = Sample(user, name)
    if version not in (sample.root / "aml_config" / "conda_dependencies.yml").read_text():
        allow_packages(sample.root, folder)
        sample.change("    - torch>=2.4\n", f"    - --find-links {folder}\n    - torch=={version}\n")
    return sample


@EVERYWHERE
def test_pytorch(user, engine, target):
    sample = pytorch_sample(user, "mnist-pytorch")
    done = sample.submit(engine, target, "--epochs", "4")
    assert_accuracy(sample, done, "model.pt")
    assert_epochs(sample, done, 4)
    assert f"PyTorch {wheels()[1]} on the CPU (cpu)" in done.out.splitlines(), done


ABORT_RANK_1 = """

save = save_checkpoint
def save_checkpoint(model, optimizer, epoch):
    save(model, optimizer, epoch)
    if (dist.get_rank(), epoch, os.environ["MLW_ATTEMPT"]) == (1, 2, "1"):
        os.abort()
"""


def test_distributed_pytorch_continues_after_a_crashed_rank(user, engine):
    """It uses the environment of mnist-pytorch. SIGKILL could be mistaken for a lack of memory on a busy machine."""
    sample = pytorch_sample(user, "mnist-ddp")
    script = sample.root / "train.py"
    before, main, after = script.read_text().rpartition("\n\nif __name__ ==")
    script.write_text(before + ABORT_RANK_1 + main + after)
    options = ("--launcher", "torchrun", "--processes", "2", "--retries", "1", "--retry-delay", "0.1s")
    done = sample.submit(engine, "local", "--epochs", "4", options=options)
    record = assert_accuracy(sample, done, "model.pt")
    assert_epochs(sample, done, 4)
    starts = [line for line in done.out.splitlines() if line.startswith("attempt")]
    assert starts == ["attempt 1 starts at epoch 1 of 4", "attempt 2 starts at epoch 3 of 4"], done
    assert "equal weights in all processes (2): " in done.out, done
    assert len(record["attempts"]) == 1 and "rank 1 failed: killed by signal 6" in done.err, done


# -- CNTK ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def old_channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """A channel with Python 3.6 and OpenMPI: files of this machine under the versions in the sample's file."""
    python = interpreters().get((3, 6))
    if python is None:
        pytest.skip("there is no Python 3.6 on this machine")
    libraries = openmpi(tmp_path_factory.mktemp("mpi") / "lib")
    place = tmp_path_factory.mktemp("old")
    result = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
    channel = Channel(place / "channel")
    channel.add_python(Path(python), result.stdout.split()[1])
    files = {}
    for link in libraries.iterdir():
        result = subprocess.run(["ldd", str(link.resolve())], capture_output=True, text=True, check=True)
        needed = dict(re.findall(r"^\t(\S+) => (/\S+)", result.stdout, re.MULTILINE))
        needed[link.readlink().name] = str(link.resolve())
        files.update({f"lib/{name}": path for name, path in needed.items() if not name.startswith(SYSTEM)})
    content = {name: Path(path).read_bytes() for name, path in files.items()}
    channel.add("openmpi", "3.1.4", content, "linux-64")
    return channel.write()


@EVERYWHERE
def test_cntk(user, engine, old_channel, target):
    """OpenMPI comes from the channel, because neither this machine nor the image has the files that CNTK expects."""
    sample = Sample(user, "mnist-cntk", old_channel)
    done = sample.submit(engine, target, "--epochs", "3")
    record = assert_accuracy(sample, done, "model.dnn")
    assert_epochs(sample, done, 3)
    assert "CNTK 2.7 on the CPU" in done.out.splitlines(), done
    assert record["environment"]["python"]["version"].startswith("3.6.")


def test_cntk_in_image_without_openmpi(user, engine, old_channel):
    sample = Sample(user, "mnist-cntk", old_channel)
    kept = (sample.root / "aml_config" / "conda_dependencies.yml").read_text()
    sample.change("  - openmpi=3.1\n", "")
    done = sample.submit(engine, "docker")
    (sample.root / "aml_config" / "conda_dependencies.yml").write_text(kept)
    assert done.code == 1 and "Traceback" not in done.out + done.err, done
    assert "CNTK needs OpenMPI 1.10 to 4" in done.out + done.err, done
