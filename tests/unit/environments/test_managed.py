"""Environments managed by mlw: what a run gets from the lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.environments import managed as module
from mlworkbench.environments.selection_request import EnvironmentRequest
from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute, JsonDict, RunConfig
from mlworkbench.paths import UserPaths
from mlworkbench.remote.shared.environment_layout import digest_of
from mlworkbench.remote.shared.layout import Root

FACTS = {"os": {"system": "Linux", "arch": "x86_64", "libc": "glibc 2.36"}}
LOCK = {
    "kind": "managed",
    "format": 1,
    "platform": "linux-64",
    "glibc": None,
    "cuda": None,
    "python": {"source": "host", "version": "3.11.7", "path": "/srv/project/evil"},
    "conda": [],
    "pip": [],
}


def settle(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> tuple[int, int, int]:
    python = {"source": "conda", "version": version}
    lock = {"kind": "managed", "python": python, "conda": [], "pip": [], "glibc": None, "digest": "0" * 64}
    monkeypatch.setattr(module, "_solve", lambda site, platform: lock)
    site = EnvironmentRequest(
        root=folder,
        runconfig=RunConfig("local", "local"),
        compute=Compute("local", "local"),
        paths=UserPaths(folder),
        environ=os.environ,
        target=lambda: Root(str(folder)),
        facts=FACTS,
    )
    return module.managed(site).interpreter.version


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("3.11.7", (3, 11, 7)), ("3.14.0rc2", (3, 14, 0)), ("3.14rc2", (3, 14, 0)), ("3.15.0a1", (3, 15, 0))],
)
def test_a_python_before_its_release_has_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, numbers: tuple[int, int, int]
) -> None:
    assert settle(tmp_path, monkeypatch, version) == numbers


def test_a_version_without_numbers_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="'main' is not a Python version"):
        settle(tmp_path, monkeypatch, "main")


def reuse_lock(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lock: JsonDict) -> JsonDict:
    monkeypatch.setattr(module, "add_tools", lambda solved, *_: solved)
    site = EnvironmentRequest(
        root=folder,
        runconfig=RunConfig("box", "box"),
        compute=Compute("box", kind),
        paths=UserPaths(folder),
        environ=os.environ,
        target=lambda: Root(str(folder)),
        facts=FACTS,
        locked={**lock, "digest": lock.get("digest") or digest_of(lock)},
    )
    return module.managed(site).lock


def test_host_python_of_a_lock_is_not_for_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock for containers never names a Python of the host. This lock was edited or belongs to another target."""
    for kind in ("docker", "remotedocker"):
        with pytest.raises(ConfigError, match="/srv/project/evil") as caught:
            reuse_lock(tmp_path, monkeypatch, kind, LOCK)
        assert "--locked" in (caught.value.hint or "")
    assert reuse_lock(tmp_path, monkeypatch, "local", LOCK)["python"] == LOCK["python"]


def test_python_in_a_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python inside a project is refused, unless a run on this machine would use it anyway."""
    mark, program = tmp_path / "mark", tmp_path / "project" / "evil"
    (tmp_path / "project" / "aml_config").mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    python = {"source": "host", "version": "3.11.7", "path": str(program)}
    with pytest.raises(ConfigError, match="inside a project, which is not trusted"):
        reuse_lock(tmp_path, monkeypatch, "local", {**LOCK, "python": python})
    assert not mark.exists()
    monkeypatch.setattr(module, "_host_python", lambda site: (str(program), "3.11.7"))
    assert reuse_lock(tmp_path, monkeypatch, "local", {**LOCK, "python": python})["python"] == python


WHEEL = {"name": "a", "version": "1", "url": "https://x.example/a-1-py3-none-any.whl", "sha256": "1" * 64}
CONDA = {"name": "a", "version": "1", "build": "0", "subdir": "noarch", "depends": []}


@pytest.mark.parametrize(
    "change",
    [
        {"pip": [{**WHEEL, "sha256": "../../../home/ada/.ssh/id_rsa"}]},
        {"pip": [{**WHEEL, "sha256": None}]},
        {"pip": [{**WHEEL, "url": "file:///home/ada/.ssh/id_rsa", "private": True}]},
        {"pip": [{**WHEEL, "url": None, "file": "../a-1-py3-none-any.whl"}]},
        {"pip": [{**WHEEL, "name": "a\n--index-url https://evil.example"}]},
        {"pip": [{"name": "a", "version": "1", "git": "file:///home/ada/private", "commit": "3" * 40}]},
        {"pip": [{"name": "a", "version": "1", "git": "https://x.example/a", "commit": "--upload-pack=evil"}]},
        {"pip": "six", "digest": "0" * 64},
        {"digest": "0" * 64},
        {"conda": [{**CONDA, "url": "file:///srv/a-1-0.conda", "sha256": "1" * 64}]},
        {"conda": [{**CONDA, "url": "https://x.example/noarch/a-1-0.conda", "sha256": None, "md5": None}]},
        {"python": {"source": "uv", "version": "3.11.7", "key": "../../evil", "url": "https://x.example/p.tar.gz"}},
        {"python": {"source": "path", "version": "3.11.7", "path": "/srv/project/evil"}},
        {"python": {"source": "host", "version": "3.11.7", "path": "evil"}},
    ],
)
def test_lock_with_anything_but_packages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: JsonDict
) -> None:
    with pytest.raises(ConfigError, match="the lock file of that run") as caught:
        reuse_lock(tmp_path, monkeypatch, "local", {**LOCK, **change})
    assert "--locked" in (caught.value.hint or "")
