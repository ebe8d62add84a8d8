"""Imports that nothing provides are found without importing anything."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.cli.main import _run
from mlworkbench.config.project import Project
from mlworkbench.model import Compute, Entry, RunConfig
from mlworkbench.preflight.import_names import PROVIDERS, is_provider, proposal
from mlworkbench.preflight.imports import ImportCheck, check_imports

DOCKER = Compute("docker", "docker", base_docker_image="debian:12")
RUN = RunConfig("docker", "docker", framework="Python")
TRAIN = (Entry("script", "train.py"),)
FILE = "aml_config/conda_dependencies.yml"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    root = tmp_path / "demo"
    (root / "aml_config").mkdir(parents=True)
    monkeypatch.chdir(root)
    depend(root, "numpy")
    return Project(root, "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", "demo")


def depend(root: Path, *pip: str, python: str = "3.11") -> None:
    lines = "".join(f"    - {one}\n" for one in pip)
    (root / FILE).write_text(f"dependencies:\n  - python={python}\n" + (f"  - pip:\n{lines}" if pip else ""))


def check(project: Project, text: str, **more: object) -> ImportCheck:
    (project.root / "train.py").write_text(text)
    locks = project.root.parent / "locks"
    settings = {"runconfig": RUN, "compute": DOCKER, "entries": TRAIN, "locks": locks, **more}
    return check_imports(project, **settings)  # type: ignore[arg-type]


def look(project: Project, text: str, **more: object) -> list[tuple[str, int | None, str]]:
    found = check(project, text, **more).findings
    assert all(one.severity == "warning" and one.rule == "import" for one in found)
    return [(one.file, one.line, one.hint.partition("`- ")[2].partition("`")[0]) for one in found]


def test_what_nothing_provides(project):
    text = (
        "import os, cv2\nimport numpy as np\nfrom PIL import Image\n\ndef main():\n    import yaml.nodes\nimport cv2\n"
    )
    assert look(project, text) == [
        ("train.py", 1, "opencv-python-headless"),
        ("train.py", 3, "pillow"),
        ("train.py", 6, "pyyaml"),
    ]
    depend(project.root, "opencv-python", "Pillow>=10", "ruamel.yaml", "PyYAML")
    assert look(project, text + "import cv2\n") == []


OPTIONAL = """
from __future__ import annotations
import contextlib, importlib.util, sys
from typing import TYPE_CHECKING
import mlworkbench, azureml.core, distutils
try:
    import missing_a
    import missing_b
except ImportError:
    import missing_c
try:
    import missing_d
except (ValueError, ModuleNotFoundError):
    pass
if TYPE_CHECKING:
    import missing_e
else:
    import counts_a
if sys.platform == "win32":
    import missing_f
if importlib.util.find_spec("missing_g"):
    import missing_g
with contextlib.suppress(ImportError):
    import missing_h
try:
    import counts_b
except ValueError:
    pass
if __name__ == "__main__":
    import counts_c
"""


def test_optional_imports_do_not_count(project):
    assert [name for _, _, name in look(project, OPTIONAL)] == ["counts-a", "counts-b", "counts-c"]


def test_modules_of_the_project_are_followed(project):
    root = project.root
    (root / "lib" / "deep").mkdir(parents=True)
    (root / "lib" / "__init__.py").write_text("from .deep import inner\n")
    (root / "lib" / "deep" / "inner.py").write_text("import shap\nfrom .. import other\n")
    (root / "lib" / "other.py").write_text("import requests\n")
    (root / "unused.py").write_text("import never_reached\n")
    (root / "vendor" / "acme").mkdir(parents=True)
    found = look(project, "import sys\nsys.path.append('vendor')\nimport acme\nimport lib\n")
    assert found == [("lib/deep/inner.py", 1, "shap"), ("lib/other.py", 1, "requests")]


def test_a_solved_environment_tells_what_comes_along(project):
    text = "import dateutil, toolz\n"
    depend(project.root, "pandas", "dask")
    assert [name for _, _, name in look(project, text)] == ["toolz"], "pandas is known to bring the other"
    lock = {"conda": [], "pip": [{"name": one} for one in ("pandas", "dask", "toolz", "python-dateutil")]}
    (project.root.parent / "locks").mkdir()
    (project.root.parent / "locks" / "1.json").write_text(json.dumps({"lock": lock}))
    (project.root.parent / "locks" / "2.json").write_text("broken")
    assert look(project, text) == []


def test_where_the_packages_are_not_ours_nothing_is_said(project):
    text = "import whatever\n"
    assert look(project, text, compute=Compute("local", "local")) == []
    assert look(project, text, runconfig=RunConfig("docker", "docker", framework="PySpark")) != []
    assert look(project, "import pyspark\n", runconfig=RunConfig("docker", "docker", framework="PySpark")) == []
    depend(project.root, "git+https://github.com/example/whatever")
    assert look(project, text) == [], "it may provide anything"
    [line] = check(project, text).unchecked
    assert line.startswith(f"imports of train.py ({FILE} lists a package by URL only")
    assert check(project, "import os\n").unchecked == (), "no import needs a package"
    depend(project.root, python="2.7")
    assert check(project, text).unchecked == ("imports of train.py (runs in Python 2)",)
    assert look(project, "import urllib2\n") == []
    (project.root / FILE).unlink()
    assert [name for _, _, name in look(project, text)] == ["whatever"]


def test_hostile_files(project):
    """Nothing is imported or followed out of the project, and no file ends the doctor."""
    root = project.root
    (root.parent / "outside.py").write_text("import outside_import\n")
    (root / "linked.py").symlink_to(root.parent / "outside.py")
    (root / "loop.py").write_text("import loop, train\nfrom ..... import x\nfrom ...outside import y\n")
    mark = root.parent / "mark"
    (root / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nimport evil_import\n")
    os.mkfifo(root / "pipe.py")
    assert look(project, "import linked, loop, evil, pipe\n") == [("evil.py", 2, "evil-import")]
    assert not mark.exists()
    for text in ("(" * 5000, "a" * (1 << 19), "import \0x", "x = " + "-" * 100_000 + "1", "import é", "\ud800"):
        (root / "train.py").write_bytes(text.encode("utf-8", "surrogatepass"))
        check_imports(project, RUN, DOCKER, TRAIN, root)


def test_names_of_packages():
    for name, packages in PROVIDERS.items():
        assert all(is_provider(one, name) for one in packages), name
        assert proposal(name) == packages[0]
    for package, name in (
        ("python-dateutil", "dateutil"),
        ("Scikit_Learn", "sklearn"),
        ("google-cloud-storage", "google.cloud.storage"),
        ("google-cloud-storage", "google.auth"),
        ("ruamel_yaml", "ruamel.yaml"),
        ("acme-ml-tools", "acme"),
        ("pytorch_lightning", "pytorch_lightning"),
    ):
        assert is_provider(package, name), package
    for package, name in (
        ("torchvision", "torch"),
        ("tensorflow", "keras"),
        ("numpy", "pandas"),
        ("sklearn", "numpy"),
        ("google-cloud-storage", "google.cloud.bigquery"),
    ):
        assert not is_provider(package, name), package


def test_a_file_that_cannot_be_parsed_is_reported(project):
    """With its line; an error if the run configuration names it, unless a newer Python is to run it."""
    text = "import os\nprint((1)\n"
    [one] = check(project, text).findings
    assert (one.rule, one.severity, one.file, one.line) == ("syntax", "warning", "train.py", 2)
    assert "cannot parse the file: '(' was never closed" in one.message
    named = replace(RUN, argument_vector=("train.py",))
    for compute in (DOCKER, Compute("local", "local")):
        assert [one.severity for one in check(project, text, runconfig=named, compute=compute).findings] == ["error"]
    old = Compute("local", "local", python_location="/usr/bin/python2.7")
    assert check(project, text, runconfig=named, compute=old) == ImportCheck()
    depend(project.root, python="3.99")
    assert [one.severity for one in check(project, text, runconfig=named).findings] == ["warning"]


def test_files_that_are_not_read_are_named(project):
    root = project.root
    (root / "large.py").write_text("x = 1\n" * 50_000)
    (root / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe4'\n")
    (root.parent / "outside.py").write_text("import x\n")
    (root / "linked.py").symlink_to(root.parent / "outside.py")
    assert check(project, "import large, latin, linked\n").unchecked == (
        "imports of large.py (the file is larger than 256 KiB)",
        "imports of latin.py (the file is not UTF-8 text)",
        "imports of linked.py (the file is outside the project)",
    )
    depend(root, "]broken")
    assert check(project, "").unchecked == (f"imports of train.py (cannot read {FILE})",)


def test_the_doctor_reads_all_scripts(project, capsys):
    """Scripts beside the one that the run configuration names, and a name that leads to no script."""
    root = project.root
    (root / "aml_config" / "project.json").write_text(json.dumps({"Id": project.id, "Name": "demo"}))
    (root / "aml_config" / "docker.compute").write_text("type: docker\nbaseDockerImage: debian:12\n")
    runconfig = root / "aml_config" / "docker.runconfig"
    runconfig.write_text("Target: docker\nFramework: Python\nArgumentVector: [train.py]\n")
    (root / "train.py").write_text("print('hello')\n")
    (root / "eval.py").write_text("import torch\n")
    (root / "setup.py").write_text("import setuptools\n")
    (root / "test_eval.py").write_text("import pytest\n")

    def doctor(code: int) -> tuple[list[tuple[str, str, int]], str]:
        assert _run(["project", "doctor", "-o", "json"]) == code
        out, err = capsys.readouterr()
        return [(row["rule"], row["file"], row["line"]) for row in json.loads(out)], err

    assert doctor(0)[0] == [("import", "eval.py", 1)]
    (root / "train.py").write_text("print 'hello'\n")
    assert doctor(1)[0] == [("python2", "train.py", 1), ("import", "eval.py", 1)]
    (root / "train.py").write_text("import os\nprint((1)\n")
    assert doctor(1)[0] == [("syntax", "train.py", 2), ("import", "eval.py", 1)]
    runconfig.write_text("Target: docker\nFramework: Python\nArgumentVector: [trian.py]\n")
    (root / "train.py").write_text("")
    assert doctor(1)[0] == [("script", "aml_config/docker.runconfig", 3), ("import", "eval.py", 1)]
    runconfig.write_text("Target: docker\nFramework: Python\n")
    depend(root, "git+https://github.com/example/whatever")
    rows, told = doctor(0)
    assert (rows, told.splitlines()[0]) == ([], "no problems found")
    assert "\nnot checked: imports of eval.py (aml_config/" in told


def test_names_that_several_packages_share(project):
    """The package to add is told by the dotted name; private modules and the script itself need none."""
    text = (
        "import __main__, _private, _pytest.config\nfrom google.cloud import storage, pubsub_v1\n"
        "import google.cloud.bigquery.client\nfrom google.protobuf import text_format\nimport google\n"
        "from ruamel.yaml import YAML\nfrom ruamel import yaml\nfrom google import genai\n"
    )
    assert [(line, name) for _, line, name in look(project, text)] == [
        (2, "google-cloud-storage"),
        (2, "google-cloud-pubsub"),
        (3, "google-cloud-bigquery"),
        (4, "protobuf"),
        (6, "ruamel.yaml"),
        (8, "google-genai"),
    ]
    depend(project.root, "ruamel.yaml", "google-cloud-storage", "google-genai")
    assert [name for _, _, name in look(project, text)] == ["google-cloud-pubsub", "google-cloud-bigquery"]
    depend(project.root, "tensorflow")
    assert look(project, "from google.protobuf import text_format\n") == []


def test_names_longer_than_any_file_are_not_looked_for(project):
    """Each would cost a look at the disk for every part of it, or fail there."""
    deep = ".".join(["a"] * 10_000)
    text = f"import {'x' * 300}\nimport {deep}\nfrom {deep} import b\nimport missing\n"
    assert look(project, text) == [("train.py", 4, "missing")]
