"""Every page is followed, command by command, with real machines: see tests/machines/pages.py for how."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

from mlworkbench.config.gallery import samples
from mlworkbench.config.keys import DEFAULT_IMAGE
from tests.building import build_wheel
from tests.e2e.documented import FOLLOWED_ELSEWHERE, NOT_RUN, WALKED, follows, gpus_on, reach, serving_mlflow
from tests.e2e.pythons import install, make
from tests.machines.channel import depend
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU
from tests.machines.pages import ROOT, Command, Walk, merge, page, pages, typed
from tests.machines.spark import QUICK

TRAIN = """
import argparse, os, time
import mlworkbench as mlw

parser = argparse.ArgumentParser()
for name in ("epochs", "depth"):
    parser.add_argument("--" + name, type=int, default=1)
for name in ("lr", "dropout", "alpha"):
    parser.add_argument("--" + name, type=float, default=0.1)
parser.add_argument("--config")
parser.add_argument("--wait", action="store_true")
asked = parser.parse_args()
while asked.wait and not os.path.exists(os.path.join(os.path.expanduser("~"), "go")):
    time.sleep(0.02)
mlw.log({"loss": asked.lr, "alpha": asked.alpha, "accuracy": 1 - asked.lr / 10})
with open("outputs/model.ckpt", "w") as file:
    file.write("weights")
print("trained with lr", asked.lr)
"""


@pytest.fixture
def walk(request, laptop):
    """Along the page that the test follows; it must be gone."""
    name = request.function.follows
    made = Walk(laptop, name, left={command for page_, command in NOT_RUN if page_ == name})
    yield made
    assert made.started, f"{made.page} was not followed"


@pytest.fixture
def project(walk):
    """The project that the page begins with, created as the page shows it, with a quick script."""
    for text in ("mlw project create demo", "cd demo"):
        walk.at(text)
        walk.type(Command(text))
        walk.left.add(text)
    walk.forget_variables()  # so that the test can set some
    (walk.place / "train.py").write_text(TRAIN)
    return walk.place


ATTACH = "mlw computetarget attach {} --name my_dsvm --address 10.0.0.7 --username ada"


def attached_by_page(walk, host, kind="remote"):
    """The page attaches this machine; in containers the image has all that is needed: most pages are not about it."""
    reach(walk.laptop, host.address, host)
    walk.laptop.knows(host)
    walk.words[r"10\.0\.0\.7"] = host.address
    if kind == "remotedocker":
        keys = f"userManagedEnvironment: true\nbaseDockerImage: {host.engine.image}\n"
        compute = walk.laptop.home / "demo" / "aml_config" / "my_dsvm.compute"
        walk.at(ATTACH.format(kind), after=lambda _: merge(compute, keys))


# What the sample's script prints and leaves: the tests of the samples run it with the real PyTorch.
PYTORCH = """
import argparse
import mlworkbench as mlw

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--lr", type=float, default=0.002)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--data", choices=["subset", "full"], default="subset")
asked = parser.parse_args()
print("PyTorch 2.11.0+cu130 on NVIDIA H200 (cuda)")
counts = (60000, 10000) if asked.data == "full" else (2000, 500)
print("{} training images, {} test images".format(*counts))
for epoch in range(1, asked.epochs + 1):
    mlw.log("loss", 1 / epoch, step=epoch)
    mlw.log("accuracy", 0.95, step=epoch)
    mlw.log("test_loss", 1 / epoch, step=epoch)
    mlw.log("test_accuracy", 0.95, step=epoch)
    print("epoch {}   loss {:.4f}   test accuracy {:.3f}".format(epoch, 1 / epoch, 0.95))
for name in ("model.pt", "confusion.png"):
    with open("outputs/" + name, "w") as file:
        file.write(name)
print("wrote outputs/model.pt and outputs/confusion.png")
"""


def lighter(root: Path, channel, *pip: str, **scripts: str) -> None:
    """The project of a sample with small packages in place of the large ones."""
    for name, text in scripts.items():
        (root / f"{name}.py").write_text(text)
    depend(root, channel, *pip)
    packages = (root / "aml_config" / "conda_dependencies.yml").read_text()
    (root / "aml_config" / "conda_dependencies_gpu.yml").write_text(packages)


@follows("docs/tutorial/first-gpu-run.md")
@pytest.mark.timeout(600)
def test_the_tutorial(walk, machine, engine, channel):
    """With a machine whose GPU, container toolkit and PyTorch are stand-ins; the rest is what a reader has."""
    engine.stop()
    engine.start(False, True, "--add-runtime", "nvidia=runc")
    engine.docker("tag", engine.image, DEFAULT_IMAGE)
    host = machine(docker="yes", password="open sesame")
    gpus_on(host, 1)
    walk.words = {"SHA256:…": host.host_key_fingerprint, r"10\.0\.0\.7": host.address}
    # What a container does on a GPU that is not there cannot be seen.
    walk.not_shown = ("GPU used:", "GPU cause:", "Remedy:")
    attach_, *_ = (one.text for one in typed(page(walk.page)) if "attach" in one.text)
    questions = (
        ("Trust this host key? [y/N]: ", "y"),
        (f"Password for ada@{host.address}:22:", "open sesame"),
    )

    def as_shown(file):
        """The page shows what is in a file already."""

        def compare(text):
            there = [line.strip() for line in (walk.place / file).read_text().splitlines()]
            assert [line for line in text.splitlines() if walk._here(line).strip() not in there] == []

        return compare

    def packages(text):
        as_shown("aml_config/conda_dependencies_gpu.yml")(text)
        lighter(walk.place, channel, train=PYTORCH)

    def two_lines(text):
        script = (walk.place / "train.py").read_text()
        assert all(line.partition("(")[0] in script for line in text.split("\n\n"))

    def something_runs():
        (walk.place / "slow.py").write_text(
            "import time\nwhile True:\n    print('tick', flush=True)\n    time.sleep(0.1)\n"
        )
        words = ("submit", "--detach", "-c", "my_dsvm", "slow.py")
        walk.words["mnist-swift(?!-)"] = walk.laptop.mlw(*words, cwd=walk.place, check=True).run

    walk.put("import mlworkbench", two_lines)
    walk.put("dependencies:", packages)
    walk.put("type: remotedocker", as_shown("aml_config/my_dsvm.compute"))
    walk.put("Target: my_dsvm", as_shown("aml_config/my_dsvm.runconfig"))
    walk.at(attach_, answers=questions)
    first: list[str] = []
    submit = "mlw submit -c my_dsvm --gpus 1 train.py --epochs 30"
    walk.at(submit, after=lambda said: first.extend(re.findall(r"^RunId: +(\S+)", said, re.MULTILINE)))
    walk.at("mlw doctor gpu -t my_dsvm", code=75)  # it finds out that the container's GPU is a stand-in
    walk.at("mlw ps", before=something_runs)
    walk.at("mlw logs -f mnist-swift", until="tick")
    walk.at("mlw cancel mnist-swift", after=lambda _: walk.words.update({"mnist-swift(?!-)": first[0]}))
    walk.through()


@follows("README.md")
def test_the_readme(walk, machine, engine, channel):
    host = machine(docker="yes", password="open sesame")
    gpus_on(host, 1)
    engine.stop()
    engine.start(False, True, "--add-runtime", "nvidia=runc")
    engine.docker("tag", engine.image, DEFAULT_IMAGE)
    walk.words = {"SHA256:…": host.host_key_fingerprint, r"10\.0\.0\.7": host.address}
    (attach_,) = (one.text for one in typed(page(walk.page)) if "computetarget attach" in one.text)
    questions = (
        ("Trust this host key? [y/N]: ", "y"),
        (f"Password for ada@{host.address}:22:", "open sesame"),
    )

    walk.at("mlw submit -c local train.py --lr 0.3", after=lambda _: depend(walk.place, channel))
    walk.at(attach_, answers=questions)
    walk.patience = 240
    walk.through()


@follows("docs/how-to/gpus.md")
def test_gpus(walk, machine):
    host = machine()
    made = gpus_on(host, 1)
    attached_by_page(walk, host)
    use = f"import os, time\nos.environ['MLW_FAKE_GPUS'] = {str(made.state)!r}\n{USE_GPU}"

    def scripts(_):
        (walk.place / "check.py").write_text(use + "use_gpu(memory=3 << 30)\ntime.sleep(1.5)\n")
        (walk.place / "hold.py").write_text(TRAIN)

    walk.at("cd demo", after=scripts)
    (submit,) = (one.text for one in typed(page(walk.page)) if one.text.startswith("mlw submit"))
    held = ("submit", "--detach", "-c", "my_dsvm", "--gpus", "1", "hold.py", "--wait")
    walk.at(submit, before=lambda: hold(walk, held), when=("queued:", lambda: (host.home / "go").touch()))
    walk.through()


@follows("docs/how-to/attach-by-key.md")
def test_attach_by_key(walk, project, machine):
    host = machine(password="open sesame")
    reach(walk.laptop, "gpu.lab.example", host)
    walk.laptop.knows(host)
    walk.words["SHA256:…"] = host.host_key_fingerprint
    _, _, first, *_, changed, anew, gone, again = [one.text for one in typed(page(walk.page))]
    detach = ("computetarget", "detach", "box")

    def set_up_anew():
        host.change_host_key()
        walk.words["SHA256:…"] = host.host_key_fingerprint

    def cloned():
        """As somebody else has it: the files are there, and the machine was never attached."""
        walk.laptop.mlw(*first.split()[1:], cwd=project, check=True)
        kept = {path: path.read_text() for path in (project / "aml_config").glob("box.*")}
        walk.laptop.mlw(*detach, cwd=project, check=True)
        for path, text in kept.items():
            path.write_text(text)

    def by_password():
        """So that there is a key that attach has installed."""
        walk.laptop.mlw(*detach, cwd=project, check=True)
        (walk.laptop.ssh_folder / "config").write_text(f"Host gpu.lab.example\n  HostName {host.address}\n")
        named = ("--host-key", host.host_key_fingerprint, "--password-stdin")
        walk.laptop.mlw(*first.split()[1:], *named, cwd=project, check=True, input="open sesame\n")

    def cloned_by_the_owner_of_a_key():
        reach(walk.laptop, "gpu.lab.example", host)
        (walk.laptop.ssh_folder / "known_hosts").write_text(host.host_key)
        cloned()

    walk.at(changed, before=set_up_anew)
    walk.at(anew, before=by_password)
    walk.at(again, before=cloned_by_the_owner_of_a_key)
    walk.through()
    assert "box" in walk.laptop.mlw("computetarget", "list", cwd=project).out


@follows("docs/how-to/jump-host.md")
def test_jump_host(walk, project, machine):
    gate = machine()
    far = machine(jump=gate, docker="yes")
    config = f"Host *\n  IdentityFile {gate.key}\n  IdentityFile {far.key}\n"
    walk.laptop.ssh_config(config)
    walk.laptop.knows(gate, far)
    walk.words = {r"10\.0\.0\.7": far.address, r"gate\.lab\.example": gate.address, ":2222": ""}
    *_, by_option, by_alias = (one.text for one in typed(page(walk.page)))

    def alias(text):
        walk.laptop.ssh_config(config + walk._here(text))

    walk.put("Host gate", alias)
    walk.at(by_alias, before=lambda: walk.laptop.mlw("computetarget", "detach", "my_dsvm", cwd=project, check=True))
    walk.through()
    assert "address: box" in (project / "aml_config" / "my_dsvm.compute").read_text()


@follows("docs/how-to/private-registry.md")
def test_private_registry(walk, project, machine, registry):
    host = machine(docker="yes")
    walk.laptop.has_keyring()
    walk.words = {
        r"registry\.lab\.example:5000/team/cuda:12": registry.image,
        r"registry\.lab\.example:5000": registry.address,
        "ada-puller": registry.user,
    }
    attached_by_page(walk, host, "remotedocker")
    walk.put("type: remotedocker", "aml_config/my_dsvm.compute")
    *_, keep, _ = (one.text for one in typed(page(walk.page)))
    walk.at(keep, answers=(("Password", registry.password),))
    walk.through()


@follows("docs/how-to/shared-data.md")
def test_shared_data(walk, project, machine):
    host = machine(docker="yes")
    folders = {name: host.home / name for name in ("data", "scratch", "shared")}
    for folder in folders.values():
        folder.mkdir()
        os.chown(folder, host.uid, host.uid)
    (folders["data"] / "imagenet").mkdir()
    walk.words = {r"/data/shared\b": str(folders["shared"]), r"/data/imagenet\b": f"{folders['data']}/imagenet"}
    walk.words |= {r"(?<= )/data\b": str(folders["data"]), r"(?<= )/scratch\b": str(folders["scratch"])}
    attached_by_page(walk, host, "remotedocker")
    compute = "aml_config/my_dsvm.compute"
    walk.put("import os", lambda text: (project / "train.py").write_text(TRAIN + text))
    walk.put("nativeSharedDirectory", compute)
    walk.put("mounts:", compute)
    *_, allow, forbid, fetch = (one.text for one in typed(page(walk.page)))

    def run(*more):
        done = walk.laptop.mlw("submit", "-c", "my_dsvm", *more, "train.py", cwd=project)
        assert done.code == 0, done
        return done.run

    def all_three():
        """With the page's script, its shared folder and its mounts."""
        about = json.loads((project / "aml_config" / "project.json").read_text())
        own = folders["shared"] / f"{about['Name']}-{about['Id'][:8]}"
        walk.laptop.mlw("computetarget", "update", "my_dsvm", "--allow-mount", str(own), cwd=project, check=True)
        run()
        assert [one.read_text() for one in folders["shared"].rglob("counts.txt")] == ["one more\n"]

    def left_there():
        config = project / "aml_config" / "my_dsvm.runconfig"
        merge(config, "FetchOutputs: none\n")
        walk.words["RUN"] = run("--allow-mount", str(folders["scratch"]))

    walk.at(allow, after=lambda _: all_three())
    walk.at(fetch, before=left_there)
    walk.through()
    assert (project / "results" / "model.ckpt").read_text() == "weights"


@follows("docs/how-to/hugging-face-caches.md")
def test_hugging_face_caches(walk, machine):
    """The library is not needed: the page's script shows the folder that it would use."""
    host = machine(docker="yes")
    cache = host.home / "huggingface"
    cache.mkdir()
    os.chown(cache, host.uid, host.uid)
    walk.words = {"/data/huggingface": str(cache)}
    attached_by_page(walk, host, "remotedocker")
    walk.laptop.env["HF_TOKEN"] = "canary-word"
    walk.put("import os\n\nos.environ.setdefault", None)
    walk.through()


@follows("docs/how-to/wandb.md")
def test_wandb(walk, machine):
    """With a stand-in for the package: it has no server here."""
    attached_by_page(walk, machine(docker="yes"), "remotedocker")
    walk.laptop.env["WANDB_API_KEY"] = "canary-word"
    walk.put("dependencies:", lambda _: (walk.place / "wandb.py").write_text(WANDB))
    walk.through()
    (record,) = (walk.place / "results" / "wandb").glob("offline-run-*/run.json")
    newest = walk.laptop.runs()[0]
    assert json.loads(record.read_text()) == {"id": newest["run_id"], "project": "demo", "steps": 10, "key": False}
    assert newest["loss"] == pytest.approx(0.1)


# Writes where the real one does in offline mode.
WANDB = """
import json, os

class Run:
    def __init__(self, **about):
        self.about, self.steps = about, 0

    def log(self, values):
        self.steps += 1

    def finish(self):
        if os.environ.get("WANDB_MODE") != "offline":
            assert os.environ["WANDB_API_KEY"]
            return
        folder = os.path.join(os.environ["WANDB_DIR"], "wandb", "offline-run-1")
        os.makedirs(folder)
        about = {"id": self.about["id"], "project": self.about["project"], "steps": self.steps}
        about["key"] = "WANDB_API_KEY" in os.environ
        with open(os.path.join(folder, "run.json"), "w") as file:
            json.dump(about, file)

def init(**about):
    return Run(**about)
"""


@follows("docs/how-to/move-history.md")
def test_move_history(walk):
    """The new machine is this one, with an empty data folder and the project elsewhere."""
    project = walk.place = walk.laptop.project("demo", train=TRAIN)
    done = walk.laptop.mlw("submit", "-c", "local", "train.py", cwd=project, check=True)
    walk.laptop.mlw("history", "tag", done.run, "--add", "keep", cwd=project, check=True)
    _, unpack = (one.text for one in typed(page(walk.page)) if "tar " in one.text)

    def new_machine():
        walk.laptop.store.rename(walk.laptop.home / "old-store")
        walk.place = project.rename(project.with_name("moved"))

    walk.at(unpack, before=new_machine)
    walk.through()
    (moved,) = walk.laptop.runs()
    assert (moved["run_id"], moved["tags"], moved["status"]) == (done.run, ["keep"], "Completed")
    restore = ("project", "restore", "--run-id", done.run, "--path", str(walk.laptop.home / "restored"))
    walk.laptop.mlw(*restore, cwd=walk.place, check=True)
    assert list((walk.laptop.home / "restored").rglob("train.py"))
    walk.laptop.mlw("submit", "-c", "local", "train.py", cwd=walk.place, check=True)


@follows("docs/how-to/upgrade-uninstall.md")
def test_upgrade_and_uninstall(walk, machine):
    host = machine()
    reach(walk.laptop, host.address, host)
    walk.laptop.knows(host)
    project = walk.place = walk.laptop.project("demo", train=TRAIN)
    where = ("--address", host.address, "--username", host.user)
    walk.laptop.mlw("computetarget", "attach", "remote", "--name", "my_dsvm", *where, cwd=project, check=True)
    walk.laptop.mlw("submit", "-c", "my_dsvm", "train.py", cwd=project, check=True)
    (walk.laptop.home / "mlw").mkdir()
    walk.at("mlw doctor", code=(0, 1))  # as this machine is
    walk.at("mlw computetarget detach my_dsvm --purge", answers=(("[y/N]:", "y"),))
    walk.through()
    assert not (host.home / ".mlw").exists() and not walk.laptop.store.exists()
    assert not (walk.laptop.home / "mlw").exists() and "<html" in (project / "history.html").read_text()


@follows("docs/how-to/offline-target.md")
def test_offline_target(walk, project, machine, channel, engine):
    host = machine(docker="yes")  # it has no way to the internet
    depend(project, channel)
    (project / "train.py").write_text("import hello, sys\nprint('in', sys.prefix)\n")
    reach(walk.laptop, "box", host)
    walk.laptop.uses(engine)
    ssh = walk.laptop.home / "bin" / "ssh"  # OpenSSH does not look for its files where HOME says
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F "{walk.laptop.home}/.ssh/config" "$@"\n')
    ssh.chmod(0o755)
    walk.laptop.env["PATH"] = f"{ssh.parent}:{walk.laptop.env['PATH']}"
    walk.laptop.knows(host)
    walk.words["my-image:1"] = engine.image
    walk.through()


@follows("docs/how-to/metrics.md")
def test_metrics(walk):
    """From an empty folder, with the page's own scripts."""
    first, second = (one.text for one in typed(page(walk.page)) if one.text.startswith("mlw submit"))

    def remember(name):
        return lambda said: walk.words.update({f"{name}(?!-)": re.findall(r"^RunId: +(\S+)", said, re.MULTILINE)[0]})

    def analyzed(text):
        (walk.place / "analyze.py").write_text(walk._here(text))
        code, printed = walk.shell(f"{sys.executable} analyze.py")
        assert code == 0 and "demo-" in printed, printed

    walk.at(first, after=remember("demo-swift"))
    walk.at(second, after=remember("demo-brave"))
    walk.put("# analyze.py", analyzed)
    walk.through()
    assert "<html" in (walk.place / "report.html").read_text()


@follows("docs/how-to/sweeps.md")
def test_sweeps(walk, machine):
    """From an empty folder, with the sample's own script."""
    host = machine()
    gpus_on(host, 2)
    attached_by_page(walk, host)
    runs = [one.text for one in typed(page(walk.page)) if one.text.startswith("mlw submit")]

    def remember(printed):
        found = re.findall(r"^[* ].*?(demo-[a-z]+-[a-z]+-\w+)$", printed, re.MULTILINE)
        walk.words |= {"demo-steady(?!-)": found[0], "demo-neat(?!-)": found[1]}
        walk.words["demo-smart-larch(?!-)"] = re.findall(r"^RunId: +(\S+)", printed, re.MULTILINE)[0]

    walk.at(runs[0], after=remember)
    walk.patience = 240
    walk.through()


@follows("docs/how-to/team.md")
def test_team(walk, project, machine):
    host = machine()
    gpus_on(host, 1)
    attached_by_page(walk, host)
    (submit,) = (one.text for one in typed(page(walk.page)) if one.text.startswith("mlw submit"))
    held = ("submit", "--detach", "-c", "my_dsvm", "--gpus", "1", "train.py", "--wait")
    walk.at(submit, before=lambda: hold(walk, held), when=("queued:", lambda: (host.home / "go").touch()))
    walk.at("mlw gpus -t my_dsvm --watch", until="NVIDIA driver")
    walk.at("mlw computetarget detach my_dsvm --purge", answers=(("[y/N]:", "y"),))
    walk.through()
    assert "<html" in (project / "report.html").read_text()


def hold(walk, words):
    """Somebody has the GPU."""
    done = walk.laptop.mlw(*words, cwd=walk.place, check=True)
    wait_until(lambda: walk.laptop.info(done.run, walk.place)["status"] == "Running", "the first run has the GPU")


@follows("docs/how-to/ci.md")
def test_ci(walk, project, machine):
    host = machine()
    attached_by_page(walk, host)
    walk.laptop.env |= {"KEY_FILE": str(host.key), "CI_PIPELINE_ID": "17", "HF_TOKEN": "canary"}
    walk.laptop.env["GPU_HOST"] = host.address
    walk.words["SHA256:…"] = host.host_key_fingerprint
    walk.through()
    assert '"Completed"' in (project / "result.json").read_text()
    assert (project / "artifacts" / "model.ckpt").exists() and (project / "report.html").exists()


@follows("docs/how-to/from-azure-ml-workbench.md")
def test_from_azure_ml_workbench(walk):
    """A folder as the original left it."""
    folder = walk.laptop.home / "old"
    (folder / "aml_config").mkdir(parents=True)
    (folder / "aml_config" / "local.compute").write_text("type: local\n")
    old = 'ArgumentVector:\n  - "$file"\nTarget: local\nFramework: Python\nPrepareEnvironment: false\n'
    (folder / "aml_config" / "local.runconfig").write_text(
        f"{old}CondaDependenciesFile: aml_config/conda_dependencies.yml\n"
    )
    (folder / "aml_config" / "conda_dependencies.yml").write_text("dependencies:\n  - python=3.5.2\n")
    (folder / "train.py").write_text(
        "from azureml.logging import get_azureml_logger\nget_azureml_logger().log('accuracy', 0.5)\n"
    )
    walk.place = folder
    walk.through()
    assert [one["accuracy"] for one in walk.laptop.runs()] == [0.5]


@follows("docs/how-to/from-mlflow-run.md")
def test_from_mlflow_run(walk, channel):
    folder = walk.laptop.home / "my-project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "MLproject").write_text("name: mine\n")
    project_wants(folder / "conda.yaml", channel)
    walk.put("userManagedEnvironment", "aml_config/local.compute")
    walk.through()
    assert sorted(one["alpha"] for one in walk.laptop.runs()) == [0.1, 0.5]
    assert all(one["environment"]["kind"] != "target" for one in map(walk.laptop.info, ids(walk)))


def project_wants(path: Path, channel) -> None:
    """An environment of the tests' own channel."""
    scratch = path.parent / "scratch"
    (scratch / "aml_config").mkdir(parents=True)
    depend(scratch, channel)
    shutil.move(scratch / "aml_config" / "conda_dependencies.yml", path)
    shutil.rmtree(scratch)


def ids(walk) -> list[str]:
    return [str(one["run_id"]) for one in walk.laptop.runs()]


@follows("docs/how-to/from-skypilot-dstack.md")
def test_from_skypilot(walk, project, machine):
    host = machine()
    reach(walk.laptop, "my-cluster", host)
    walk.laptop.knows(host)
    walk.through()


@pytest.fixture(scope="module")
def tracking(tmp_path_factory):
    """A real MLflow server, and the Python that has MLflow."""
    place = tmp_path_factory.mktemp("tracking")
    python = make(place / "env", "mlflow>=3")
    with serving_mlflow(python, place) as address:
        yield address, python


@follows("docs/how-to/mlflow.md")
@pytest.mark.timeout(600)
def test_mlflow(walk, project, tracking):
    address, python = tracking
    compute = project / "aml_config" / "local.compute"
    merge(compute, f"pythonLocation: {python}\n")
    walk.words = {r"http://tracking\.lab:5000": address}
    walk.laptop.env["MLFLOW_TRACKING_TOKEN"] = "canary"
    (client,) = (one.text for one in typed(page(walk.page)) if "--env MLFLOW_TRACKING_URI" in one.text)

    def with_mlflow(text):
        (project / "train.py").write_text(text)

    def recorded(printed):
        """With nothing to configure; it is the run that the exports name."""
        run = re.findall(r"^RunId: +(\S+)", printed, re.MULTILINE)[0]
        record = walk.laptop.info(run)
        assert (record["loss"], record["params"]["lr"]) == (0.3, "0.1"), record
        walk.words["demo-swift"] = run

    def on_that_server(_):
        (project / "train.py").write_text(TRAIN)
        body = json.dumps({"experiment_ids": ["0"]}).encode()
        question = urllib.request.Request(
            f"{address}/api/2.0/mlflow/runs/search", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(question, timeout=60) as answer:
            assert len(json.load(answer)["runs"]) == 1

    walk.put("dependencies:", None)  # the Python of the tests has MLflow
    walk.put("userManagedEnvironment: false", None)
    walk.put("import mlflow", with_mlflow)
    walk.at("mlw submit -c local train.py", after=recorded)
    walk.patience = 300
    walk.at(client, after=on_that_server)
    walk.through()


@follows("docs/how-to/spark.md")
@pytest.mark.timeout(900)
def test_spark(walk, module_machine, spark_cluster_in):
    """The sample's packages are those of the tests' own Spark, and it gets less data."""
    host = module_machine()
    cluster = spark_cluster_in(host)
    python = cluster.spark.python
    install(python, "numpy>=1.24")
    reach(walk.laptop, "edge", host)
    walk.laptop.knows(host)
    walk.laptop.env |= {"JAVA_HOME": str(cluster.spark.java), "STORE_KEY": "canary-word"}
    walk.laptop.env["SPARK_LOCAL_IP"] = host.switch.place.address(1)  # where executors find the driver
    walk.words = {"spark://host:7077": cluster.url, r"(?<=sweep\.py)( --rows 8000000)?$": " --rows 4000"}
    walk.not_shown = ("400,000 rows in 8 shards",)
    every = [one.text for one in typed(page(walk.page))]
    here, edge, _ = (one for one in every if "attach cluster" in one)

    def with_that_python(name):
        return lambda _: merge(
            walk.place / "aml_config" / f"{name}.compute", f"userManagedEnvironment: true\npythonLocation: {python}\n"
        )

    def secret(text):
        path = walk.place / "aml_config" / "spark_dependencies.yml"
        assert text.startswith("configuration:\n") and "\nconfiguration:\n" in path.read_text()
        path.write_text(path.read_text().replace("\nconfiguration:\n", f"\n{text}"))

    def lighter_java(_):
        path = walk.place / "aml_config" / "spark_dependencies.yml"
        options = "".join(f"  spark.{one}.extraJavaOptions: {QUICK}\n" for one in ("driver", "executor"))
        options += "  spark.cores.max: 1\n"  # one executor
        path.write_text(path.read_text().replace("\nconfiguration:\n", f"\nconfiguration:\n{options}"))
        with_that_python("local")(_)

    walk.at("cd sweep", after=lighter_java)
    walk.at(here, after=with_that_python("my_cluster"))
    walk.at(
        edge,
        before=lambda: walk.laptop.mlw("computetarget", "detach", "my_cluster", cwd=walk.place, check=True),
        after=with_that_python("my_cluster"),
    )
    walk.put("version: 2", None)  # a repository of packages that nobody has
    walk.put("configuration:\n  spark.executor.resource", None)
    walk.put("configuration:\n  spark.hadoop", secret)
    walk.through()
    assert {one["status"] for one in walk.laptop.runs()} == {"Completed"}
    assert sorted(cluster.completed().values()) == ["FINISHED"] * 3


@follows("docs/tutorial/samples.md")
def test_samples(walk):
    walk.through()
    names = [one.name for one in samples()]
    listed = typed(page(walk.page))[0].shown[1:]
    assert [line.split()[0] for line in listed] == names
    assert all(f"`{name}`" in page(walk.page) for name in names), "each has a line that says what it is good for"


def newcomer(walk) -> None:
    """In the source, with no environment of ours and no mlw on PATH."""
    walk.place = ROOT
    without = [one for one in walk.laptop.env["PATH"].split(":") if not (Path(one) / "mlw").exists()]
    walk.laptop.env |= {"PATH": ":".join(without), "PIP_CACHE_DIR": os.path.expanduser("~/.cache/pip")}
    walk.patience = 240


@follows("docs/index.md")
def test_the_first_minute(walk):
    newcomer(walk)
    install, create, *_ = (one.text for one in typed(page(walk.page)))
    walk.at(install, after=lambda _: setattr(walk, "place", walk.laptop.home))
    walk.through()
    assert (walk.laptop.home / "mlw" / "bin" / "mlw").exists()
    assert not (ROOT / "build" / "lib").exists(), "nothing is left in the source"


@follows("docs/how-to/plugins.md")
def test_plugins(walk, tmp_path):
    """The plugins are those that the page shows, installed where mlw is, in a throw-away home."""
    newcomer(walk)
    make(walk.laptop.home / "mlw", "pip", str(build_wheel(tmp_path / "wheel")))  # as test_the_first_minute, but quickly
    walk.shell('export PATH="$PATH:$HOME/mlw/bin"')
    walk.place = walk.laptop.home
    dry, submit = (one.text for one in typed(page(walk.page)) if one.text.startswith("mlw submit"))

    def plugin(text):
        name = re.search('^name = "(.*)"$', text, re.MULTILINE)[1]
        (walk.place / name / "pyproject.toml").write_text(text)

    def profiled(printed):
        assert '"cProfile"' in printed and '"train.py"' in printed, printed

    def left(printed):
        (run,) = re.findall(r"^RunId: +(\S+)", printed, re.MULTILINE)[:1]
        files = walk.laptop.folder(run) / "work" / "outputs"
        assert (files / "profile.pstats").stat().st_size > 0

    def tested(text):
        (walk.place / "test_it.py").write_text(text)
        code, printed = walk.shell("~/mlw/bin/python test_it.py")
        assert code == 0, printed

    walk.put("[build-system]", plugin)
    walk.put("from mlworkbench import Entry", tested)
    walk.put("from mlworkbench.config.key import Key", tested)
    walk.at(dry, after=profiled)
    walk.at(submit, after=left)
    walk.through()
    assert "Framework: Profiled" in (walk.place / "aml_config" / "profiled.runconfig").read_text()


def test_every_page_is_followed(request):
    """None is named that is not there. Of other pages each command is run for itself."""
    followed = [one.follows for one in vars(request.module).values() if hasattr(one, "follows")]
    assert sorted(followed) == sorted(WALKED)
    assert {*WALKED, *FOLLOWED_ELSEWHERE} <= {one for one in pages() if typed(page(one))}
