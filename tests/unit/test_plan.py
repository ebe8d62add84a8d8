"""Planning of runs: tables with the input and the resulting RunSpec."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlworkbench import plugin_registry
from mlworkbench.config.project_folder import Project
from mlworkbench.environments.selection_request import ResolvedEnvironment
from mlworkbench.errors import UnknownName
from mlworkbench.frameworks.framework import FrameworkCommand, Setting
from mlworkbench.frameworks.pyspark import PySpark
from mlworkbench.frameworks.python import Python
from mlworkbench.model import Compute, Entry, Interpreter, RunConfig, Snapshot
from mlworkbench.plan import INHERITED, Parts, plan
from mlworkbench.remote.shared.layout import Root
from mlworkbench.submission import Place, build_setting
from mlworkbench.submit_request import Request
from mlworkbench.targets.container_plan import Engine
from mlworkbench.targets.target import Target
from mlworkbench.targets.target_facts import TargetFacts

COMMAND = ("/usr/bin/python3", "train.py", "--lr", "0.1")
PARTS = Parts(
    project=Project(Path("/projects/demo"), "id", "demo"),
    command=FrameworkCommand(COMMAND),
    setting=Setting(
        entry=Entry("script", "train.py", ("--lr", "0.1")),
        python="/usr/bin/python3",
        runconfig=RunConfig("local", "local", framework="Python"),
        compute=Compute("local", "local"),
        root=Root("/home/me/.mlw"),
        inrun="/home/me/.mlw/lib/1/remote/inrun",
        variables={"A": "file", "B": "asked", "C": "asked"},
    ),
    environment=ResolvedEnvironment({"kind": "existing"}, Interpreter("/usr/bin/python3", (3, 11, 7), "")),
    snapshot=Snapshot("d" * 64, 3, 100),
    request=Request(environment={"B": "asked", "C": "asked"}, secrets=("TOKEN",), timeout=5.0, tags=("x",)),
    target_facts=TargetFacts("/home/me", "/data/share", 1000, 1000, "me"),
)


def test_spec():
    spec = plan(PARTS, "run-1", "key-1", 123.0)
    assert (spec.id, spec.key, spec.created, spec.timeout, spec.tags) == ("run-1", "key-1", 123.0, 5.0, ("x",))
    assert spec.commands[-1].argv == COMMAND
    assert spec.secrets == ("TOKEN",)
    assert "TOKEN" not in spec.environment


def test_environment():
    environment = plan(PARTS, "run-1", "k", 0).environment
    assert environment == {
        "PYTHONUNBUFFERED": "1",
        "MLFLOW_TRACKING_URI": "mlw:run",
        "A": "file",
        "B": "asked",
        "C": "asked",
        "PYTHONPATH": "/home/me/.mlw/lib/1/remote/inrun",
        "AZUREML_NATIVE_SHARE_DIRECTORY": "/data/share/demo-id/",
        "MLW_RUN_ID": "run-1",
        "MLW_RUN_FOLDER": "/home/me/.mlw/runs/run-1",
        "MLW_CHECKPOINTS": "/home/me/.mlw/runs/run-1/checkpoints",
        "MLW_ATTEMPT": "1",
    }


def test_variables_of_the_request_replace_those_of_the_file():
    runconfig = RunConfig("local", "local", environment_variables={"A": "file", "B": "file"})
    host = SimpleNamespace(root=PARTS.setting.root, inrun=lambda: PARTS.setting.inrun)
    place = Place(runconfig, PARTS.setting.compute, Target(host), PARTS.target_facts)
    setting = build_setting(PARTS.project, PARTS.request, PARTS.setting.entry, place, PARTS.environment)
    assert setting.variables == {"A": "file", "B": "asked", "C": "asked"}


def test_ours_come_first_and_cannot_be_set():
    asked = {"PYTHONPATH": "/mine", "MLW_RUN_ID": "x", "PYTHONUNBUFFERED": "", "MLFLOW_TRACKING_URI": "http://mine"}
    setting = replace(PARTS.setting, variables=asked)
    environment = plan(replace(PARTS, setting=setting), "run-1", "k", 0).environment
    assert environment["PYTHONPATH"] == "/home/me/.mlw/lib/1/remote/inrun:/mine"
    assert environment["MLW_RUN_ID"] == "run-1"
    assert environment["PYTHONUNBUFFERED"] == "", "the user may want it off"
    assert environment["MLFLOW_TRACKING_URI"] == "http://mine", "the user may have a server"


def test_a_container_is_decided_too():
    compute = Compute(
        "dsvm", "remotedocker", base_docker_image="team/image:1", nvidia_docker=True, mounts=("/data:ro",)
    )
    ground = replace(PARTS.target_facts, engine=Engine("/usr/bin/docker"))
    container = plan(
        replace(PARTS, setting=replace(PARTS.setting, compute=compute), target_facts=ground), "run-1", "k", 0
    ).container
    assert container is not None
    assert (container.name, container.image, container.user) == ("mlw-run-1", "team/image:1", "1000:1000")
    assert container.gpus == ("all",)
    assert ("/data", "/data", "ro") in container.mounts
    assert ("/data/share/demo-id", "/azureml-share", "rw") in container.mounts
    assert container.environment["AZUREML_NATIVE_SHARE_DIRECTORY"] == "/azureml-share/"


@pytest.mark.parametrize(
    ("contained", "nvidia", "file", "asked", "gpus", "device"),
    [
        (False, False, None, None, None, None),  # no request: the script sees all GPUs and does not wait
        (False, False, "1", None, "1", None),
        (False, False, "1", "0,2", "0,2", None),
        (True, False, None, None, None, None),
        (True, True, None, None, "free", ("all",)),
        (True, True, None, "all", "all", ("all",)),
        (True, True, None, "none", "none", None),
        (True, False, None, "1:40g", "1:40g", ("all",)),
    ],
)
def test_what_is_asked_of_gpus(contained, nvidia, file, asked, gpus, device):
    """The plan decides only whether a container gets GPUs. The target selects them."""
    compute = Compute("c", "docker" if contained else "local", nvidia_docker=nvidia)
    parts = replace(
        PARTS,
        setting=replace(PARTS.setting, compute=compute, runconfig=replace(PARTS.setting.runconfig, gpus=file)),
        target_facts=replace(PARTS.target_facts, engine=Engine("/usr/bin/docker") if contained else None),
        request=replace(PARTS.request, gpus=asked),
    )
    spec = plan(parts, "run-1", "k", 0)
    assert spec.gpus == gpus
    assert (spec.container.gpus if spec.container else None) == device


def test_planning_is_pure():
    assert plan(PARTS, "run-1", "k", 1.0) == plan(PARTS, "run-1", "k", 1.0)


def test_inherited_names_hold_no_secret():
    assert not [name for name in INHERITED if any(word in name for word in ("KEY", "TOKEN", "SECRET", "PASS", "AUTH"))]
    assert len(set(INHERITED)) == len(INHERITED)


def test_registry_answers_with_the_known_names():
    assert (
        plugin_registry.load("frameworks", "Python") is Python
        and plugin_registry.load("frameworks", "PySpark") is PySpark
    )
    with pytest.raises(
        UnknownName, match="unknown compute type 'gpu'; available: cluster, docker, local, remote, remotedocker"
    ):
        plugin_registry.load("targets", "gpu")


def test_a_plugin_comes_through_the_same_door(tmp_path, monkeypatch):
    (tmp_path / "plug.py").write_text("def make(): return 'made'")
    (tmp_path / "plug-1.0.dist-info").mkdir()
    (tmp_path / "plug-1.0.dist-info" / "entry_points.txt").write_text(
        "[console_scripts]\nx = y:z\n\n[mlworkbench.targets]\nmoon = plug:make\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin_registry._all.cache_clear()
    try:
        assert plugin_registry.load("targets", "moon")() == "made"
        assert "local" in plugin_registry.known("targets")
    finally:
        plugin_registry._all.cache_clear()
        sys.modules.pop("plug", None)


def test_the_door_opens_on_everything_it_names():
    import mlworkbench

    for name in [*mlworkbench.__all__, "log"]:
        assert getattr(mlworkbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mlworkbench.nothing
