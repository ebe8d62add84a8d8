"""Links and paths of a project that lead out of it: nothing there is read for it, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlworkbench.attach.attach import _Files
from mlworkbench.config.project import find_project
from mlworkbench.config.rewrite import replace_file
from mlworkbench.config.validation import validate_project
from mlworkbench.errors import ConfigError
from tests.conftest import User

SECRET = "the-private-line"
RUNCONFIG = "Target: made\nFramework: {framework}\nArgumentVector:\n  - train.py\n{key}: {file}\n"


@pytest.fixture
def root(user: User) -> Path:
    made = user.project("cloned", train="print(1)\n")
    (made / "aml_config/made.compute").write_text("type: local\nuserManagedEnvironment: false\n")
    return made


@pytest.fixture
def private(user: User) -> Path:
    """A folder of the user's beside the project."""
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
def test_packages_are_not_read_through_a_link(user, root, private, case):
    link, goal, file = CASES[case]
    (root / link).symlink_to(private / goal)
    configure(root, file)
    for word in ("--dry-run", "--unchecked"):
        done = user.mlw("submit", word, "-c", "made", cwd=root)
        assert done.code != 0 and SECRET not in done.out + done.err, done
        assert f"aml_config/made.runconfig:5: {file} is outside the project" in done.out + done.err, done
    assert SECRET not in user.mlw("project", "doctor", "-c", "made", cwd=root).out
    problems = validate_project(find_project(root))
    assert [(one.line, one.severity) for one in problems if "is outside" in one.message] == [(5, "error")]


def test_the_usual_file_is_not_read_through_a_link(user, root, private):
    (root / "aml_config/conda_dependencies.yml").unlink()
    (root / "aml_config/conda_dependencies.yml").symlink_to(private / "packages.txt")
    (root / "aml_config/made.runconfig").write_text("Target: made\nFramework: Python\nArgumentVector:\n  - train.py\n")
    for words in (["submit", "-c", "made"], ["project", "validate"]):
        done = user.mlw(*words, cwd=root)
        assert done.code != 0 and SECRET not in done.out + done.err, done
        assert "conda_dependencies.yml is outside the project" in done.out + done.err, done


def test_a_lock_beside_is_not_read_through_a_link(user, root, private):
    (root / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\n')
    (root / "uv.lock").symlink_to(private / "uv.lock")
    configure(root, "pyproject.toml")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and SECRET not in done.out + done.err, done
    assert "uv.lock is outside the project" in done.err, done


def test_settings_of_spark_are_not_read_through_a_link(user, root, private):
    (root / "linked.yml").symlink_to(private / "spark.yml")
    configure(root, "linked.yml", "SparkDependenciesFile", "PySpark")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and SECRET not in done.out + done.err, done
    assert "made.runconfig:5: linked.yml is outside the project" in done.err, done


@pytest.mark.parametrize("line", ["-r linked/packages.txt", "-c ../private/packages.txt", "-f ../private"])
def test_requirements_do_not_lead_out(user, root, private, line):
    (root / "linked").symlink_to(private)
    (root / "requirements.txt").write_text(f"six\n{line}\n")
    configure(root, "requirements.txt")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and SECRET not in done.out + done.err, done
    assert "requirements.txt:2: " in done.err and "outside the project" in done.err, done


def test_a_pyproject_does_not_lead_out(user, root, private):
    (root / "linked").symlink_to(private)
    text = '[project]\nname = "x"\nversion = "1"\ndependencies = ["six"]\n[tool.uv]\nfind-links = ["linked"]\n'
    (root / "pyproject.toml").write_text(text)
    configure(root, "pyproject.toml")
    done = user.mlw("submit", "--dry-run", "-c", "made", cwd=root)
    assert done.code != 0 and "pyproject.toml:6: linked is outside the project" in done.err, done


# -- what is written -------------------------------------------------------------------------------------------


def test_a_file_is_not_replaced_through_a_link(root, private):
    """Those who look first whether a link leads out may look too early."""
    link = root / "aml_config/linked.yml"
    link.symlink_to(private / "packages.yml")
    with pytest.raises(
        ConfigError, match=r"linked\.yml: cannot change the file: it is a link to a file outside the project"
    ):
        replace_file(link, b"dependencies:\n", str(link), root)
    assert SECRET in (private / "packages.yml").read_text()
    assert sorted(path.name for path in private.iterdir()) == ["packages.txt", "packages.yml", "spark.yml", "uv.lock"]


def test_a_settings_folder_elsewhere_makes_no_project(user, root, private):
    """Else whatever writes and deletes there would do so elsewhere."""
    (root / "aml_config").rename(private / "aml_config")
    (root / "aml_config").symlink_to(private / "aml_config")
    kept = sorted((private / "aml_config").iterdir())
    for words in ("runconfiguration create -n more -t local", "runconfiguration delete -n local --yes"):
        done = user.mlw(*words.split(), cwd=root)
        assert done.code == 78 and "aml_config: the folder is a link to a folder outside the project" in done.err, done
    assert sorted((private / "aml_config").iterdir()) == kept


def test_a_failed_attach_leaves_links_as_they_are(root, private):
    """The file behind it is of the user, and may change meanwhile: neither is it put back nor copied."""
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


def test_outputs_are_not_downloaded_through_a_link(user, root, private):
    script = "import os\nos.makedirs('outputs', exist_ok=True)\nopen('outputs/a', 'w').write('x')"
    (root / "train.py").write_text(script)
    run = user.mlw("submit", "-c", "local", "train.py", cwd=root).run
    assert user.mlw("history", "promote", "-ap", "a", "-n", "kept", cwd=root).code == 0
    for link in ("outputs", "kept"):
        (root / link).symlink_to(private)
    before = sorted(private.iterdir())
    for words in (f"history download {run}", "asset download -l assets/kept.link"):
        done = user.mlw(*words.split(), cwd=root)
        assert done.code == 2 and "is a link to a folder outside the project" in done.err and "-d" in done.err, done
    assert sorted(private.iterdir()) == before
    assert user.mlw("history", "download", run, "-d", "outputs/mine", cwd=root).code == 0  # a word of the user's own
    assert (private / "mine/a").read_text() == "x"
