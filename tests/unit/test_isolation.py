"""Modules and programs of mlw come from where it is installed, whatever lies in the current folder."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlworkbench import isolation
from mlworkbench.config.place import find_root
from mlworkbench.isolation import drop_relative_folders, module_path, own_command, own_environment
from mlworkbench.remote.shared.programs import in_project, safe_path, which
from mlworkbench.ui.errands import Errands
from mlworkbench.version import __version__

POINTS = "[mlworkbench.targets]\nlocal = evil:local\nevil = evil:local\n"


@pytest.fixture
def project(tmp_path):
    """One with a trap for every module of the standard library, for ours, and for those that Python looks for."""
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


def fired(project: Path) -> list[str]:
    return sorted(path.name for path in project.parent.glob("fired-*"))


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": os.path.expanduser("~"), **more}


CARELESS = {"PYTHONPATH": ":.:lib:", "PYTHONUSERBASE": ".", "PYTHONPYCACHEPREFIX": "cache"}


@pytest.mark.parametrize("more", [{}, CARELESS, {"PYTHONPATH": "PROJECT"}, {"PYTHONPATH": "PROJECT/lib"}])
def test_mlw_starts_itself_without_anything_of_the_current_folder(project, tmp_path, more):
    given = {name: value.replace("PROJECT", str(project)) for name, value in more.items()}
    environ = own_environment(environment(MLW_HOME=str(tmp_path / "store"), **given), str(project))
    done = subprocess.run(own_command(["project", "show", "-o", "json"]), cwd=project, env=environ, capture_output=True)
    assert fired(project) == [] and done.returncode == 0, done
    assert json.loads(done.stdout)["folder"] == str(project)


def test_so_does_what_the_browser_sets_off(project, monkeypatch):
    for name, value in CARELESS.items():
        monkeypatch.setenv(name, value)
    assert asyncio.run(Errands().do("--version", cwd=project)) == f"mlw, version {__version__}"
    assert fired(project) == []


@pytest.mark.parametrize("way", ["-m", "-c", "file"])
def test_neither_plugins_nor_pynvml_come_from_the_current_folder(project, tmp_path, way):
    """However Python was started: by ``-m`` and a path of the user it has the whole path of the folder."""
    code = "from mlworkbench import registry\nfrom mlworkbench.hosts import library\nimport json\n"
    code += "print(json.dumps([registry.known('targets'), library.files()['vendor/pynvml.py'][:200].decode()]))\n"
    for path in project.rglob("*.py"):
        if path.name != "pynvml.py":
            path.unlink()  # Python itself imports from there, before it imports anything of ours
    (project / "outsider.py").write_text(code)
    words = {"-m": ["-m", "outsider"], "-c": ["-c", code], "file": [str(project / "outsider.py")]}[way]
    environ = environment(PYTHONPATH=f"{project}:lib")
    done = subprocess.run([sys.executable, *words], cwd=project, env=environ, capture_output=True, check=True)
    targets, binding = json.loads(done.stdout)
    assert targets["local"] == "mlworkbench.targets.types:LOCAL" and "evil" not in targets
    assert "of the project" not in binding


def test_python_m_mlworkbench_leaves_the_current_folder_as_soon_as_it_can(project, tmp_path):
    """Python has imported some modules before us; those are the user's own doing."""
    for path in project.rglob("*.py"):
        if path.stem not in ("click", "yaml", "sqlite3", "difflib"):
            path.unlink()
    words = [sys.executable, "-m", "mlworkbench", "project", "show"]
    environ = environment(MLW_HOME=str(tmp_path / "store"), PYTHONPATH="lib")
    done = subprocess.run(words, cwd=project, env=environ, capture_output=True)
    assert done.returncode == 0 and fired(project) == [], done


def test_module_path(project, monkeypatch):
    """What belongs to the interpreter stays, also where the user's environment lies in the project."""
    packages = str(project / ".venv" / "lib" / "site-packages")
    linked = project.parent / "linked"
    linked.symlink_to(project)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(project / "lib"), "src", "/opt/modules", str(linked), "")))
    entries = [str(project), "", "lib", str(project / "lib"), str(project / "src"), "/opt/modules", str(linked)]
    monkeypatch.setattr(sys, "path", [*entries, packages, isolation.OWN])
    assert module_path() == ["/opt/modules", packages, isolation.OWN]


def test_the_folder_of_mlw_itself_stays(tmp_path, monkeypatch):
    """As on clusters, where modules are found by PYTHONPATH."""
    monkeypatch.chdir(isolation.OWN)
    assert own_environment({"PYTHONPATH": f"{isolation.OWN}:."}, isolation.OWN) == {"PYTHONPATH": isolation.OWN}


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
    """The same as for the rest of mlw."""
    (tmp_path / "p" / mark).parent.mkdir(parents=True)
    (tmp_path / "p" / mark).touch()
    assert find_root(str(tmp_path / "p")) == str(tmp_path / "p")
    assert in_project(str(tmp_path / "p" / "bin" / "tools")) and not in_project(str(tmp_path))


def test_a_home_that_is_a_project_keeps_its_programs(project, monkeypatch):
    assert in_project(str(project / "bin"))
    monkeypatch.setenv("HOME", str(project))
    assert not in_project(str(project / "bin"))


def test_relative_folders_are_dropped():
    environ = {"PATH": ".::/usr/bin:bin:/bin", "LD_LIBRARY_PATH": ":lib", "OTHER": "."}
    drop_relative_folders(environ)
    assert environ == {"PATH": "/usr/bin:/bin", "OTHER": "."}
