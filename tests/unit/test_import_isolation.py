"""mlw loads modules and programs from its installation, whatever the current folder contains."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench import import_isolation
from mlworkbench.config.project_files import find_root
from mlworkbench.import_isolation import drop_relative_folders, module_path, own_command, own_environment
from mlworkbench.remote.shared.program_lookup import is_in_project, safe_path, which
from mlworkbench.ui.operation_runner import OperationRunner
from mlworkbench.version import __version__

POINTS = "[mlworkbench.targets]\nlocal = evil:local\nevil = evil:local\n"


@pytest.fixture
def project(tmp_path):
    """A project with a trap for every module of the standard library and others that Python or mlw import."""
    root = tmp_path / "project"
    (root / "aml_config").mkdir(parents=True)
    (root / "aml_config" / "project.json").write_text('{"Id": "1c4a6a3c-5e3a-4a8e-9f6b-0f8f3e0f9d11", "Name": "p"}')
    for folder in (root, root / "lib"):
        folder.mkdir(exist_ok=True)
        for name in (*sys.stdlib_module_names, "mlworkbench", "sitecustomize", "usercustomize", "click", "yaml"):
            (folder / f"{name}.py").write_text(f'open("{tmp_path}/fired-{name}", "w").close()\n')
        (folder / "pynvml.py").write_text("# of the project\n")
        (folder / "evil-1.0.dist-info").mkdir()
        (folder / "evil-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    return root


def executed_files(project: Path) -> list[str]:
    return sorted(path.name for path in project.parent.glob("fired-*"))


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": os.path.expanduser("~"), **more}


CARELESS = {"PYTHONPATH": ":.:lib:", "PYTHONUSERBASE": ".", "PYTHONPYCACHEPREFIX": "cache"}


@pytest.mark.parametrize("more", [{}, CARELESS, {"PYTHONPATH": "PROJECT"}, {"PYTHONPATH": "PROJECT/lib"}])
def test_mlw_starts_itself_without_anything_of_the_current_folder(project, tmp_path, more):
    given = {name: value.replace("PROJECT", str(project)) for name, value in more.items()}
    environ = own_environment(environment(MLW_HOME=str(tmp_path / "store"), **given), str(project))
    done = subprocess.run(own_command(["project", "show", "-o", "json"]), cwd=project, env=environ, capture_output=True)
    assert executed_files(project) == [] and done.returncode == 0, done
    assert json.loads(done.stdout)["folder"] == str(project)


def test_so_does_what_the_browser_sets_off(project, monkeypatch):
    for name, value in CARELESS.items():
        monkeypatch.setenv(name, value)
    assert asyncio.run(OperationRunner().run("--version", cwd=project)) == f"mlw, version {__version__}"
    assert executed_files(project) == []


@pytest.mark.parametrize("way", ["-m", "-c", "file"])
def test_neither_plugins_nor_pynvml_come_from_the_current_folder(project, tmp_path, way):
    """With ``-m`` and PYTHONPATH, sys.path contains the absolute path of the current folder."""
    code = "from mlworkbench import plugin_registry\nfrom mlworkbench.hosts import bundle\nimport json\n"
    code += "print(json.dumps([plugin_registry.known('targets'), bundle.files()['vendor/pynvml.py'][:200].decode()]))\n"
    for path in project.rglob("*.py"):
        if path.name != "pynvml.py":
            path.unlink()  # Python imports them before it imports mlworkbench
    (project / "outsider.py").write_text(code)
    words = {"-m": ["-m", "outsider"], "-c": ["-c", code], "file": [str(project / "outsider.py")]}[way]
    environ = environment(PYTHONPATH=f"{project}:lib")
    done = subprocess.run([sys.executable, *words], cwd=project, env=environ, capture_output=True, check=True)
    targets, binding = json.loads(done.stdout)
    assert targets["local"] == "mlworkbench.targets.types:LOCAL" and "evil" not in targets
    assert "of the project" not in binding


def test_python_m_mlworkbench_leaves_the_current_folder_as_soon_as_it_can(project, tmp_path):
    """mlw cannot control the modules that Python imports before it, so the project has no traps for them."""
    for path in project.rglob("*.py"):
        if path.stem not in ("click", "yaml", "sqlite3", "difflib"):
            path.unlink()
    words = [sys.executable, "-m", "mlworkbench", "project", "show"]
    environ = environment(MLW_HOME=str(tmp_path / "store"), PYTHONPATH="lib")
    done = subprocess.run(words, cwd=project, env=environ, capture_output=True)
    assert done.returncode == 0 and executed_files(project) == [], done


def test_module_path(project, monkeypatch):
    """Project folders and relative paths are removed; the interpreter's own paths stay, even inside the project."""
    packages = str(project / ".venv" / "lib" / "site-packages")
    linked = project.parent / "linked"
    linked.symlink_to(project)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(project / "lib"), "src", "/opt/modules", str(linked), "")))
    entries = [str(project), "", "lib", str(project / "lib"), str(project / "src"), "/opt/modules", str(linked)]
    monkeypatch.setattr(sys, "path", [*entries, packages, import_isolation.OWN])
    assert module_path() == ["/opt/modules", packages, import_isolation.OWN]


def test_the_folder_of_mlw_itself_stays(tmp_path, monkeypatch):
    """On clusters, PYTHONPATH may contain the folder of mlw itself, even if it is the current folder."""
    monkeypatch.chdir(import_isolation.OWN)
    assert own_environment({"PYTHONPATH": f"{import_isolation.OWN}:."}, import_isolation.OWN) == {
        "PYTHONPATH": import_isolation.OWN
    }


def test_programs_are_not_taken_from_projects(project, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    for folder in (project, project / "bin", outside):
        folder.mkdir(exist_ok=True)
        (folder / "docker").write_text("#!/bin/sh\n")
        (folder / "docker").chmod(0o755)
    monkeypatch.chdir(project)
    path = os.pathsep.join((".", "", "bin", "./bin", str(project), str(project / "bin"), str(outside)))
    assert which("docker", path) == str(outside / "docker")
    monkeypatch.setenv("PATH", path)
    assert which("docker") == str(outside / "docker") and safe_path() == str(outside)
    monkeypatch.setenv("PATH", str(project))
    assert which("docker") is None


@pytest.mark.parametrize("mark", ["aml_config/x", ".azureml/project.json"])
def test_what_a_project_is(tmp_path, mark):
    """A folder with aml_config, or with .azureml/project.json, is a project."""
    (tmp_path / "p" / mark).parent.mkdir(parents=True)
    (tmp_path / "p" / mark).touch()
    assert find_root(str(tmp_path / "p")) == str(tmp_path / "p")
    assert is_in_project(str(tmp_path / "p" / "bin" / "tools")) and not is_in_project(str(tmp_path))


def test_a_home_that_is_a_project_keeps_its_programs(project, monkeypatch):
    assert is_in_project(str(project / "bin"))
    monkeypatch.setenv("HOME", str(project))
    assert not is_in_project(str(project / "bin"))


def test_relative_folders_are_dropped():
    environ = {"PATH": ".::/usr/bin:bin:/bin", "LD_LIBRARY_PATH": ":lib", "OTHER": "."}
    drop_relative_folders(environ)
    assert environ == {"PATH": "/usr/bin:/bin", "OTHER": "."}
