"""Find, create, read, and validate projects."""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlworkbench.config import keys
from mlworkbench.config.keys import DEFAULT_IMAGE
from mlworkbench.config.project_folder import Project, assign_new_id, create_project, find_project
from mlworkbench.config.validation import validate_project
from mlworkbench.errors import ConfigError, MlwError, UnknownName, UsageError

QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return create_project("demo", tmp_path)


def messages(project: Project) -> list[str]:
    return [f"{problem} ({problem.severity})" for problem in validate_project(project)]


# -- creating --------------------------------------------------------------------------------------


def test_new_project_is_complete_and_valid(project: Project) -> None:
    files = sorted(path.relative_to(project.root).as_posix() for path in project.root.rglob("*") if path.is_file())
    assert files == [
        ".mlwignore",
        "aml_config/.schemas/compute.schema.json",
        "aml_config/.schemas/conda_dependencies.schema.json",
        "aml_config/.schemas/runconfig.schema.json",
        "aml_config/.schemas/spark_dependencies.schema.json",
        "aml_config/conda_dependencies.yml",
        "aml_config/docker.compute",
        "aml_config/docker.runconfig",
        "aml_config/local.compute",
        "aml_config/local.runconfig",
        "aml_config/project.json",
        "aml_config/spark_dependencies.yml",
        "readme.md",
        "train.py",
    ]
    assert messages(project) == []
    assert project.computes() == project.runconfigs() == ["docker", "local"]
    assert project.compute("docker").base_docker_image == DEFAULT_IMAGE
    assert project.compute("local").type == "local"
    for name in ("docker", "local"):
        runconfig = project.runconfig(name)
        assert (runconfig.target, runconfig.framework) == (name, "Python")
        assert runconfig.argument_vector == ("train.py",)
    assert not [
        path
        for path in files
        if "__" in (project.root / path).read_text().replace("__pycache__", "") and path != "train.py"
    ]


def test_new_project_has_name_and_id(project: Project, tmp_path: Path) -> None:
    assert json.loads((project.folder / "project.json").read_text()) == {"Id": project.id, "Name": "demo"}
    assert find_project(project.root) == project
    assert create_project("other", tmp_path).id != project.id


def test_new_project_explains_every_key(project: Project) -> None:
    """The generated files contain each key that has an effect there, set or commented out."""
    for name, table in (
        ("local.compute", keys.COMPUTE),
        ("docker.compute", keys.COMPUTE),
        ("local.runconfig", keys.RUNCONFIG),
        ("docker.runconfig", keys.RUNCONFIG),
    ):
        text = (project.folder / name).read_text()
        kind = name.split(".")[0]
        for key in table:
            applies = key.field and (not keys.applies_to(key) or kind in keys.applies_to(key))
            assert bool(re.search(rf"^#?{key.name}:", text, re.MULTILINE)) == bool(applies), (name, key.name)


@pytest.mark.parametrize(
    "python",
    sorted({*Path("/usr/bin").glob("python3.[0-9]*[0-9]"), *Path.home().glob(".pyenv/versions/3.*/bin/python")}),
    ids=str,
)
def test_sample_script_runs(project: Project, python: Path) -> None:
    result = subprocess.run(
        [python, "-I", "train.py", "--epochs", "30"], cwd=project.root, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "epoch  30   loss 0.2906   accuracy 0.870" in result.stdout
    model = json.loads((project.root / "outputs" / "model.json").read_text())
    assert len(model["weights"]) == 10
    assert (project.root / "outputs" / "loss.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("name", ["a", "Demo-1", "my_project.v2", "x" * 64, "0"])
def test_names_allowed(tmp_path: Path, name: str) -> None:
    assert create_project(name, tmp_path).root == tmp_path / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "-x", ".hidden", "x.", "a b", "é", "x" * 65, "a\n", "a\0"]
)
def test_names_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        create_project(name, tmp_path)
    assert caught.value.message == f"invalid project name: {name!r}"
    assert "1 to 64 letters" in str(caught.value.hint)
    assert os.listdir(tmp_path) == []


def test_existing_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("full", "file", "link"):
        with pytest.raises(UsageError) as caught:
            create_project(name, tmp_path)
        assert caught.value.message == f"{tmp_path / name} already exists and is not an empty folder"
        assert caught.value.hint and caught.value.hint.endswith(f"cd {tmp_path / name} && mlw project init")
    assert sorted(os.listdir(tmp_path)) == ["file", "full", "link"]
    assert os.listdir(tmp_path / "full") == ["x"]
    (tmp_path / "empty").mkdir()
    assert messages(create_project("empty", tmp_path)) == []


def test_missing_parents_are_created(tmp_path: Path) -> None:
    project = create_project("demo", tmp_path / "some" / "where")
    assert project.root == tmp_path / "some" / "where" / "demo" and (project.root / "aml_config").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot create folder"):
        create_project("demo", tmp_path / "file" / "below")


def test_a_template_must_exist(tmp_path: Path) -> None:
    for template in ("nonsense", "..", "default/aml_config"):
        with pytest.raises(UnknownName) as caught:
            create_project("demo", tmp_path, template)
        assert caught.value.message.startswith(f"unknown template {template!r}; available: default, gpu-check, ")
    assert os.listdir(tmp_path) == []


def test_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full_disk)
    with pytest.raises(ConfigError, match="cannot create the project in .*: No space left on device"):
        create_project("demo", tmp_path)
    assert os.listdir(tmp_path) == []


# -- finding ---------------------------------------------------------------------------------------


def test_found_from_subfolder(project: Project) -> None:
    deep = project.root / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(deep) == project


def test_not_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_project(tmp_path)
    assert caught.value.message == f"no project found: no folder aml_config in {tmp_path} or any parent folder"
    assert "mlw project create" in str(caught.value.hint)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_project_of_another_user_is_refused(tmp_path: Path) -> None:
    """Another user can create a project in a shared folder such as /tmp, which may contain folders of this user."""
    (tmp_path / "aml_config").mkdir()
    (tmp_path / "mine").mkdir()
    os.chown(tmp_path / "aml_config", 54001, 54001)
    for start in (tmp_path / "mine", tmp_path):
        with pytest.raises(ConfigError, match=f"the project in {tmp_path} belongs to user 54001"):
            find_project(start)
    with pytest.raises(ConfigError, match="the project was not used"):
        find_project(tmp_path / "mine" / "not there")
    os.chown(tmp_path, 54001, 54001)
    assert find_project(tmp_path).root == tmp_path, "to go into a colleague's project is a choice"
    os.chown(tmp_path / "mine", 54001, 54001)
    assert find_project(tmp_path / "mine").root == tmp_path


def test_id_of_old_project_is_derived_from_path(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "aml_config").mkdir(parents=True)
    first, second = find_project(tmp_path / "one"), find_project(tmp_path / "two")
    assert (first.name, second.name) == ("one", "two")
    assert first.id == find_project(tmp_path / "one").id != second.id
    assert uuid.UUID(first.id).version == 5
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert find_project(tmp_path / "link").id == first.id
    assert os.listdir(tmp_path / "one" / "aml_config") == []


@pytest.mark.skipif(os.name != "posix", reason="names of bytes")
def test_id_of_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    (folder / "aml_config").mkdir(parents=True)
    assert uuid.UUID(find_project(folder).id)


def test_id_of_the_original(tmp_path: Path) -> None:
    (tmp_path / ".azureml").mkdir()
    original = tmp_path / ".azureml" / "project.json"
    original.write_text('{"Id": "1B4E28BA-2FA1-4D2B-883F-0016D3CCA427", "Scope": "/subscriptions/x"}')
    project = find_project(tmp_path)
    assert project.id == "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"
    assert project.computes() == []
    (tmp_path / "aml_config").mkdir()
    own_id = "2b4e28ba-2fa1-4d2b-883f-0016d3cca427"
    (tmp_path / "aml_config" / "project.json").write_text(json.dumps({"Id": own_id, "Name": "renamed"}))
    assert (find_project(tmp_path).id, find_project(tmp_path).name) == (own_id, "renamed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"Id": "7"}', "aml_config/project.json:2: Id must be a UUID such as "),
        ('{\n"Id": ["7"]}', "aml_config/project.json:2: Id must be a UUID such as "),
        ('{"Name": {}}', "aml_config/project.json:1: Name must be a string"),
        ('{"Id": ', "aml_config/project.json:1: not valid YAML"),
    ],
)
def test_damaged_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aml_config").mkdir()
    (tmp_path / "aml_config" / "project.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        find_project(tmp_path)
    assert caught.value.message.startswith(message)


# -- targets and run configurations ----------------------------------------------------------------


def test_unknown_names(project: Project) -> None:
    with pytest.raises(UnknownName) as caught:
        project.compute("locl")
    assert caught.value.message == "unknown compute target 'locl'; available: docker, local"
    assert caught.value.hint == "did you mean 'local'?"
    with pytest.raises(UnknownName) as caught:
        project.runconfig("gpu")
    assert caught.value.message == "unknown run configuration 'gpu'; available: docker, local"
    attach_command = "mlw computetarget attach remotedocker --name gpu --address HOST --username USER"
    assert caught.value.hint == f"attach a machine with '{attach_command}'"


@pytest.mark.parametrize(
    "name", ["", "..", "../demo/aml_config/local", "/etc/passwd", "-c", "a\0b", "a\\b", ".x", "a\n", "C:x"]
)
def test_invalid_names(project: Project, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        project.compute(name)
    assert caught.value.message == f"invalid name for a compute target: {name!r}"


@QUICK
@given(name=st.text(max_size=300))
def test_any_name_is_found_or_refused(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path, "", "x")
    with pytest.raises(MlwError):
        project.compute(name)


# -- validating ------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "aml_config").mkdir()
    (tmp_path / "aml_config" / "local.compute").write_text("type: local\n")
    monkeypatch.chdir(tmp_path)
    return find_project(tmp_path)


def test_references(bare: Project) -> None:
    (bare.folder / "docker.compute").write_text("type: docker\n")
    (bare.folder / "a.runconfig").write_text("Framework: Python\nTarget: locl\n")
    (bare.folder / "b.runconfig").write_text("Framework: Python\nTarget: docker\n")
    (bare.folder / "c.runconfig").write_text("Framework: Python\nTarget: local\nCondaDependenciesFile: no.yml\n")
    (bare.folder / "d.runconfig").write_text("ArgumentVector: [no.py]\nTarget: local\nFramework: PySpark")
    (bare.folder / "e.runconfig").write_text("Target: local\nFramework: Python\nTrackedRun: perhaps\n")
    assert messages(bare) == [
        "aml_config/e.runconfig:3: TrackedRun must be true or false, not 'perhaps' (error)",
        "aml_config/a.runconfig:2: unknown compute target 'locl' (error)",
        "aml_config/b.runconfig: aml_config/conda_dependencies.yml does not exist (error)",
        "aml_config/d.runconfig: aml_config/spark_dependencies.yml does not exist (warning)",
        "aml_config/d.runconfig:1: script no.py does not exist (warning)",
    ]


def test_dependency_files_under_any_name(bare: Project) -> None:
    (bare.folder / "conda_dependencies_gpu.yml").write_text("dependencies: numpy\n")
    (bare.folder / "spark_dependencies.yml").write_text("packages: x\n")
    (bare.folder / "notes.yml").write_text("- not ours\n")
    assert messages(bare) == [
        "aml_config/conda_dependencies_gpu.yml:1: dependencies must be a list, not 'numpy' (error)",
        "aml_config/spark_dependencies.yml:1: packages must be a list, not 'x' (error)",
    ]


def test_project_without_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aml_config").mkdir()
    assert messages(find_project(tmp_path)) == ["aml_config: no compute target (warning)"]


def test_run_configuration_in_wrong_folder(project: Project) -> None:
    (project.root / "old.amb").write_text("{}")
    config = project.folder / "local.runconfig"
    config.write_text("Target: local\nFramework: Python\nArgumentVector: [old.amb]\n")
    assert messages(project) == [
        "old.amb: run configuration outside aml_config is ignored (warning)",
        f"{config}:3: old.amb is a run configuration, not a script (error)",
    ]
    hints = [problem.hint for problem in validate_project(project)]
    assert hints == ["move it to aml_config/old.runconfig", "specify a script"]


# -- new project ID --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            '{"id": "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", "Scope": "/x", "name": "old"}',
            {"Name": "old", "Scope": "/x"},
        ),
        ('{"Scope": [1]}', {"Name": "demo", "Scope": [1]}),
        (None, {"Name": "demo"}),
    ],
)
def test_new_id_keeps_other_keys(tmp_path: Path, text: str | None, kept: dict[str, object]) -> None:
    root = tmp_path / "demo"
    (root / ".azureml").mkdir(parents=True)
    (root / ".azureml" / "project.json").write_text('{"Id": "2b4e28ba-2fa1-4d2b-883f-0016d3cca427"}')
    if text is not None:
        (root / "aml_config").mkdir()
        (root / "aml_config" / "project.json").write_text(text)
    before = find_project(root)
    after = assign_new_id(before)
    assert after.id != before.id and find_project(root) == after
    assert json.loads((root / "aml_config" / "project.json").read_text()) == {"Id": after.id, **kept}
    assert os.listdir(root / "aml_config") == ["project.json"]


def test_new_id_keeps_file_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "aml_config").mkdir()
    file = tmp_path / "aml_config" / "project.json"
    file.write_text("Id: 1b4e28ba-2fa1-4d2b-883f-0016d3cca427  # ours\n")
    with pytest.raises(ConfigError, match="not valid JSON"):
        assign_new_id(find_project(tmp_path))
    assert file.read_text() == "Id: 1b4e28ba-2fa1-4d2b-883f-0016d3cca427  # ours\n"


OUTSIDE = {
    "local.compute": "type: local\ndescription: private-line\n",
    "local.runconfig": "Target: private-line\n",
    "old.amb": "Target: private-line\n",
    "project.json": '{"Name": "private-line"}',
    "../.azureml/project.json": '{"Name": "private-line"}',
}


def read_all(project: Project) -> None:
    project_found = find_project(project.root)
    assert project_found.name != "private-line"
    for read, names in (
        (project_found.compute, project_found.computes()),
        (project_found.runconfig, project_found.runconfigs()),
    ):
        for name in names:
            read(name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_configuration_is_not_read_through_a_link(project: Project, name: str, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text(OUTSIDE[name])
    link = project.folder / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(private)
    with pytest.raises(ConfigError) as refused:
        read_all(project)
    assert f"{link.name} is outside the project, at {private}" in refused.value.message
    if not name.endswith("json"):
        problems = [problem.message for problem in validate_project(project) if "is outside" in problem.message]
        assert problems == [f"{link.name} is outside the project, at {private}"]
        assert not any("private-line" in problem.message for problem in validate_project(project))


@pytest.mark.parametrize("name", ["local.compute", "local.runconfig", "project.json"])
def test_a_link_within_the_project_is_read(project: Project, name: str) -> None:
    (project.root / "shared").mkdir()
    os.rename(project.folder / name, project.root / "shared" / name)
    (project.folder / name).symlink_to(Path("..", "shared", name))
    read_all(project)
    assert validate_project(find_project(project.root)) == []
