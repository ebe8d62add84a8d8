"""Compute types and environments from plugins: missing plugins, outdated plugins, and one-line plugins.

test_examples.py runs the tests of the plugin in examples/.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.example_plugins import EXAMPLES, install

EXAMPLE = EXAMPLES / "mlw-ready"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plugins.md"
SCRIPT = "print(1)\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return install("mlw-ready", tmp_path_factory.mktemp("plugin"))


def use_environment_plugin(root: Path, runconfig: str, name: str = "vision") -> None:
    path = root / "aml_config" / f"{runconfig}.runconfig"
    text = path.read_text()
    assert "#EnvironmentPlugin: NAME" in text
    text = text.replace("#EnvironmentPlugin: NAME", "EnvironmentPlugin: ready")
    path.write_text(text.replace("  EXAMPLE_VARIABLE: example", f"  READY_ENVIRONMENT: {name}"))


def test_missing_plugin_is_reported(user):
    root = user.project("demo", train=SCRIPT)
    use_environment_plugin(root, "local")
    done = user.mlw("submit", "-c", "local", "train.py", cwd=root)
    assert done.code == 78 and "EnvironmentPlugin: ready, but no such plugin is installed" in done.err, done
    assert "available: none" in done.err and user.runs() == []


def test_compute_type_of_missing_plugin_is_unknown(user):
    root = user.project("demo", train=SCRIPT)
    (root / "aml_config" / "cuda.compute").write_text("type: cuda12\n")
    (root / "aml_config" / "cuda.runconfig").write_text("Target: cuda\nFramework: Python\n")
    done = user.mlw("submit", "-c", "cuda", "train.py", cwd=root)
    assert done.code == 66 and "unknown compute type 'cuda12'" in done.err, done


def row(site: Path, name: str, built_in: str) -> dict[str, str]:
    """Write a one-line plugin that defines a built-in type under another name. Return variables that enable it."""
    package = site / f"mlw_{name}-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "entry_points.txt").write_text(f"[mlworkbench.targets]\n{name} = mlw_{name}:ROW\n")
    (site / f"mlw_{name}.py").write_text(
        "from dataclasses import replace\n"
        f"from mlworkbench.targets.types import {built_in}\n"
        f"ROW = replace({built_in}, name={name!r})\n"
    )
    return {"PYTHONPATH": str(site)}


def test_plugin_that_renames_built_in_type(laptop, engine, tmp_path):
    """The target's settings take effect, and runs use a container."""
    env = row(tmp_path / "site", "boxed", "DOCKER")
    laptop.use_engine(engine)
    root = laptop.project("demo", train="import os\nprint(os.path.exists('/.dockerenv'))\n")
    (root / "aml_config" / "mine.compute").write_text(
        f"type: boxed\nbaseDockerImage: {engine.image}\nuserManagedEnvironment: true\n"
    )
    (root / "aml_config" / "mine.runconfig").write_text("Target: mine\nFramework: Python\n")
    assert laptop.mlw("project", "validate", cwd=root, env=env).out == "", "what a container needs has an effect here"
    done = laptop.mlw("submit", "-c", "mine", "train.py", cwd=root, env=env)
    assert (done.code, done.out) == (0, "True\n"), done


def test_remote_plugin_type_is_attached_by_its_name(laptop, machine, tmp_path):
    env = row(tmp_path / "site", "farbox", "REMOTE")
    host = machine()
    root = laptop.project("demo", train="import os\nprint('on', os.uname().nodename)\n")
    file = root / "aml_config" / "far.compute"
    file.write_text(f"type: farbox\naddress: {host.address}\nusername: {host.user}\n")
    (root / "aml_config" / "far.runconfig").write_text("Target: far\nFramework: Python\n")
    refused = laptop.mlw("submit", "-c", "far", "train.py", cwd=root, env=env)
    assert refused.code == 69 and "mlw computetarget attach farbox --name far" in refused.err, refused
    before = file.read_text()
    key = ("--address", host.address, "--private-key-file", str(host.key), "--host-key", host.host_key_fingerprint)
    laptop.mlw("computetarget", "attach", "farbox", "--name", "far", *key, cwd=root, env=env, check=True)
    assert file.read_text() == before
    done = laptop.mlw("submit", "-c", "far", "train.py", cwd=root, env=env)
    assert (done.code, done.out) == (0, f"on {host.name}\n"), done
    arguments = ("computetarget", "attach", "farbox", "--name", "new", "--username", host.user, *key)
    new = laptop.mlw(*arguments, cwd=root, env=env, check=True)
    assert "attached new: farbox at" in new.err and "type: farbox\n" in (root / "aml_config/new.compute").read_text()


def test_outdated_plugin_is_refused_with_explanation(user, tmp_path):
    package = tmp_path / "site" / "mlw_old-1.0.dist-info"
    package.mkdir(parents=True)
    points = "[mlworkbench.targets]\nold = mlw_old:make\n[mlworkbench.like]\nold = local\n"
    (package / "entry_points.txt").write_text(points)
    root = user.project("demo", train=SCRIPT)
    (root / "aml_config" / "old.compute").write_text("type: old\n")
    done = user.mlw("submit", "-t", "old", "train.py", cwd=root, env={"PYTHONPATH": str(package.parent)})
    assert done.code == 78 and "must be a ComputeType (mlworkbench.like was removed)" in done.err, done


def test_missing_requirements_are_found_before_run(user, installed):
    root = user.project("demo", train=SCRIPT)
    (root / "aml_config" / "cuda.compute").write_text("type: cuda12\npythonLocation: /nowhere/python\n")
    (root / "aml_config" / "cuda.runconfig").write_text("Target: cuda\nFramework: Python\nEnvironmentPlugin: raedy\n")
    result = user.mlw("project", "validate", cwd=root, env=installed)
    assert "/nowhere/python" in result.out and "plugin 'raedy' is not installed" in result.out, result


def test_page_shows_current_example():
    text = PAGE.read_text()
    for name in ("mlw_ready.py", "pyproject.toml"):
        assert (EXAMPLE / name).read_text().strip() in text, name
