"""Links and paths that lead out of a project: mlw neither reads nor writes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.attach.attach_machine import _Files
from mlworkbench.config.file_editor import replace_file
from mlworkbench.config.project_folder import find_project
from mlworkbench.config.validation import validate_project
from mlworkbench.errors import ConfigError
from tests.conftest import User

SECRET = "the-private-line"
RUNCONFIG = "Target: made\nFramework: {framework}\nArgumentVector:\n  - train.py\n{key}: {file}\n"


@pytest.fixture
def root(user: User) -> Path:
    project = user.project("cloned", train="print(1)\n")
    (project / "aml_config/made.compute").write_text("type: local\nuserManagedEnvironment: false\n")
    return project


@pytest.fixture
def private(user: User) -> Path:
    """A folder of the user next to the project."""
    place = user.home / "private"
    place.mkdir()
    (place / "packages.txt").write_text(f"{SECRET}==1.0\n")
    (place / "packages.yml").write_text(f"dependencies:\n- pip:\n  - {SECRET}==1.0\n")
    (place / "spark.yml").write_text(f"configuration:\n  {SECRET}: {SECRET}\n")
    (place / "uv.lock").write_text(f'version = 1\nrequires-python = ">=3.9"\n[[package]]\nname = "{SECRET}"\n')
    return place


def configure(root: Path, file: str, key: str = "CondaDependenciesFile", framework: str = "Python") -> None:
    text = RUNCONFIG.format(key=key, file=file, framework=framework)
    (root / "aml_config/made.runconfig").write_text(text)


CASES = {
    "a file": ("linked.txt", "packages.txt", "linked.txt"),
    "a folder": ("linked", ".", "linked/packages.yml"),
}


@pytest.mark.parametrize("case", CASES)
def test_package_files_are_not_read_through_links(user, root, private, case):
    link, goal, file = CASES[case]
    (root / link).symlink_to(private / goal)
    configure(root, file)
    for option in ("--dry-run", "--unchecked"):
        done = user.mlw("submit", option, "-c", "made", cwd=root)
        assert done.code != 0 and SECRET not in done.out + done.err, done
        assert f"aml_config/made.runconfig:5: {file} is outside the project" in done.out + done.err, done
    assert SECRET not in user.mlw("project", "doctor", "-c", "made", cwd=root).out
    problems = validate_project(find_project(root))
    assert [(problem.line, problem.severity) for problem in problems if "is outside" in problem.message] == [
        (5, "error")
    ]


def test_default_package_file_is_not_read_through_link(user, root, private):
    (root / "aml_config/conda_dependencies.yml").unlink()
    (root / "aml_config/conda_dependencies.yml").symlink_to(private / "packages.txt")
    (root / "aml_config/made.runconfig").write_text("Target: made\nFramework: Python\nArgumentVector:\n  - train.py\n")
    for arguments in (["submit", "-c", "made"], ["project", "validate"]):
        done = user.mlw(*arguments, cwd=root)
        assert done.code != 0 and SECRET not in done.out + done.err, done
        assert "conda_dependencies.yml is outside the project" in done.out + done.err, done


def test_lock_file_is_not_read_through_link(user, root, private):
    (root / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\n')
    (root / "uv.lock").symlink_to(private / "uv.lock")
    configure(root, "pyproject.toml")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and SECRET not in done.out + done.err, done
    assert "uv.lock is outside the project" in done.err, done


def test_spark_settings_are_not_read_through_link(user, root, private):
    (root / "linked.yml").symlink_to(private / "spark.yml")
    configure(root, "linked.yml", "SparkDependenciesFile", "PySpark")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and SECRET not in done.out + done.err, done
    assert "made.runconfig:5: linked.yml is outside the project" in done.err, done


@pytest.mark.parametrize("line", ["-r linked/packages.txt", "-c ../private/packages.txt", "-f ../private"])
def test_requirements_cannot_refer_outside_project(user, root, private, line):
    (root / "linked").symlink_to(private)
    (root / "requirements.txt").write_text(f"six\n{line}\n")
    configure(root, "requirements.txt")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and SECRET not in done.out + done.err, done
    assert "requirements.txt:2: " in done.err and "outside the project" in done.err, done


def test_pyproject_cannot_refer_outside_project(user, root, private):
    (root / "linked").symlink_to(private)
    text = '[project]\nname = "x"\nversion = "1"\ndependencies = ["six"]\n[tool.uv]\nfind-links = ["linked"]\n'
    (root / "pyproject.toml").write_text(text)
    configure(root, "pyproject.toml")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and "pyproject.toml:6: linked is outside the project" in done.err, done


# -- writes ----------------------------------------------------------------------------------------------------


def test_file_is_not_replaced_through_link(root, private):
    """The write itself detects the link, because a link could be created after an earlier check."""
    link = root / "aml_config/linked.yml"
    link.symlink_to(private / "packages.yml")
    with pytest.raises(
        ConfigError, match=r"linked\.yml: cannot change the file: it is a link to a file outside the project"
    ):
        replace_file(link, b"dependencies:\n", str(link), root)
    assert SECRET in (private / "packages.yml").read_text()
    assert sorted(path.name for path in private.iterdir()) == ["packages.txt", "packages.yml", "spark.yml", "uv.lock"]


def test_linked_settings_folder_is_no_project(user, root, private):
    """If aml_config is a link, writes and deletions would happen outside the project."""
    (root / "aml_config").rename(private / "aml_config")
    (root / "aml_config").symlink_to(private / "aml_config")
    kept = sorted((private / "aml_config").iterdir())
    for line in ("runconfiguration create -n more -t local", "runconfiguration delete -n local --yes"):
        done = user.mlw(*line.split(), cwd=root)
        assert done.code == 78 and "aml_config: the folder is a link to a folder outside the project" in done.err, done
    assert sorted((private / "aml_config").iterdir()) == kept


def test_failed_attach_leaves_links_unchanged(root, private):
    """The linked file belongs to the user and may change meanwhile, so it is neither restored nor copied."""
    link = root / "aml_config/far.compute"
    link.symlink_to(private / "packages.txt")
    before = _Files(find_project(root), "far")
    (private / "packages.txt").write_text("changed meanwhile")
    before.restore()
    assert (private / "packages.txt").read_text() == "changed meanwhile" and link.is_symlink()
    link.unlink()
    link.write_text("type: remote\n")
    before.restore()
    assert link.readlink() == private / "packages.txt"


def test_outputs_are_not_downloaded_through_link(user, root, private):
    script = "import os\nos.makedirs('outputs', exist_ok=True)\nopen('outputs/a', 'w').write('x')"
    (root / "train.py").write_text(script)
    run = user.mlw("submit", "-c", "local", "train.py", cwd=root).run
    assert user.mlw("history", "promote", "-ap", "a", "-n", "kept", cwd=root).code == 0
    for link in ("outputs", "kept"):
        (root / link).symlink_to(private)
    before = sorted(private.iterdir())
    for line in (f"history download {run}", "asset download -l assets/kept.link"):
        done = user.mlw(*line.split(), cwd=root)
        assert done.code == 2 and "is a link to a folder outside the project" in done.err and "-d" in done.err, done
    assert sorted(private.iterdir()) == before
    assert user.mlw("history", "download", run, "-d", "outputs/mine", cwd=root).code == 0  # explicit user choice
    assert (private / "mine/a").read_text() == "x"
