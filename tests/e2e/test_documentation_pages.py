"""Follow every page, command by command, on real machines; see tests/machines/pages.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

from mlworkbench.config.gallery import load_samples
from mlworkbench.config.keys import DEFAULT_IMAGE
from tests.building import build_wheel
from tests.e2e.documentation_helpers import (
    FOLLOWED_PAGES,
    NOT_RUN,
    PAGES_WITH_OWN_TESTS,
    add_fake_gpus,
    add_ssh_alias,
    follows_page,
    mlflow_server,
)
from tests.e2e.mlflow_environments import NEWEST, mlflow_python
from tests.e2e.python_environments import create_environment
from tests.machines.channel import depend
from tests.machines.network import wait_until
from tests.machines.nvml import USE_GPU
from tests.machines.pages import ROOT, Command, PageRunner, merge, page, pages, typed_commands
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
def runner(request, laptop):
    """Create a runner for the page that the test is marked with. Afterwards, check that the test ran the page."""
    name = request.function.follows
    page_walk = PageRunner(laptop, name, skipped={command for page_, command in NOT_RUN if page_ == name})
    yield page_walk
    assert page_walk.started, f"{page_walk.page} was not followed"


@pytest.fixture
def project(runner):
    """Create the project that the page starts with, as the page shows it, with a quick script."""
    for text in ("mlw project create demo", "cd demo"):
        runner.on_command(text)
        runner.type(Command(text))
        runner.skipped.add(text)
    runner.forget_variables()  # so that later changes of laptop.env take effect
    (runner.place / "train.py").write_text(TRAIN)
    return runner.place


ATTACH = "mlw computetarget attach {} --name my_dsvm --address 10.0.0.7 --username ada"


def attached_by_page(runner, host, kind="remote"):
    """Let the page attach this machine. Containers use the packages of the image, so that no environment is built."""
    add_ssh_alias(runner.laptop, host.address, host)
    runner.laptop.trust_host_keys(host)
    runner.replacements[r"10\.0\.0\.7"] = host.address
    if kind == "remotedocker":
        keys = f"userManagedEnvironment: true\nbaseDockerImage: {host.engine.image}\n"
        compute = runner.laptop.home / "demo" / "aml_config" / "my_dsvm.compute"
        runner.on_command(ATTACH.format(kind), after=lambda _: merge(compute, keys))


# Prints and saves the same as the sample's script, without PyTorch. The sample tests run the real script.
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


def use_small_packages(root: Path, channel, *pip: str, **scripts: str) -> None:
    """Replace the large packages of a sample with small ones."""
    for name, text in scripts.items():
        (root / f"{name}.py").write_text(text)
    depend(root, channel, *pip)
    packages = (root / "aml_config" / "conda_dependencies.yml").read_text()
    (root / "aml_config" / "conda_dependencies_gpu.yml").write_text(packages)


@follows_page("docs/tutorial/first-gpu-run.md")
@pytest.mark.timeout(600)
def test_tutorial_page(runner, machine, engine, channel):
    """The machine's GPU, container toolkit, and PyTorch are simulated; everything else is real."""
    engine.stop()
    engine.start(False, True, "--add-runtime", "nvidia=runc")
    engine.docker("tag", engine.image, DEFAULT_IMAGE)
    host = machine(docker="yes", password="open sesame")
    add_fake_gpus(host, 1)
    runner.replacements = {"SHA256:…": host.host_key_fingerprint, r"10\.0\.0\.7": host.address}
    # A simulated GPU reports no use by containers, so these lines are not printed.
    runner.not_shown = ("GPU used:", "GPU cause:", "Remedy:")
    attach_, *_ = (command.text for command in typed_commands(page(runner.page)) if "attach" in command.text)
    questions = (
        ("Trust this host key? [y/N]: ", "y"),
        (f"Password for ada@{host.address}:22:", "open sesame"),
    )

    def as_shown(file):
        """Return a check that all lines on the page are in the file."""

        def compare(text):
            lines = [line.strip() for line in (runner.place / file).read_text().splitlines()]
            assert [line for line in text.splitlines() if runner._localized(line).strip() not in lines] == []

        return compare

    def packages(text):
        as_shown("aml_config/conda_dependencies_gpu.yml")(text)
        use_small_packages(runner.place, channel, train=PYTORCH)

    def two_lines(text):
        script = (runner.place / "train.py").read_text()
        assert all(line.partition("(")[0] in script for line in text.split("\n\n"))

    def something_runs():
        (runner.place / "slow.py").write_text(
            "import time\nwhile True:\n    print('tick', flush=True)\n    time.sleep(0.1)\n"
        )
        arguments = ("submit", "--detach", "-c", "my_dsvm", "slow.py")
        runner.replacements["mnist-swift(?!-)"] = runner.laptop.mlw(*arguments, cwd=runner.place, check=True).run

    runner.assign_file("import mlworkbench", two_lines)
    runner.assign_file("dependencies:", packages)
    runner.assign_file("type: remotedocker", as_shown("aml_config/my_dsvm.compute"))
    runner.assign_file("Target: my_dsvm", as_shown("aml_config/my_dsvm.runconfig"))
    runner.on_command(attach_, answers=questions)
    first: list[str] = []
    submit = "mlw submit -c my_dsvm --gpus 1 train.py --epochs 30"
    runner.on_command(submit, after=lambda output: first.extend(re.findall(r"^RunId: +(\S+)", output, re.MULTILINE)))
    # Doctor reports an error, because the GPU in the container is only simulated.
    runner.on_command("mlw doctor gpu -t my_dsvm", code=75)
    runner.on_command("mlw ps", before=something_runs)
    runner.on_command("mlw logs -f mnist-swift", until="tick")
    runner.on_command(
        "mlw cancel mnist-swift", after=lambda _: runner.replacements.update({"mnist-swift(?!-)": first[0]})
    )
    runner.run()


@follows_page("README.md")
def test_readme(runner, machine, engine, channel):
    host = machine(docker="yes", password="open sesame")
    add_fake_gpus(host, 1)
    engine.stop()
    engine.start(False, True, "--add-runtime", "nvidia=runc")
    engine.docker("tag", engine.image, DEFAULT_IMAGE)
    runner.replacements = {"SHA256:…": host.host_key_fingerprint, r"10\.0\.0\.7": host.address}
    (attach_,) = (
        command.text for command in typed_commands(page(runner.page)) if "computetarget attach" in command.text
    )
    questions = (
        ("Trust this host key? [y/N]: ", "y"),
        (f"Password for ada@{host.address}:22:", "open sesame"),
    )

    runner.on_command("mlw submit -c local train.py --lr 0.3", after=lambda _: depend(runner.place, channel))
    runner.on_command(attach_, answers=questions)
    runner.timeout = 240
    runner.run()


@follows_page("docs/how-to/gpus.md")
def test_gpus(runner, machine):
    host = machine()
    gpus = add_fake_gpus(host, 1)
    attached_by_page(runner, host)
    use = f"import os, time\nos.environ['MLW_FAKE_GPUS'] = {str(gpus.state)!r}\n{USE_GPU}"

    def scripts(_):
        (runner.place / "check.py").write_text(use + "use_gpu(memory=3 << 30)\ntime.sleep(1.5)\n")
        (runner.place / "hold.py").write_text(TRAIN)

    runner.on_command("cd demo", after=scripts)
    (submit,) = (command.text for command in typed_commands(page(runner.page)) if command.text.startswith("mlw submit"))
    held = ("submit", "--detach", "-c", "my_dsvm", "--gpus", "1", "hold.py", "--wait")
    runner.on_command(
        submit, before=lambda: occupy_gpu(runner, held), when=("queued:", lambda: (host.home / "go").touch())
    )
    runner.run()


@follows_page("docs/how-to/attach-by-key.md")
def test_attach_by_key(runner, project, machine):
    host = machine(password="open sesame")
    add_ssh_alias(runner.laptop, "gpu.lab.example", host)
    runner.laptop.trust_host_keys(host)
    runner.replacements["SHA256:…"] = host.host_key_fingerprint
    _, _, first, *_, changed, new_attach, gone, again = [command.text for command in typed_commands(page(runner.page))]
    detach = ("computetarget", "detach", "box")

    def set_up_anew():
        host.change_host_key()
        runner.replacements["SHA256:…"] = host.host_key_fingerprint

    def cloned():
        """Start as another user does: the files exist, but the machine was never attached."""
        runner.laptop.mlw(*first.split()[1:], cwd=project, check=True)
        kept = {path: path.read_text() for path in (project / "aml_config").glob("box.*")}
        runner.laptop.mlw(*detach, cwd=project, check=True)
        for path, text in kept.items():
            path.write_text(text)

    def by_password():
        """Attach with a password first, so that an installed key exists."""
        runner.laptop.mlw(*detach, cwd=project, check=True)
        (runner.laptop.ssh_folder / "config").write_text(f"Host gpu.lab.example\n  HostName {host.address}\n")
        named = ("--host-key", host.host_key_fingerprint, "--password-stdin")
        runner.laptop.mlw(*first.split()[1:], *named, cwd=project, check=True, input="open sesame\n")

    def cloned_by_the_owner_of_a_key():
        add_ssh_alias(runner.laptop, "gpu.lab.example", host)
        (runner.laptop.ssh_folder / "known_hosts").write_text(host.host_key)
        cloned()

    runner.on_command(changed, before=set_up_anew)
    runner.on_command(new_attach, before=by_password)
    runner.on_command(again, before=cloned_by_the_owner_of_a_key)
    runner.run()
    assert "box" in runner.laptop.mlw("computetarget", "list", cwd=project).out


@follows_page("docs/how-to/jump-host.md")
def test_jump_host(runner, project, machine):
    gate = machine()
    far = machine(jump=gate, docker="yes")
    config = f"Host *\n  IdentityFile {gate.key}\n  IdentityFile {far.key}\n"
    runner.laptop.ssh_config(config)
    runner.laptop.trust_host_keys(gate, far)
    runner.replacements = {r"10\.0\.0\.7": far.address, r"gate\.lab\.example": gate.address, ":2222": ""}
    *_, by_option, by_alias = (command.text for command in typed_commands(page(runner.page)))

    def alias(text):
        runner.laptop.ssh_config(config + runner._localized(text))

    runner.assign_file("Host gate", alias)
    runner.on_command(
        by_alias, before=lambda: runner.laptop.mlw("computetarget", "detach", "my_dsvm", cwd=project, check=True)
    )
    runner.run()
    assert "address: box" in (project / "aml_config" / "my_dsvm.compute").read_text()


@follows_page("docs/how-to/private-registry.md")
def test_private_registry(runner, project, machine, registry):
    host = machine(docker="yes")
    runner.laptop.enable_keyring()
    runner.replacements = {
        r"registry\.lab\.example:5000/team/cuda:12": registry.image,
        r"registry\.lab\.example:5000": registry.address,
        "ada-puller": registry.user,
    }
    attached_by_page(runner, host, "remotedocker")
    runner.assign_file("type: remotedocker", "aml_config/my_dsvm.compute")
    *_, keep, _ = (command.text for command in typed_commands(page(runner.page)))
    runner.on_command(keep, answers=(("Password", registry.password),))
    runner.run()


@follows_page("docs/how-to/shared-data.md")
def test_shared_data(runner, project, machine):
    host = machine(docker="yes")
    folders = {name: host.home / name for name in ("data", "scratch", "shared")}
    for folder in folders.values():
        folder.mkdir()
        os.chown(folder, host.uid, host.uid)
    (folders["data"] / "imagenet").mkdir()
    runner.replacements = {
        r"/data/shared\b": str(folders["shared"]),
        r"/data/imagenet\b": f"{folders['data']}/imagenet",
    }
    runner.replacements |= {r"(?<= )/data\b": str(folders["data"]), r"(?<= )/scratch\b": str(folders["scratch"])}
    attached_by_page(runner, host, "remotedocker")
    compute = "aml_config/my_dsvm.compute"
    runner.assign_file("import os", lambda text: (project / "train.py").write_text(TRAIN + text))
    runner.assign_file("nativeSharedDirectory", compute)
    runner.assign_file("mounts:", compute)
    *_, allow, forbid, fetch = (command.text for command in typed_commands(page(runner.page)))

    def run(*more):
        done = runner.laptop.mlw("submit", "-c", "my_dsvm", *more, "train.py", cwd=project)
        assert done.code == 0, done
        return done.run

    def all_three():
        """Allow the shared folder and submit the page's script, which uses the shared folder and the mounts."""
        about = json.loads((project / "aml_config" / "project.json").read_text())
        project_folder = folders["shared"] / f"{about['Name']}-{about['Id'][:8]}"
        runner.laptop.mlw(
            "computetarget", "update", "my_dsvm", "--allow-mount", str(project_folder), cwd=project, check=True
        )
        run()
        assert [path.read_text() for path in folders["shared"].rglob("counts.txt")] == ["one more\n"]

    def left_there():
        config = project / "aml_config" / "my_dsvm.runconfig"
        merge(config, "FetchOutputs: none\n")
        runner.replacements["RUN"] = run("--allow-mount", str(folders["scratch"]))

    runner.on_command(allow, after=lambda _: all_three())
    runner.on_command(fetch, before=left_there)
    runner.run()
    assert (project / "results" / "model.ckpt").read_text() == "weights"


@follows_page("docs/how-to/hugging-face-caches.md")
def test_hugging_face_caches(runner, machine):
    """The Hugging Face library is not needed: the page's script shows the folder that the library would use."""
    host = machine(docker="yes")
    cache = host.home / "huggingface"
    cache.mkdir()
    os.chown(cache, host.uid, host.uid)
    runner.replacements = {"/data/huggingface": str(cache)}
    attached_by_page(runner, host, "remotedocker")
    runner.laptop.env["HF_TOKEN"] = "canary-word"
    runner.assign_file("import os\n\nos.environ.setdefault", None)
    runner.run()


@follows_page("docs/how-to/wandb.md")
def test_wandb(runner, machine):
    """A stub replaces the wandb package, because its server is not available."""
    attached_by_page(runner, machine(docker="yes"), "remotedocker")
    runner.laptop.env["WANDB_API_KEY"] = "canary-word"
    runner.assign_file("dependencies:", lambda _: (runner.place / "wandb.py").write_text(WANDB))
    runner.run()
    (record,) = (runner.place / "results" / "wandb").glob("offline-run-*/run.json")
    newest = runner.laptop.runs()[0]
    assert json.loads(record.read_text()) == {"id": newest["run_id"], "project": "demo", "steps": 10, "key": False}
    assert newest["loss"] == pytest.approx(0.1)


# Writes to the same folder as the real package in offline mode. mlw keeps the folder, although it cannot read the file.
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
        folder = os.path.join("wandb", "offline-run-1")
        os.makedirs(folder)
        open(os.path.join(folder, "run-1.wandb"), "w").close()
        about = {"id": self.about["id"], "project": self.about["project"], "steps": self.steps}
        about["key"] = "WANDB_API_KEY" in os.environ
        with open(os.path.join(folder, "run.json"), "w") as file:
            json.dump(about, file)

def init(**about):
    return Run(**about)
"""


@follows_page("docs/how-to/move-history.md")
def test_move_history(runner):
    """The new machine is this one, with an empty data folder and the project in another place."""
    project = runner.place = runner.laptop.project("demo", train=TRAIN)
    done = runner.laptop.mlw("submit", "-c", "local", "train.py", cwd=project, check=True)
    runner.laptop.mlw("history", "tag", done.run, "--add", "keep", cwd=project, check=True)
    _, unpack = (command.text for command in typed_commands(page(runner.page)) if "tar " in command.text)

    def new_machine():
        runner.laptop.store.rename(runner.laptop.home / "old-store")
        runner.place = project.rename(project.with_name("moved"))

    runner.on_command(unpack, before=new_machine)
    runner.run()
    (moved,) = runner.laptop.runs()
    assert (moved["run_id"], moved["tags"], moved["status"]) == (done.run, ["keep"], "Completed")
    restore = ("project", "restore", "--run-id", done.run, "--path", str(runner.laptop.home / "restored"))
    runner.laptop.mlw(*restore, cwd=runner.place, check=True)
    assert list((runner.laptop.home / "restored").rglob("train.py"))
    runner.laptop.mlw("submit", "-c", "local", "train.py", cwd=runner.place, check=True)


@follows_page("docs/how-to/upgrade-uninstall.md")
def test_upgrade_and_uninstall(runner, machine):
    host = machine()
    add_ssh_alias(runner.laptop, host.address, host)
    runner.laptop.trust_host_keys(host)
    project = runner.place = runner.laptop.project("demo", train=TRAIN)
    where = ("--address", host.address, "--username", host.user)
    runner.laptop.mlw("computetarget", "attach", "remote", "--name", "my_dsvm", *where, cwd=project, check=True)
    runner.laptop.mlw("submit", "-c", "my_dsvm", "train.py", cwd=project, check=True)
    (runner.laptop.home / "mlw").mkdir()
    runner.on_command("mlw doctor", code=(0, 1))  # the result depends on this machine
    runner.on_command("mlw computetarget detach my_dsvm --purge", answers=(("[y/N]:", "y"),))
    runner.run()
    assert not (host.home / ".mlw").exists() and not runner.laptop.store.exists()
    assert not (runner.laptop.home / "mlw").exists() and "<html" in (project / "history.html").read_text()


@follows_page("docs/how-to/offline-target.md")
def test_offline_target(runner, project, machine, channel, engine):
    host = machine(docker="yes")  # the machine has no internet access
    depend(project, channel)
    (project / "train.py").write_text("import hello, sys\nprint('in', sys.prefix)\n")
    add_ssh_alias(runner.laptop, "box", host)
    runner.laptop.use_engine(engine)
    ssh = runner.laptop.home / "bin" / "ssh"  # OpenSSH ignores HOME when it looks for its files
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F "{runner.laptop.home}/.ssh/config" "$@"\n')
    ssh.chmod(0o755)
    runner.laptop.env["PATH"] = f"{ssh.parent}:{runner.laptop.env['PATH']}"
    runner.laptop.trust_host_keys(host)
    runner.replacements["my-image:1"] = engine.image
    runner.run()


@follows_page("docs/how-to/metrics.md")
def test_metrics(runner):
    """The page creates the project and shows both of its scripts, so the test prepares nothing."""
    first, second = (
        command.text for command in typed_commands(page(runner.page)) if command.text.startswith("mlw submit")
    )

    def remember(name):
        return lambda output: runner.replacements.update(
            {f"{name}(?!-)": re.findall(r"^RunId: +(\S+)", output, re.MULTILINE)[0]}
        )

    def analyzed(text):
        (runner.place / "analyze.py").write_text(runner._localized(text))
        code, printed = runner.shell(f"{sys.executable} analyze.py")
        assert code == 0 and "demo-" in printed, printed

    def recorded(text):
        (runner.place / "experiments.py").write_text(text)
        code, printed = runner.shell(f"{sys.executable} experiments.py && mlw history list")
        assert code == 0 and "lr 0.1" in printed and "lr 0.3" in printed, printed

    runner.assign_file("# experiments.py", recorded)
    runner.on_command(first, after=remember("demo-swift"))
    runner.on_command(second, after=remember("demo-brave"))
    runner.assign_file("# analyze.py", analyzed)
    runner.run()
    assert "<html" in (runner.place / "report.html").read_text()


@follows_page("docs/how-to/sweeps.md")
def test_sweeps(runner, machine):
    """The page creates the project and uses the ``train.py`` of a new project."""
    host = machine()
    add_fake_gpus(host, 2)
    attached_by_page(runner, host)
    runs = [command.text for command in typed_commands(page(runner.page)) if command.text.startswith("mlw submit")]

    def remember(printed):
        runs_found = re.findall(r"^[* ].*?(demo-[a-z]+-[a-z]+-\w+)$", printed, re.MULTILINE)
        runner.replacements |= {"demo-steady(?!-)": runs_found[0], "demo-neat(?!-)": runs_found[1]}
        runner.replacements["demo-smart-larch(?!-)"] = re.findall(r"^RunId: +(\S+)", printed, re.MULTILINE)[0]

    def add_to_runconfig(text):
        file = runner.place / "aml_config" / "local.runconfig"
        file.write_text(file.read_text() + text)

    runner.assign_file("MetricGoals:", add_to_runconfig)
    runner.on_command(runs[0], after=remember)
    runner.timeout = 240
    runner.run()


@follows_page("docs/how-to/team.md")
def test_team(runner, project, machine):
    host = machine()
    add_fake_gpus(host, 1)
    attached_by_page(runner, host)
    (submit,) = (command.text for command in typed_commands(page(runner.page)) if command.text.startswith("mlw submit"))
    held = ("submit", "--detach", "-c", "my_dsvm", "--gpus", "1", "train.py", "--wait")
    runner.on_command(
        submit, before=lambda: occupy_gpu(runner, held), when=("queued:", lambda: (host.home / "go").touch())
    )
    runner.on_command("mlw gpus -t my_dsvm --watch", until="NVIDIA driver")
    runner.on_command("mlw computetarget detach my_dsvm --purge", answers=(("[y/N]:", "y"),))
    runner.run()
    assert "<html" in (project / "report.html").read_text()


def occupy_gpu(runner, message):
    """Submit a run with these arguments and wait until it has the GPU."""
    done = runner.laptop.mlw(*message, cwd=runner.place, check=True)
    wait_until(lambda: runner.laptop.info(done.run, runner.place)["status"] == "Running", "the first run has the GPU")


@follows_page("docs/how-to/ci.md")
def test_ci(runner, project, machine):
    host = machine()
    attached_by_page(runner, host)
    runner.laptop.env |= {"KEY_FILE": str(host.key), "CI_PIPELINE_ID": "17", "HF_TOKEN": "canary"}
    runner.laptop.env["GPU_HOST"] = host.address
    runner.replacements["SHA256:…"] = host.host_key_fingerprint
    runner.run()
    assert '"Completed"' in (project / "result.json").read_text()
    assert (project / "artifacts" / "model.ckpt").exists() and (project / "report.html").exists()


@follows_page("docs/how-to/from-azure-ml-workbench.md")
def test_from_azure_ml_workbench(runner):
    """Start with a folder as the original left it."""
    folder = runner.laptop.home / "old"
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
    runner.place = folder
    runner.run()
    assert [run["accuracy"] for run in runner.laptop.runs()] == [0.5]


@follows_page("docs/how-to/from-mlflow-run.md")
def test_from_mlflow_run(runner, channel):
    folder = runner.laptop.home / "my-project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "MLproject").write_text("name: mine\n")
    write_test_environment(folder / "conda.yaml", channel)
    runner.assign_file("userManagedEnvironment", "aml_config/local.compute")
    runner.run()
    assert sorted(run["alpha"] for run in runner.laptop.runs()) == [0.1, 0.5]
    assert all(run["environment"]["kind"] != "target" for run in map(runner.laptop.info, ids(runner)))


def write_test_environment(path: Path, channel) -> None:
    """Write an environment file that uses the tests' own channel."""
    scratch = path.parent / "scratch"
    (scratch / "aml_config").mkdir(parents=True)
    depend(scratch, channel)
    shutil.move(scratch / "aml_config" / "conda_dependencies.yml", path)
    shutil.rmtree(scratch)


def ids(runner) -> list[str]:
    return [str(run["run_id"]) for run in runner.laptop.runs()]


@follows_page("docs/how-to/from-skypilot-dstack.md")
def test_from_skypilot(runner, project, machine):
    host = machine()
    add_ssh_alias(runner.laptop, "my-cluster", host)
    runner.laptop.trust_host_keys(host)
    runner.run()


@pytest.fixture(scope="module")
def tracking(tmp_path_factory):
    """A real MLflow server and a Python with MLflow."""
    place = tmp_path_factory.mktemp("tracking")
    python = mlflow_python(NEWEST)
    with mlflow_server(python, place) as address:
        yield address, python


@follows_page("docs/how-to/mlflow.md")
@pytest.mark.timeout(600)
def test_mlflow(runner, project, tracking):
    address, python = tracking
    compute = project / "aml_config" / "local.compute"
    merge(compute, f"pythonLocation: {python}\n")
    runner.replacements = {r"http://tracking\.lab:5000": address}
    runner.laptop.env["MLFLOW_TRACKING_TOKEN"] = "canary"
    (client,) = (
        command.text for command in typed_commands(page(runner.page)) if "--env MLFLOW_TRACKING_URI" in command.text
    )

    def with_mlflow(text):
        (project / "train.py").write_text(text)

    def recorded(printed):
        """Check the metric and the parameter of the run, and use its ID in the page's exports."""
        run = re.findall(r"^RunId: +(\S+)", printed, re.MULTILINE)[0]
        record = runner.laptop.info(run)
        assert (record["loss"], record["params"]["lr"]) == (0.3, "0.1"), record
        runner.replacements["demo-swift"] = run

    def on_that_server(_):
        (project / "train.py").write_text(TRAIN)
        body = json.dumps({"experiment_ids": ["0"]}).encode()
        question = urllib.request.Request(
            f"{address}/api/2.0/mlflow/runs/search", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(question, timeout=60) as answer:
            assert len(json.load(answer)["runs"]) == 1

    runner.assign_file("dependencies:", None)  # the Python of the tests has MLflow
    runner.assign_file("userManagedEnvironment: false", None)
    runner.assign_file("import mlflow", with_mlflow)
    runner.on_command("mlw submit -c local train.py", after=recorded)
    runner.timeout = 300
    runner.on_command(client, after=on_that_server)
    runner.run()


@follows_page("docs/how-to/spark.md")
@pytest.mark.timeout(900)
def test_spark(runner, module_machine, spark_cluster_in):
    """The sample runs with the Python of the tests' own Spark, and with less data."""
    host = module_machine()
    cluster = spark_cluster_in(host)
    python = cluster.spark.python
    add_ssh_alias(runner.laptop, "edge", host)
    runner.laptop.trust_host_keys(host)
    runner.laptop.env |= {"JAVA_HOME": str(cluster.spark.java), "STORE_KEY": "canary-word"}
    runner.laptop.env["SPARK_LOCAL_IP"] = host.switch.sandbox.address(1)  # the driver's address for executors
    runner.replacements = {"spark://host:7077": cluster.url, r"(?<=sweep\.py)( --rows 8000000)?$": " --rows 4000"}
    runner.not_shown = ("400,000 rows in 8 shards",)
    every = [command.text for command in typed_commands(page(runner.page))]
    local, edge, _ = (command for command in every if "attach cluster" in command)

    def with_that_python(name):
        return lambda _: merge(
            runner.place / "aml_config" / f"{name}.compute", f"userManagedEnvironment: true\npythonLocation: {python}\n"
        )

    def secret(text):
        path = runner.place / "aml_config" / "spark_dependencies.yml"
        assert text.startswith("configuration:\n") and "\nconfiguration:\n" in path.read_text()
        path.write_text(path.read_text().replace("\nconfiguration:\n", f"\n{text}"))

    def lighter_java(_):
        path = runner.place / "aml_config" / "spark_dependencies.yml"
        options = "".join(f"  spark.{role}.extraJavaOptions: {QUICK}\n" for role in ("driver", "executor"))
        options += "  spark.cores.max: 1\n"  # starts only one executor
        path.write_text(path.read_text().replace("\nconfiguration:\n", f"\nconfiguration:\n{options}"))
        with_that_python("local")(_)

    runner.on_command("cd sweep", after=lighter_java)
    runner.on_command(local, after=with_that_python("my_cluster"))
    runner.on_command(
        edge,
        before=lambda: runner.laptop.mlw("computetarget", "detach", "my_cluster", cwd=runner.place, check=True),
        after=with_that_python("my_cluster"),
    )
    runner.assign_file("version: 2", None)  # the file names a package repository that does not exist
    runner.assign_file("configuration:\n  spark.executor.resource", None)
    runner.assign_file("configuration:\n  spark.hadoop", secret)
    runner.run()
    assert {command["status"] for command in runner.laptop.runs()} == {"Completed"}
    assert sorted(cluster.completed().values()) == ["FINISHED"] * 3


@follows_page("docs/tutorial/samples.md")
def test_samples(runner):
    runner.run()
    names = [sample.name for sample in load_samples()]
    listed = typed_commands(page(runner.page))[0].shown[1:]
    assert [line.split()[0] for line in listed] == names
    assert all(f"`{name}`" in page(runner.page) for name in names), "each has a line that says what it is good for"


def start_without_mlw(runner) -> None:
    """Start in the source tree, without a virtual environment and without mlw on PATH."""
    runner.place = ROOT
    without = [folder for folder in runner.laptop.env["PATH"].split(":") if not (Path(folder) / "mlw").exists()]
    runner.laptop.env |= {"PATH": ":".join(without), "PIP_CACHE_DIR": os.path.expanduser("~/.cache/pip")}
    runner.timeout = 240


@follows_page("docs/index.md")
def test_index_page(runner):
    start_without_mlw(runner)
    install, create, *_ = (command.text for command in typed_commands(page(runner.page)))
    runner.on_command(install, after=lambda _: setattr(runner, "place", runner.laptop.home))
    runner.run()
    assert (runner.laptop.home / "mlw" / "bin" / "mlw").exists()
    assert not (ROOT / "build" / "lib").exists(), "nothing is left in the source"


@follows_page("docs/how-to/plugins.md")
def test_plugins(runner, tmp_path):
    """The plugins are those that the page shows, installed next to mlw, in a temporary home."""
    start_without_mlw(runner)
    # Install mlw as test_index_page does, but faster.
    create_environment(runner.laptop.home / "mlw", "pip", str(build_wheel(tmp_path / "wheel")))
    runner.shell('export PATH="$PATH:$HOME/mlw/bin"')
    runner.place = runner.laptop.home
    dry, submit = (
        command.text for command in typed_commands(page(runner.page)) if command.text.startswith("mlw submit")
    )

    def plugin(text):
        name = re.search('^name = "(.*)"$', text, re.MULTILINE)[1]
        (runner.place / name / "pyproject.toml").write_text(text)

    def profiled(printed):
        assert '"cProfile"' in printed and '"train.py"' in printed, printed

    def left(printed):
        (run,) = re.findall(r"^RunId: +(\S+)", printed, re.MULTILINE)[:1]
        files = runner.laptop.folder(run) / "work" / "outputs"
        assert (files / "profile.pstats").stat().st_size > 0

    def tested(text):
        (runner.place / "test_it.py").write_text(text)
        code, printed = runner.shell("~/mlw/bin/python test_it.py")
        assert code == 0, printed

    runner.assign_file("[build-system]", plugin)
    runner.assign_file("from mlworkbench import Entry", tested)
    runner.assign_file("from mlworkbench.config.key import Key", tested)
    runner.on_command(dry, after=profiled)
    runner.on_command(submit, after=left)
    runner.run()
    assert "Framework: Profiled" in (runner.place / "aml_config" / "profiled.runconfig").read_text()


def test_every_page_is_followed(request):
    """Every page in FOLLOWED_PAGES has one test, and every listed page contains commands."""
    followed = [value.follows for value in vars(request.module).values() if hasattr(value, "follows")]
    assert sorted(followed) == sorted(FOLLOWED_PAGES)
    assert {*FOLLOWED_PAGES, *PAGES_WITH_OWN_TESTS} <= {value for value in pages() if typed_commands(page(value))}
