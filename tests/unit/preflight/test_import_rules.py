"""Find missing imports without importing anything."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mlworkbench.cli.main import _run
from mlworkbench.config.project_folder import Project
from mlworkbench.model import Compute, Entry, RunConfig
from mlworkbench.preflight.import_names import PROVIDERS, is_provider, suggest_package
from mlworkbench.preflight.import_rules import ImportCheck, check_imports

DOCKER = Compute("docker", "docker", base_docker_image="debian:12")
RUN = RunConfig("docker", "docker", framework="Python")
TRAIN = (Entry("script", "train.py"),)
FILE = "aml_config/conda_dependencies.yml"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    root = tmp_path / "demo"
    (root / "aml_config").mkdir(parents=True)
    monkeypatch.chdir(root)
    write_dependencies(root, "numpy")
    return Project(root, "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", "demo")


def write_dependencies(root: Path, *pip: str, python: str = "3.11") -> None:
    lines = "".join(f"    - {package}\n" for package in pip)
    (root / FILE).write_text(f"dependencies:\n  - python={python}\n" + (f"  - pip:\n{lines}" if pip else ""))


def check(project: Project, text: str, **more: object) -> ImportCheck:
    (project.root / "train.py").write_text(text)
    locks = project.root.parent / "locks"
    settings = {"runconfig": RUN, "compute": DOCKER, "entries": TRAIN, "locks": locks, **more}
    return check_imports(project, **settings)  # type: ignore[arg-type]


def find_missing(project: Project, text: str, **more: object) -> list[tuple[str, int | None, str]]:
    findings = check(project, text, **more).findings
    assert all(finding.severity == "warning" and finding.rule == "import" for finding in findings)
    return [(finding.file, finding.line, finding.hint.partition("`- ")[2].partition("`")[0]) for finding in findings]


def test_missing_imports(project):
    text = (
        "import os, cv2\nimport numpy as np\nfrom PIL import Image\n\ndef main():\n    import yaml.nodes\nimport cv2\n"
    )
    assert find_missing(project, text) == [
        ("train.py", 1, "opencv-python-headless"),
        ("train.py", 3, "pillow"),
        ("train.py", 6, "pyyaml"),
    ]
    write_dependencies(project.root, "opencv-python", "Pillow>=10", "ruamel.yaml", "PyYAML")
    assert find_missing(project, text + "import cv2\n") == []


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
    assert [name for _, _, name in find_missing(project, OPTIONAL)] == ["counts-a", "counts-b", "counts-c"]


def test_modules_of_the_project_are_followed(project):
    root = project.root
    (root / "lib" / "deep").mkdir(parents=True)
    (root / "lib" / "__init__.py").write_text("from .deep import inner\n")
    (root / "lib" / "deep" / "inner.py").write_text("import shap\nfrom .. import other\n")
    (root / "lib" / "other.py").write_text("import requests\n")
    (root / "unused.py").write_text("import never_reached\n")
    (root / "vendor" / "acme").mkdir(parents=True)
    missing = find_missing(project, "import sys\nsys.path.append('vendor')\nimport acme\nimport lib\n")
    assert missing == [("lib/deep/inner.py", 1, "shap"), ("lib/other.py", 1, "requests")]


def test_lock_lists_transitive_packages(project):
    text = "import dateutil, toolz\n"
    write_dependencies(project.root, "pandas", "dask")
    assert [name for _, _, name in find_missing(project, text)] == ["toolz"], "pandas is known to bring the other"
    lock = {"conda": [], "pip": [{"name": package} for package in ("pandas", "dask", "toolz", "python-dateutil")]}
    (project.root.parent / "locks").mkdir()
    (project.root.parent / "locks" / "1.json").write_text(json.dumps({"lock": lock}))
    (project.root.parent / "locks" / "2.json").write_text("broken")
    assert find_missing(project, text) == []


def test_unmanaged_environments_are_not_checked(project):
    text = "import whatever\n"
    assert find_missing(project, text, compute=Compute("local", "local")) == []
    assert find_missing(project, text, runconfig=RunConfig("docker", "docker", framework="PySpark")) != []
    assert find_missing(project, "import pyspark\n", runconfig=RunConfig("docker", "docker", framework="PySpark")) == []
    write_dependencies(project.root, "git+https://github.com/example/whatever")
    assert find_missing(project, text) == [], "it may provide anything"
    [line] = check(project, text).unchecked
    assert line.startswith(f"imports of train.py ({FILE} lists a package by URL only")
    assert check(project, "import os\n").unchecked == (), "no import needs a package"
    write_dependencies(project.root, python="2.7")
    assert check(project, text).unchecked == ("imports of train.py (runs in Python 2)",)
    assert find_missing(project, "import urllib2\n") == []
    (project.root / FILE).unlink()
    assert [name for _, _, name in find_missing(project, text)] == ["whatever"]


def test_hostile_files(project):
    """Nothing is imported, no link out of the project is followed, and no file makes the check fail."""
    root = project.root
    (root.parent / "outside.py").write_text("import outside_import\n")
    (root / "linked.py").symlink_to(root.parent / "outside.py")
    (root / "loop.py").write_text("import loop, train\nfrom ..... import x\nfrom ...outside import y\n")
    mark = root.parent / "mark"
    (root / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nimport evil_import\n")
    os.mkfifo(root / "pipe.py")
    assert find_missing(project, "import linked, loop, evil, pipe\n") == [("evil.py", 2, "evil-import")]
    assert not mark.exists()
    for text in ("(" * 5000, "a" * (1 << 19), "import \0x", "x = " + "-" * 100_000 + "1", "import é", "\ud800"):
        (root / "train.py").write_bytes(text.encode("utf-8", "surrogatepass"))
        check_imports(project, RUN, DOCKER, TRAIN, root)


def test_names_of_packages():
    for name, packages in PROVIDERS.items():
        assert all(is_provider(provider, name) for provider in packages), name
        assert suggest_package(name) == packages[0]
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
    """The finding is an error for the configured script, else a warning, as with a newer Python, which may parse it."""
    text = "import os\nprint((1)\n"
    [finding] = check(project, text).findings
    assert (finding.rule, finding.severity, finding.file, finding.line) == ("syntax", "warning", "train.py", 2)
    assert "cannot parse the file: '(' was never closed" in finding.message
    configured = replace(RUN, argument_vector=("train.py",))
    for compute in (DOCKER, Compute("local", "local")):
        assert [
            finding.severity for finding in check(project, text, runconfig=configured, compute=compute).findings
        ] == ["error"]
    old = Compute("local", "local", python_location="/usr/bin/python2.7")
    assert check(project, text, runconfig=configured, compute=old) == ImportCheck()
    write_dependencies(project.root, python="3.99")
    assert [finding.severity for finding in check(project, text, runconfig=configured).findings] == ["warning"]


def test_unread_files_are_listed(project):
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
    write_dependencies(root, "]broken")
    assert check(project, "").unchecked == (f"imports of train.py (cannot read {FILE})",)


def test_doctor_reads_all_scripts(project, capsys):
    """The check covers scripts that no run configuration names, but not tests and setup.py."""
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
    write_dependencies(root, "git+https://github.com/example/whatever")
    rows, messages = doctor(0)
    assert (rows, messages.splitlines()[0]) == ([], "no problems found")
    assert "\nnot checked: imports of eval.py (aml_config/" in messages


def test_namespace_packages(project):
    """The dotted name determines the missing package. Private modules and the script itself need no package."""
    text = (
        "import __main__, _private, _pytest.config\nfrom google.cloud import storage, pubsub_v1\n"
        "import google.cloud.bigquery.client\nfrom google.protobuf import text_format\nimport google\n"
        "from ruamel.yaml import YAML\nfrom ruamel import yaml\nfrom google import genai\n"
    )
    assert [(line, name) for _, line, name in find_missing(project, text)] == [
        (2, "google-cloud-storage"),
        (2, "google-cloud-pubsub"),
        (3, "google-cloud-bigquery"),
        (4, "protobuf"),
        (6, "ruamel.yaml"),
        (8, "google-genai"),
    ]
    write_dependencies(project.root, "ruamel.yaml", "google-cloud-storage", "google-genai")
    assert [name for _, _, name in find_missing(project, text)] == ["google-cloud-pubsub", "google-cloud-bigquery"]
    write_dependencies(project.root, "tensorflow")
    assert find_missing(project, "from google.protobuf import text_format\n") == []


def test_long_names_are_ignored(project):
    """A name is ignored if a part is too long for the file system, or if its many parts would cost disk accesses."""
    deep = ".".join(["a"] * 10_000)
    text = f"import {'x' * 300}\nimport {deep}\nfrom {deep} import b\nimport missing\n"
    assert find_missing(project, text) == [("train.py", 4, "missing")]
