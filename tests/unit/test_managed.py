"""Environments that mlw builds: what a run gets of the lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlworkbench.environments import managed as module
from mlworkbench.environments.site import Site
from mlworkbench.errors import ConfigError
from mlworkbench.model import Compute, RunConfig
from mlworkbench.paths import UserPaths
from mlworkbench.remote.folder import Root


def settle(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> tuple[int, int, int]:
    python = {"source": "conda", "version": version}
    lock = {"kind": "managed", "python": python, "conda": [], "pip": [], "glibc": None, "digest": "0" * 64}
    monkeypatch.setattr(module, "_solve", lambda site, platform: lock)
    site = Site(
        root=folder,
        runconfig=RunConfig("local", "local"),
        compute=Compute("local", "local"),
        paths=UserPaths(folder),
        environ=os.environ,
        target=lambda: Root(str(folder)),
        facts={"os": {"system": "Linux", "arch": "x86_64", "libc": "glibc 2.36"}},
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
    with pytest.raises(ConfigError, match="'main' is not a version of Python"):
        settle(tmp_path, monkeypatch, "main")
