"""Run configurations and targets on the command line, and runs of projects in older formats of the original."""

from __future__ import annotations

import json
import os

import pytest

pexpect = pytest.importorskip("pexpect")

JSON_FORM = '{"ArgumentVector":["train.py","--lr","0.5"],"CondaFile":null,"ManagedEnvironment":true,%s"Target":"local"}'
SAYS_ARGUMENTS = "import sys; print(sys.argv[1:])"


@pytest.fixture
def project(user):
    return user.project("demo", train=SAYS_ARGUMENTS)


def test_several_run_configurations_for_one_target(user, project):
    for name in ("fast", "slow"):
        done = user.mlw("runconfiguration", "create", "-n", name, "-t", "local", cwd=project)
        assert done.code == 0, done
        assert done.err == f"created aml_config/{name}.runconfig\nhint: use it with: mlw submit -c {name} train.py\n"
    rows = json.loads(user.mlw("runconfiguration", "list", "-o", "json", cwd=project).out)
    assert [row["name"] for row in rows] == ["docker", "fast", "local", "slow"]
    assert rows[1] == {"name": "fast", "target": "local", "framework": "Python", "script": None}
    assert rows[2]["script"] == "train.py"
    table = user.mlw("computetarget", "list", cwd=project).out
    assert "fast, local, slow" in table
    assert user.mlw("project", "validate", cwd=project).err == "no problems found\n"
    done = user.mlw("submit", "-c", "fast", "train.py", "7", cwd=project)
    assert (done.code, done.out) == (0, "['7']\n")
    assert user.info(done.run, project)["run_configuration"] == "fast"


def test_create_refuses_invalid_requests(user, project):
    existing = user.mlw("runconfiguration", "create", "-n", "local", "-t", "docker", cwd=project)
    assert existing.code == 2
    assert "error: aml_config/local.runconfig already exists" in existing.err
    assert "Target: local" in (project / "aml_config" / "local.runconfig").read_text()
    unknown = user.mlw("runconfiguration", "create", "-n", "x", "-t", "loacl", cwd=project)
    assert unknown.code == 66
    assert "unknown compute target 'loacl'; available: docker, local" in unknown.err
    assert "did you mean 'local'?" in unknown.err
    remote = user.mlw("runconfiguration", "create", "-n", "../x", "-t", "local", cwd=project)
    assert remote.code == 2
    assert "invalid name for a run configuration: '../x'" in remote.err
    assert not (project / "aml_config" / "x.runconfig").exists()
    forced = user.mlw("runconfiguration", "create", "-n", "local", "-t", "docker", "--force", cwd=project)
    assert forced.code == 0
    assert "Target: docker" in (project / "aml_config" / "local.runconfig").read_text()


def test_list_continues_after_damaged_file(user, project):
    (project / "aml_config" / "bad.runconfig").write_text("Framework:Python\n")
    (project / "aml_config" / "bad.compute").write_text("type: docker\nsharedVolumne: true\n")
    done = user.mlw("runconfiguration", "list", "-o", "json", "--query", "[].[name, target]", cwd=project)
    assert done.code == 0
    assert json.loads(done.out) == [["bad", None], ["docker", "docker"], ["local", "local"]]
    assert "warning: aml_config/bad.runconfig:1: not valid YAML" in done.err
    done = user.mlw("computetarget", "list", cwd=project)
    assert done.code == 0
    assert "warning: aml_config/bad.compute:2: unknown key 'sharedVolumne'" in done.err
    assert [line.split()[0] for line in done.out.splitlines()[2:]] == ["bad", "docker", "local"]


def test_delete_run_configuration(user, project):
    path = project / "aml_config" / "docker.runconfig"
    unknown = user.mlw("runconfiguration", "delete", "-n", "dokcer", cwd=project)
    assert unknown.code == 66
    assert "unknown run configuration 'dokcer'; available: docker, local" in unknown.err
    done = user.mlw("runconfiguration", "delete", "-n", "docker", cwd=project)  # no terminal for a prompt
    assert (done.code, done.err) == (0, "deleted aml_config/docker.runconfig\n")
    assert not path.exists()
    assert (project / "aml_config" / "docker.compute").exists()


@pytest.mark.parametrize(("answer", "code", "gone"), [("n", 1, False), ("", 1, False), ("y", 0, True)])
def test_delete_prompts_on_terminal(user, project, answer, code, gone):
    path = project / "aml_config" / "docker.runconfig"
    command = ["runconfiguration", "delete", "-n", "docker"]
    child = pexpect.spawn("mlw", command, cwd=str(project), env=user.env, timeout=60, encoding="utf-8")
    child.expect_exact("Delete aml_config/docker.runconfig? [y/N]:")
    child.sendline(answer)
    child.expect_exact("deleted aml_config/docker.runconfig" if gone else "nothing was deleted")
    child.expect(pexpect.EOF)
    child.close()
    assert (child.exitstatus, path.exists()) == (code, not gone)


def test_delete_with_yes_does_not_prompt(user, project):
    command = ["runconfiguration", "delete", "-n", "docker", "--yes"]
    child = pexpect.spawn("mlw", command, cwd=str(project), env=user.env, timeout=60, encoding="utf-8")
    child.expect(pexpect.EOF)
    child.close()
    assert "?" not in child.before
    assert not (project / "aml_config" / "docker.runconfig").exists()


# -- targets -----------------------------------------------------------------------------------------


def test_list_and_show_targets(user, project):
    config = project / "aml_config"
    (config / "gpu.compute").write_text(
        "address: 10.0.0.4\nusername: me\ntype: remotedocker\nnvidiaDocker: true\npassword: AzureMlSecret=gpu#me#0f\n"
    )
    assert json.loads(user.mlw("computetarget", "list", "-o", "json", cwd=project).out) == ["docker", "gpu", "local"]
    assert user.mlw("computetarget", "list", "-o", "tsv", cwd=project).out == "docker\ngpu\nlocal\n"
    table = user.mlw("computetarget", "list", cwd=project).out.splitlines()
    assert table[0].split() == ["Name", "Type", "Address", "Attached", "Identity", "Run", "configurations"]
    assert table[3].split()[:4] == ["gpu", "remotedocker", "10.0.0.4", "no"]
    facts = json.loads(user.mlw("computetarget", "show", "gpu", "-o", "json", cwd=project).out)
    assert facts["name"] == "gpu"
    assert facts["nvidiaDocker"] is True
    assert facts["baseDockerImage"] == "python:3.12-slim-bookworm"
    assert facts["nativeSharedDirectory"] is None
    assert "0f" not in facts["password"]
    assert "yarnDeployMode" not in facts
    unknown = user.mlw("computetarget", "show", "gpus", cwd=project)
    assert unknown.code == 66
    assert "unknown compute target 'gpus'; available: docker, gpu, local" in unknown.err


# -- projects in older formats -----------------------------------------------------------------------


def test_project_of_may_2017(user):
    """JSON with the extension .amb and without a project ID."""
    project = user.home / "old"
    (project / "aml_config").mkdir(parents=True)
    (project / "aml_config" / "local.compute").write_text("type: local\n")
    (project / "aml_config" / "local.amb").write_text(JSON_FORM % '"Framework":"Python",')
    (project / "train.py").write_text(SAYS_ARGUMENTS)
    done = user.mlw("submit", "-c", "local", cwd=project)
    assert (done.code, done.out) == (0, "['--lr', '0.5']\n"), done
    done = user.mlw("runconfiguration", "list", "-o", "tsv", "--query", "[].[name, script]", cwd=project)
    assert done.out == "local\ttrain.py\n"
    assert "hint: aml_config/local.amb has an outdated extension; rename it to local.runconfig" in done.err
    problems = json.loads(user.mlw("project", "validate", "-o", "json", cwd=project).out)
    assert "rename the file to local.runconfig" in [problem["hint"] for problem in problems]
    again = user.mlw("runconfiguration", "create", "-n", "local", "-t", "local", cwd=project)
    assert "local.amb already exists" in again.err
    os.rename(project / "aml_config" / "local.amb", project / "aml_config" / "local.runconfig")
    assert user.mlw("submit", "-c", "local", cwd=project).out == "['--lr', '0.5']\n"


def test_old_extension_is_used_only_without_new_file(user, project):
    (project / "aml_config" / "local.amb").write_text(JSON_FORM % '"Framework":"PySpark",')
    assert user.mlw("submit", "-c", "local", cwd=project).out == "[]\n"
    assert user.mlw("runconfiguration", "delete", "-n", "local", cwd=project).code == 0
    assert "PySpark" in user.mlw("submit", "-c", "local", cwd=project).err


def test_project_of_april_2018(user, project):
    (project / "aml_config" / "local.runconfig").write_text(
        "script: train.py\narguments: [--lr, 0.10]\ntarget: local\nframework: Python\n"
        "environment:\n  environmentVariables: {A: b}\n"
        "  python: {userManagedDependencies: true, interpreterPath: python}\n"
        "  docker: {enabled: false, baseImage: x/y, baseImageRegistry: {password: hunter2}}\n"
        "history: {enabled: true}\nbatchai: {nodeCount: 1}\n"
    )
    done = user.mlw("submit", cwd=project)
    assert (done.code, done.out) == (0, "['--lr', '0.10']\n"), done
    assert user.info(done.run, project)["run_configuration"] == "local"
    assert "hunter2" not in (user.folder(done.run) / "spec.json").read_text()
    assert "hunter2" not in user.mlw("project", "validate", "-o", "json", cwd=project).out


def test_interpreter_from_run_configuration_is_used(user, project):
    (project / "aml_config" / "local.runconfig").write_text(
        "script: train.py\ntarget: local\nframework: Python\n"
        "environment:\n  python: {interpreterPath: /nowhere/python}\n"
    )
    done = user.mlw("submit", cwd=project)
    assert done.code == 78
    assert "/nowhere/python" in done.err


# -- templates and schemas ---------------------------------------------------------------------------


def test_create_from_templates(user):
    rows = json.loads(user.mlw("project", "sample", "list", "-o", "json").out)
    (default,) = [row for row in rows if row["name"] == "default"]
    assert default["description"].startswith(
        "An ML Workbench project. `train.py` trains a classifier for two half-moons"
    )
    assert "\n" not in default["description"]
    for number, row in enumerate(rows):
        done = user.mlw("project", "create", "--name", f"p{number}", "--template", row["name"])
        assert done.code == 0, done
        assert user.mlw("project", "validate", cwd=user.home / f"p{number}").code == 0
    unknown = user.mlw("project", "create", "--name", "x", "--template", "defualt")
    assert unknown.code == 66
    assert "unknown template 'defualt'" in unknown.err
    assert not (user.home / "x").exists()


def test_schemas_are_for_editors_only(user, project):
    config = project / "aml_config"
    for path in sorted(config.iterdir()):
        if path.is_file() and path.name != "project.json":
            reference = path.read_text().splitlines()[0].removeprefix("# yaml-language-server: $schema=")
            kind = reference.split("/")[1].split(".")[0]
            assert (config / reference).read_text() == user.mlw("project", "schema", kind).out
    facts = json.loads(user.mlw("project", "show", "-o", "json", cwd=project).out)
    assert facts["targets"] == facts["run_configurations"] == ["docker", "local"]
    assert user.mlw("project", "validate", cwd=project).err == "no problems found\n"
    done = user.mlw("submit", "--", "/bin/ls", "-a", "aml_config", cwd=project)
    assert "local.compute" in done.out
    assert ".schemas" not in done.out
