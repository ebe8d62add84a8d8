"""``mlw project doctor``: find and fix what would not work on the target."""

from __future__ import annotations

import json

import pytest

from mlworkbench.config.keys import DEFAULT_IMAGE

COMPUTE = "type: docker\nbaseDockerImage: debian:12\nnvidiaDocker: true\n"
RUNCONFIG = "ArgumentVector: [train.py]\nTarget: gpu\nFramework: Python\n"
DEPENDENCIES = """\
name: project_environment
dependencies:
  - python=3.5.2
  - pip:
    # use the Linux build of CNTK with GPU support
    - https://cntk.ai/PythonWheel/GPU/cntk-2.1-cp35-cp35m-win_amd64.whl  # as the how-to has it
    - sklearn
"""
HEALED = """\
name: project_environment
dependencies:
  - python=3.6
  - pip:
    # use the Linux build of CNTK with GPU support
    - cntk-gpu==2.7  # as the how-to has it
    - scikit-learn
"""
TRAIN = "import sys\nprint 'hello'  # say it\n"
NOT_DONE = "not checked: whether all packages exist and are compatible; check with 'mlw experiment prepare -c NAME'\n"


@pytest.fixture
def project(user):
    root = user.project("demo", train=TRAIN)
    folder = root / "aml_config"
    (folder / "gpu.compute").write_text(COMPUTE)
    (folder / "gpu.runconfig").write_text(RUNCONFIG)
    (folder / "conda_dependencies.yml").write_text(DEPENDENCIES)
    return root


def test_doctor_finds_and_fixes_problems(user, project):
    done = user.mlw("project", "doctor", "-c", "gpu", "-o", "json", cwd=project)
    assert done.code == 1, done
    rows = json.loads(done.out)
    file = "aml_config/conda_dependencies.yml"
    assert [(row["rule"], row["file"], row["line"], row["replacement"]) for row in rows] == [
        ("python", file, 3, "python=3.6"),
        ("dead-address", file, 6, "cntk-gpu==2.7"),
        ("wheel", file, 6, None),
        ("retired", file, 7, "scikit-learn"),
        ("python2", "train.py", 2, "print('hello')  # say it"),
    ]
    assert all(row["severity"] == "error" and row["message"] and row["hint"] for row in rows)
    assert done.err == "hint: run 'mlw project doctor --fix' to apply the replacements\n"
    assert (project / file).read_text() == DEPENDENCIES

    done = user.mlw("project", "doctor", "-c", "gpu", "--fix", cwd=project)
    assert (done.code, done.out) == (0, ""), done
    assert f"fixed {file}:7: sklearn → scikit-learn\n" in done.err
    assert "fixed train.py:2: print 'hello'  # say it → print('hello')  # say it\n" in done.err
    assert done.err.endswith(f"no problems left\n{NOT_DONE}")
    assert (project / file).read_text() == HEALED
    assert (project / "train.py").read_text() == "import sys\nprint('hello')  # say it\n"
    done = user.mlw("project", "doctor", cwd=project)
    assert (done.code, done.err) == (0, f"no problems found\n{NOT_DONE}"), done
    assert user.mlw("submit", "-c", "local", "train.py", cwd=project).out == "hello\n"


def test_doctor_checks_each_configuration_once(user, project):
    folder = project / "aml_config"
    (folder / "again.runconfig").write_text(RUNCONFIG)
    rows = json.loads(user.mlw("project", "doctor", "-o", "json", cwd=project).out)
    assert len(rows) == len({(row["rule"], row["file"], row["line"]) for row in rows}) == 5
    (folder / "bad.runconfig").write_text("Framework:Python\n")
    done = user.mlw("project", "doctor", "-o", "json", cwd=project)
    assert json.loads(done.out) == rows
    assert "aml_config/bad.runconfig:1:" in done.err
    unknown = user.mlw("project", "doctor", "-c", "gpuu", cwd=project)
    assert unknown.code == 66
    assert "did you mean 'gpu'?" in unknown.err


def test_doctor_finds_import_without_package(user, project):
    """The warning includes the line to add; nothing of the project is executed."""
    (project / "train.py").write_text("import sklearn\nimport helpers\nopen('started', 'w')\n")
    (project / "helpers.py").write_text("import json\nimport cv2\n")
    file = "aml_config/conda_dependencies.yml"
    (project / file).write_text("dependencies:\n- python=3.11\n- pip: [scikit-learn]\n")
    done = user.mlw("project", "doctor", "-c", "gpu", "-o", "json", cwd=project)
    assert done.code == 0, done
    [row] = json.loads(done.out)
    assert (row["severity"], row["file"], row["line"]) == ("warning", "helpers.py", 2)
    assert row["message"] == f"module cv2 is provided neither by the project nor by {file}"
    assert row["hint"].startswith(f"add the line `- opencv-python-headless` under `pip:` in {file}")
    assert not (project / "started").exists()
    (project / file).write_text("dependencies:\n- python=3.11\n- pip: [scikit-learn, opencv-python-headless]\n")
    done = user.mlw("project", "doctor", "-c", "gpu", cwd=project)
    assert (done.code, done.err) == (0, f"no problems found\n{NOT_DONE}"), done


def test_validate_reports_packages_that_cannot_be_installed(user, project):
    done = user.mlw("project", "validate", cwd=project)
    assert done.code == 1
    assert "cntk.ai no longer hosts the CNTK wheels" in " ".join(done.out.split())


def test_remaining_problems_are_shown(user, project):
    (project / "aml_config" / "conda_dependencies.yml").write_text(
        "dependencies:\n- pip:\n  - sklearn\n  - https://x.example/own-1.0-cp36-cp36m-win_amd64.whl\n- python=3.6\n"
    )
    done = user.mlw("project", "doctor", "-c", "gpu", "--fix", "-o", "json", "--query", "[].[rule, line]", cwd=project)
    assert (done.code, json.loads(done.out)) == (1, [["wheel", 4]])
    assert "scikit-learn" in done.err


def test_unchecked_items_are_reported(user, project):
    """A package that does not exist cannot be detected without an index."""
    (project / "train.py").write_text("print('hello')\n")
    (project / "aml_config" / "conda_dependencies.yml").write_text("dependencies:\n- pip: [there-is-none-of-this]\n")
    done = user.mlw("project", "doctor", cwd=project)
    assert (done.code, done.err) == (0, f"no problems found\n{NOT_DONE}"), done


OLD = "type: docker\nbaseDockerImage: microsoft/mmlspark:plus-gpu-0.9.9  # of the article\nnvidiaDocker: true\n"


def test_original_project_gets_existing_image(user, project):
    """`doctor --fix` replaces the withdrawn image, and also adapts the packages to the new image."""
    compute = project / "aml_config" / "gpu.compute"
    compute.write_text(OLD)
    (project / "train.py").write_text("print('hello')\n")
    (project / "aml_config" / "conda_dependencies.yml").write_text("dependencies:\n- pip: [tensorflow]\n")
    problems = json.loads(user.mlw("project", "validate", "-o", "json", cwd=project).out)
    assert [(row["severity"], row["file"], row["line"]) for row in problems] == [
        ("warning", "aml_config/gpu.compute", 2)
    ]
    assert "withdrawn" in problems[0]["message"] and f"use {DEFAULT_IMAGE}" in problems[0]["hint"]
    done = user.mlw("project", "doctor", "--fix", cwd=project)
    assert (done.code, done.out) == (0, ""), done
    assert done.err.endswith(f"no problems left\n{NOT_DONE}"), done
    assert compute.read_text() == OLD.replace("microsoft/mmlspark:plus-gpu-0.9.9", DEFAULT_IMAGE)
    healed = (project / "aml_config" / "conda_dependencies.yml").read_text()
    assert healed == 'dependencies:\n- pip: ["tensorflow[and-cuda]"]\n'
    assert user.mlw("project", "doctor", cwd=project).err == f"no problems found\n{NOT_DONE}"
