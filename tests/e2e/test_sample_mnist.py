"""The samples that read digits, as their readmes have it: made, run on this machine and in a container, looked at.

Each has the packages of its own file. What is changed is what no test can have: Python is that of a mirror or a channel
on this machine, PyTorch is the build that lies here, and the container's image is the one of the tests' engine.
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
from tests.e2e.test_environment import point
from tests.e2e.test_environment_frameworks import openmpi, wheels
from tests.interpreters import interpreters
from tests.machines.channel import SHORT, VERSION, Channel, allow_packages
from tests.machines.engine import Engine
from tests.machines.kept import keep
from tests.machines.laptop import Laptop
from tests.machines.python_mirror import use_mirror
from tests.machines.tools import give_tools

PATIENCE = 560  # seconds; hundreds of megabytes are fetched and unpacked
EVERYWHERE = pytest.mark.parametrize("target", ["local", "docker"])
SYSTEM = ("ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libutil.", "libstdc++.", "libgcc_s.")
pytestmark = pytest.mark.timeout(PATIENCE + 40)


@pytest.fixture(scope="module")
def owner(mirror: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """One person for all of them: what has been fetched for one test is there for the next, also of another day."""
    place = tmp_path_factory.mktemp("samples")
    someone = Laptop(place)
    use_mirror(someone, mirror)
    give_tools(someone.store)
    (someone.store / "cache").mkdir(mode=0o700)
    (someone.store / "cache" / "uv").symlink_to(keep("samples", VERSION, lambda folder: folder.mkdir(mode=0o700)))
    yield someone
    end_processes(place)
    shutil.rmtree(someone.runtime, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)  # gigabytes, which pytest would keep for a while


class Sample:
    """A project that was made from a sample, and what its runs left."""

    def __init__(self, owner: Laptop, name: str, channel: Channel | None = None) -> None:
        self.owner, self.root = owner, owner.home / name
        if not self.root.exists():
            made = owner.mlw("project", "create", "--name", name, "--template", name)
            assert made.code == 0, made
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

    def submit(self, engine: Engine, target: str, *arguments: str) -> Done:
        self.owner.uses(engine)
        point(self.root, "docker", "baseDockerImage", engine.image)
        words = ("submit", "-c", target, "train.py", *arguments)
        return self.owner.mlw(*words, cwd=self.root, timeout=PATIENCE)

    def outputs(self, done: Done) -> Path:
        return self.owner.folder(done.run) / "work" / "outputs"

    def series(self, done: Done, name: str) -> list[tuple[float, float]]:
        told = self.owner.mlw("history", "metrics", done.run, name, "-o", "json", cwd=self.root)
        assert told.code == 0, told
        return [(one["step"], one["value"]) for one in json.loads(told.out)["metrics"][name]]


def must_have_learned(sample: Sample, done: Done, model: str) -> dict:
    """Most of the test pictures are read right; model and picture are at home."""
    assert done.code == 0, done
    record = sample.owner.info(done.run)
    assert record["status"] == "Completed" and 0.85 < record["test_accuracy"] < 1, record
    assert [path for path in sample.outputs(done).rglob(model) if path.stat().st_size > 10_000]
    assert (sample.outputs(done) / "confusion.png").read_bytes().startswith(b"\x89PNG")
    return record


def must_have_epochs(sample: Sample, done: Done, count: int) -> None:
    losses = sample.series(done, "loss")
    assert [step for step, _ in losses] == list(range(1, count + 1))
    assert losses[-1][1] < losses[0][1] / 2
    assert [step for step, _ in sample.series(done, "test_accuracy")] == list(range(1, count + 1))
    assert "2000 training images, 500 test images" in done.out.splitlines(), done


@EVERYWHERE
def test_tensorflow(owner, engine, target):
    sample = Sample(owner, "mnist-tensorflow")
    done = sample.submit(engine, target, "--epochs", "4")
    must_have_learned(sample, done, "model.keras")
    must_have_epochs(sample, done, 4)
    assert re.search(r"^TensorFlow [\d.]+ on the CPU$", done.out, re.MULTILINE), done


@EVERYWHERE
def test_keras_with_mlflow(owner, engine, target):
    """Its script knows nothing of us."""
    sample = Sample(owner, "mlflow-keras")
    assert "mlworkbench" not in (sample.root / "train.py").read_text()
    done = sample.submit(engine, target, "--epochs", "6")
    record = must_have_learned(sample, done, "data/model.keras")
    losses = sample.series(done, "loss")
    assert [step for step, _ in losses] == list(range(6)) and losses[-1][1] < losses[0][1] / 2
    assert record["accuracy"] > 0.9
    assert (sample.outputs(done) / "model_summary.txt").is_file()
    assert not list(sample.root.glob("mlruns")) and not list(sample.root.glob("*.db"))


@EVERYWHERE
def test_pytorch(owner, engine, target):
    folder, version = wheels()
    sample = Sample(owner, "mnist-pytorch")
    if version not in (sample.root / "aml_config" / "conda_dependencies.yml").read_text():
        allow_packages(sample.root, folder)
        sample.change("    - torch>=2.4\n", f"    - --find-links {folder}\n    - torch=={version}\n")
    done = sample.submit(engine, target, "--epochs", "4")
    must_have_learned(sample, done, "model.pt")
    must_have_epochs(sample, done, 4)
    assert f"PyTorch {version} on the CPU (cpu)" in done.out.splitlines(), done


# -- CNTK ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def old_channel(tmp_path_factory: pytest.TempPathFactory) -> Channel:
    """Conda's Python 3.6 and its OpenMPI, as they were: this machine's own, under the version of the sample's file."""
    python = interpreters().get((3, 6))
    if python is None:
        pytest.skip("there is no Python 3.6 on this machine")
    libraries = openmpi(tmp_path_factory.mktemp("mpi") / "lib")
    place = tmp_path_factory.mktemp("old")
    told = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
    made = Channel(place / "channel")
    made.add_python(Path(python), told.stdout.split()[1])
    files = {}
    for link in libraries.iterdir():
        told = subprocess.run(["ldd", str(link.resolve())], capture_output=True, text=True, check=True)
        needed = dict(re.findall(r"^\t(\S+) => (/\S+)", told.stdout, re.MULTILINE))
        needed[link.readlink().name] = str(link.resolve())
        files.update({f"lib/{name}": path for name, path in needed.items() if not name.startswith(SYSTEM)})
    content = {name: Path(path).read_bytes() for name, path in files.items()}
    made.add("openmpi", "3.1.4", content, "linux-64")
    return made.write()


@EVERYWHERE
def test_cntk(owner, engine, old_channel, target):
    """Neither this machine's variables nor the image have OpenMPI under the names that CNTK asks for."""
    sample = Sample(owner, "mnist-cntk", old_channel)
    done = sample.submit(engine, target, "--epochs", "3")
    record = must_have_learned(sample, done, "model.dnn")
    must_have_epochs(sample, done, 3)
    assert "CNTK 2.7 on the CPU" in done.out.splitlines(), done
    assert record["environment"]["python"]["version"].startswith("3.6.")


def test_cntk_in_an_image_without_openmpi(owner, engine, old_channel):
    sample = Sample(owner, "mnist-cntk", old_channel)
    kept = (sample.root / "aml_config" / "conda_dependencies.yml").read_text()
    sample.change("  - openmpi=3.1\n", "")
    done = sample.submit(engine, "docker")
    (sample.root / "aml_config" / "conda_dependencies.yml").write_text(kept)
    assert done.code == 1 and "Traceback" not in done.out + done.err, done
    assert "CNTK needs OpenMPI 1.10 to 4" in done.out + done.err, done
