"""The tools for targets: the table of digests, their sources, and the copy that mlw uploads."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mlworkbench.environments import pinned_tools
from mlworkbench.environments.package_supply import collect_packages
from mlworkbench.environments.pinned_tools import Installer, find_tools, load_pinned_tools
from mlworkbench.environments.pip_solve import run_uv
from mlworkbench.environments.platforms import _SUBDIRS, Platform
from mlworkbench.environments.tool_wheels import RecordMismatch, pack_installed
from mlworkbench.environments.wheel_tags import parse_tags
from mlworkbench.errors import SolveError
from mlworkbench.remote.environments.build_tools import provide_tool, store_package, uv_program
from mlworkbench.remote.shared.layout import Root
from tests.e2e.package_index import serve_index

ROOT = Path(__file__).resolve().parents[3]
LINUX = Platform("linux-64", "2.36")
VERSION = "{}.{}.{}".format(*sys.version_info[:3])
INSTALLER = Installer(LINUX, VERSION)


@pytest.fixture
def environ():
    """The environment without the settings of the user who runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "PYTHON"))}
    return {**inherited, "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def messages():
    return []


def find(environ, cache, messages, where=INSTALLER, conda=True):
    return find_tools(where, conda=conda, cache=cache, environ=environ, report=messages.append)


# -- table of pinned tools -----------------------------------------------------------------------------


def test_table_is_consistent():
    wheels = [(tool, sha256, wheel) for tool in load_pinned_tools() for sha256, wheel in tool.wheels.items()]
    assert len(wheels) == len({sha256 for _, sha256, _ in wheels}) > 35
    for tool, sha256, wheel in wheels:
        assert re.fullmatch("[0-9a-f]{64}", sha256)
        assert wheel["file"].startswith(f"{tool.name.replace('-', '_')}-{tool.version}-")
        assert wheel["tags"] == sorted(map(str, parse_tags(wheel["file"])))


def test_versions_match_requirements_of_mlw():
    needed = map(Requirement, metadata.requires("mlworkbench") or ())
    requirements = {item.name: item for item in needed if "extra ==" not in str(item.marker)}
    for tool in load_pinned_tools():
        assert requirements[tool.name].specifier.contains(tool.version), tool


@pytest.mark.parametrize("subdir", sorted(set(_SUBDIRS.values())))
@pytest.mark.parametrize("python", ["3.8.1", "3.10.0", "3.14.0"])
def test_every_platform_has_its_wheel(subdir, python):
    machine = Platform(subdir, "2.31" if subdir.startswith("linux") else None)
    for name in ("uv", "py-rattler"):
        wheels = [tool.wheel_for(machine, python) for tool in load_pinned_tools() if tool.name == name]
        assert any(wheels), (name, subdir, python)
        assert all(machine.machine in tool["file"] or "universal2" in tool["file"] for tool in wheels if tool)


def test_table_is_reproducible(environ):
    command = [sys.executable, str(ROOT / "scripts" / "generate-tool-digests"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert result.returncode == 0, result.stdout + result.stderr


# -- sources -------------------------------------------------------------------------------------------


def test_the_versions_do_not_depend_on_what_is_installed_here(environ, tmp_path, messages, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    entries, files = find(environ, tmp_path, messages)
    pinned = {(entry.name, entry.version): entry.wheels for entry in load_pinned_tools()}
    assert [entry["name"] for entry in entries] == ["uv", "py-rattler"] and not messages
    for entry in entries:
        assert entry["sha256"] in pinned[entry["name"], entry["version"]]
        assert entry.get("url") or entry["sha256"] in files


def test_old_python_gets_supported_version(environ, tmp_path, messages):
    entries, _ = find(environ, tmp_path, messages, Installer(LINUX, "3.8.10"))
    assert [(entry["name"], entry["version"]) for entry in entries if entry["name"] != "uv"] == [
        ("py-rattler", "0.25.0")
    ]


def test_a_file_with_another_digest_is_not_used(environ, tmp_path, messages):
    """The user's index is trusted for packages, but not for the tools that this release was tested with."""
    tool = next(item for item in load_pinned_tools() if item.name == "uv")
    folder = tmp_path / "index" / "main"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / str(tool.wheel_for(LINUX, VERSION)["file"]), "w") as file:
        info = f"uv-{tool.version}.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {tool.version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    with serve_index(tmp_path / "index") as index:
        settings = {**environ, "PIP_INDEX_URL": f"{index.url}/main/simple"}
        (entry,), files = find(settings, tmp_path / "cache", messages, conda=False)
    assert messages == [f"the hash of uv {tool.version} on the package index is not the expected one; file not used"]
    assert "url" not in entry and entry["version"] == tool.version
    assert entry["sha256"] in tool.wheels or entry["sha256"] in files


def test_unavailable_tool_is_listed_and_reported(environ, tmp_path, messages, monkeypatch):
    monkeypatch.setattr(pinned_tools, "pack_installed", lambda *_: None)  # as if a different version were installed
    (entry,), files = find({**environ, "PIP_NO_INDEX": "1"}, tmp_path, messages, conda=False)
    assert files == {} and "url" not in entry
    lock = {"conda": [], "pip": [], "tools": [entry], "python": {}}
    with pytest.raises(SolveError, match=f"the target needs uv=={entry['version']}, which is neither on") as caught:
        collect_packages(lock, {"digests": [entry["sha256"]]}, Root(str(tmp_path / "store")))
    assert f"pip install uv=={entry['version']}" in str(caught.value.hint)


# -- copies of installed tools -------------------------------------------------------------------------

INSTALLED = {(name, metadata.version(name)) for name in ("uv", "py-rattler")}
needs_pinned = pytest.mark.skipif(
    not {(one.name, one.version) for one in load_pinned_tools()} >= INSTALLED,
    reason="other versions are installed here than the pinned ones",
)


@needs_pinned
def test_tools_missing_on_index_are_uploaded(environ, tmp_path, messages):
    tools, files = find({**environ, "PIP_NO_INDEX": "true"}, tmp_path / "cache", messages)
    assert [entry["name"] for entry in tools] == ["uv", "py-rattler"]
    root, lock = Root(str(tmp_path / "target")), {"tools": tools}
    for entry in tools:
        assert "url" not in entry and str(tmp_path) not in json.dumps(entry)
        store_package(root, entry["sha256"], str(files[entry["sha256"]]))
    result = subprocess.run([uv_program(provide_tool(root, lock, "uv")), "--version"], capture_output=True, text=True)
    assert result.stdout.split()[1] == tools[0]["version"]
    code = f"import sys; sys.path.insert(0, {provide_tool(root, lock, 'py-rattler')!r}); import rattler.rattler"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True).stderr == ""
    assert find({**environ, "PIP_NO_INDEX": "true"}, tmp_path / "cache", messages)[0] == tools


def test_packed_wheel_is_reproducible_and_complete(tmp_path):
    version = metadata.version("uv")
    (first, first_path), (second, second_path) = (
        pack_installed("uv", version, LINUX, VERSION, tmp_path / name) for name in "ab"
    )
    assert first == second and first_path.read_bytes() == second_path.read_bytes()
    target = tmp_path / "target"
    arguments = ["pip", "install", "--no-index", "--no-deps", "--target", str(target), str(first_path)]
    result = run_uv(arguments, dict(os.environ), tmp_path)
    assert result.returncode == 0, result.stderr
    assert (target / "bin" / "uv").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("platform", "python"),
    [(Platform("linux-aarch64", "2.36"), "3.11"), (Platform("linux-64", "musl"), "3.11"), (LINUX, "3.7")],
)
def test_incompatible_tools_are_not_uploaded(tmp_path, platform, python):
    assert pack_installed("py-rattler", metadata.version("py-rattler"), platform, python, tmp_path) is None


def test_other_version_is_not_uploaded(tmp_path):
    assert pack_installed("uv", "0.9.0", LINUX, VERSION, tmp_path) is None


@pytest.mark.parametrize("harm", ["changed", "no digest"])
def test_modified_tool_is_not_uploaded(tmp_path, monkeypatch, messages, environ, harm):
    """A modified tool may run on this machine, but is not copied to targets."""
    tool = next(item for item in load_pinned_tools() if item.name == "uv")
    info = tmp_path / "site" / f"uv-{tool.version}.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "uv").mkdir()
    (tmp_path / "site" / "uv" / "code.py").write_text("changed = True\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: uv\nVersion: {tool.version}\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    digest = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0" if harm == "changed" else ","
    (info / "RECORD").write_text(f"uv/code.py,{digest}\nuv-{tool.version}.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(RecordMismatch, match=r"uv/code.py does not match the RECORD of uv"):
        pack_installed("uv", tool.version, LINUX, VERSION, tmp_path / "cache")
    (entry,), files = find({**environ, "PIP_NO_INDEX": "1"}, tmp_path / "cache", messages, conda=False)
    assert files == {} and entry["sha256"] in tool.wheels
    assert len(messages) == 1 and messages[0].endswith("; file not sent to targets")
    assert list((tmp_path / "cache").rglob("*.whl")) == []


@pytest.mark.parametrize("name", ["uv", "py-rattler"])
def test_development_uses_the_versions_of_the_table(name):
    """pyproject.toml pins these versions, so that a new release of a tool does not change the results of tests."""
    newest = next(entry["version"] for entry in json.loads(pinned_tools.FILE.read_text()) if entry["name"] == name)
    assert f'"{name}=={newest}"' in (ROOT / "pyproject.toml").read_text()
