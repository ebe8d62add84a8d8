"""The tools for targets: the table of their digests, where they come from, and the copy that is sent from here."""

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
from mlworkbench.environments.own import Unverified, pack
from mlworkbench.environments.pinned_tools import Installer, find_tools, pinned
from mlworkbench.environments.pip import run_uv
from mlworkbench.environments.platforms import _SUBDIRS, Platform
from mlworkbench.environments.supply import packages
from mlworkbench.environments.wheel_tags import tags_of
from mlworkbench.errors import SolveError
from mlworkbench.remote.environments.tools import provide, take_in, uv_program
from mlworkbench.remote.shared.layout import Root
from tests.e2e.package_index import serving

ROOT = Path(__file__).resolve().parents[2]
LINUX = Platform("linux-64", "2.36")
VERSION = "{}.{}.{}".format(*sys.version_info[:3])
HERE = Installer(LINUX, VERSION)


@pytest.fixture
def environ():
    """No settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "PYTHON"))}
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture
def said():
    return []


def find(environ, cache, said, where=HERE, conda=True):
    return find_tools(where, conda=conda, cache=cache, environ=environ, tell=said.append)


# -- the table -----------------------------------------------------------------------------------------


def test_the_table_is_sound():
    wheels = [(tool, sha256, one) for tool in pinned() for sha256, one in tool.wheels.items()]
    assert len(wheels) == len({sha256 for _, sha256, _ in wheels}) > 35
    for tool, sha256, one in wheels:
        assert re.fullmatch("[0-9a-f]{64}", sha256)
        assert one["file"].startswith(f"{tool.name.replace('-', '_')}-{tool.version}-")
        assert one["tags"] == sorted(map(str, tags_of(one["file"])))


def test_its_versions_are_those_that_mlw_may_be_installed_with():
    needed = map(Requirement, metadata.requires("mlworkbench") or ())
    asked = {one.name: one for one in needed if "extra ==" not in str(one.marker)}
    for tool in pinned():
        assert asked[tool.name].specifier.contains(tool.version), tool


@pytest.mark.parametrize("subdir", sorted(set(_SUBDIRS.values())))
@pytest.mark.parametrize("python", ["3.8.1", "3.10.0", "3.14.0"])
def test_every_platform_has_its_wheel(subdir, python):
    machine = Platform(subdir, "2.31" if subdir.startswith("linux") else None)
    for name in ("uv", "py-rattler"):
        found = [one.wheel_for(machine, python) for one in pinned() if one.name == name]
        assert any(found), (name, subdir, python)
        assert all(machine.machine in one["file"] or "universal2" in one["file"] for one in found if one)


def test_it_can_be_generated_again(environ):
    words = [sys.executable, str(ROOT / "scripts" / "generate-tool-digests"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr


# -- where they come from ------------------------------------------------------------------------------


def test_the_versions_do_not_depend_on_what_is_installed_here(environ, tmp_path, said, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    entries, files = find(environ, tmp_path, said)
    known = {(one.name, one.version): one.wheels for one in pinned()}
    assert [one["name"] for one in entries] == ["uv", "py-rattler"] and not said
    for one in entries:
        assert one["sha256"] in known[one["name"], one["version"]]
        assert one.get("url") or one["sha256"] in files


def test_an_old_python_there_gets_a_version_for_it(environ, tmp_path, said):
    entries, _ = find(environ, tmp_path, said, Installer(LINUX, "3.8.10"))
    assert [(one["name"], one["version"]) for one in entries if one["name"] != "uv"] == [("py-rattler", "0.25.0")]


def test_a_file_with_another_digest_is_not_used(environ, tmp_path, said):
    """The index of the user's settings is trusted for packages, and not for what this release was tested with."""
    tool = next(one for one in pinned() if one.name == "uv")
    folder = tmp_path / "index" / "main"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / str(tool.wheel_for(LINUX, VERSION)["file"]), "w") as file:
        info = f"uv-{tool.version}.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {tool.version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    with serving(tmp_path / "index") as index:
        settings = {**environ, "PIP_INDEX_URL": f"{index.url}/main/simple"}
        (entry,), files = find(settings, tmp_path / "cache", said, conda=False)
    assert said == [f"the hash of uv {tool.version} on the package index is not the expected one; file not used"]
    assert "url" not in entry and entry["version"] == tool.version
    assert entry["sha256"] in tool.wheels or entry["sha256"] in files


def test_a_tool_that_nobody_has_is_named_and_asked_for(environ, tmp_path, said, monkeypatch):
    monkeypatch.setattr(pinned_tools, "pack", lambda *_: None)  # as where another version is installed
    (entry,), files = find({**environ, "PIP_NO_INDEX": "1"}, tmp_path, said, conda=False)
    assert files == {} and "url" not in entry
    lock = {"conda": [], "pip": [], "tools": [entry], "python": {}}
    with pytest.raises(SolveError, match=f"the target needs uv=={entry['version']}, which is neither on") as caught:
        packages(lock, {"digests": [entry["sha256"]]}, Root(str(tmp_path / "store")))
    assert f"pip install uv=={entry['version']}" in str(caught.value.hint)


# -- the copy of what is installed here ----------------------------------------------------------------

INSTALLED = {(name, metadata.version(name)) for name in ("uv", "py-rattler")}
needs_pinned = pytest.mark.skipif(
    not {(one.name, one.version) for one in pinned()} >= INSTALLED,
    reason="other versions are installed here than the pinned ones",
)


@needs_pinned
def test_tools_that_no_index_has_are_sent_from_here(environ, tmp_path, said):
    tools, files = find({**environ, "PIP_NO_INDEX": "true"}, tmp_path / "cache", said)
    assert [one["name"] for one in tools] == ["uv", "py-rattler"]
    root, lock = Root(str(tmp_path / "target")), {"tools": tools}
    for one in tools:
        assert "url" not in one and str(tmp_path) not in json.dumps(one)
        take_in(root, one["sha256"], str(files[one["sha256"]]))
    done = subprocess.run([uv_program(provide(root, lock, "uv")), "--version"], capture_output=True, text=True)
    assert done.stdout.split()[1] == tools[0]["version"]
    code = f"import sys; sys.path.insert(0, {provide(root, lock, 'py-rattler')!r}); import rattler.rattler"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True).stderr == ""
    assert find({**environ, "PIP_NO_INDEX": "true"}, tmp_path / "cache", said)[0] == tools


def test_a_wheel_made_here_is_the_same_each_time_and_whole(tmp_path):
    version = metadata.version("uv")
    (first, here), (second, there) = (pack("uv", version, LINUX, VERSION, tmp_path / name) for name in "ab")
    assert first == second and here.read_bytes() == there.read_bytes()
    target = tmp_path / "target"
    words = ["pip", "install", "--no-index", "--no-deps", "--target", str(target), str(here)]
    done = run_uv(words, dict(os.environ), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (target / "bin" / "uv").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("platform", "python"),
    [(Platform("linux-aarch64", "2.36"), "3.11"), (Platform("linux-64", "musl"), "3.11"), (LINUX, "3.7")],
)
def test_tools_that_would_not_run_there_are_not_sent(tmp_path, platform, python):
    assert pack("py-rattler", metadata.version("py-rattler"), platform, python, tmp_path) is None


def test_another_version_is_not_sent(tmp_path):
    assert pack("uv", "0.9.0", LINUX, VERSION, tmp_path) is None


@pytest.mark.parametrize("harm", ["changed", "no digest"])
def test_a_copy_that_differs_from_its_record_is_not_sent(tmp_path, monkeypatch, said, environ, harm):
    """Somebody changed the installed tool: it may run here, and is spread no further."""
    tool = next(one for one in pinned() if one.name == "uv")
    info = tmp_path / "site" / f"uv-{tool.version}.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "uv").mkdir()
    (tmp_path / "site" / "uv" / "code.py").write_text("changed = True\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: uv\nVersion: {tool.version}\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    digest = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0" if harm == "changed" else ","
    (info / "RECORD").write_text(f"uv/code.py,{digest}\nuv-{tool.version}.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(Unverified, match=r"uv/code.py does not match the RECORD of uv"):
        pack("uv", tool.version, LINUX, VERSION, tmp_path / "cache")
    (entry,), files = find({**environ, "PIP_NO_INDEX": "1"}, tmp_path / "cache", said, conda=False)
    assert files == {} and entry["sha256"] in tool.wheels
    assert len(said) == 1 and said[0].endswith("; file not sent to targets")
    assert list((tmp_path / "cache").rglob("*.whl")) == []


@pytest.mark.parametrize("name", ["uv", "py-rattler"])
def test_development_uses_the_versions_of_the_table(name):
    """Else a new release of a tool changes what the tests see."""
    newest = next(entry["version"] for entry in json.loads(pinned_tools.FILE.read_text()) if entry["name"] == name)
    assert f'"{name}=={newest}"' in (ROOT / "pyproject.toml").read_text()
