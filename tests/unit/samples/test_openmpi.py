"""The CNTK sample deletes its own temporary folder, and no other folder that MNIST_CNTK_OPENMPI may contain."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from mlworkbench.config.gallery import GALLERY


@pytest.fixture
def openmpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module as a script imports it, on a machine where CNTK's OpenMPI can be loaded."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("openmpi", GALLERY / "mnist-cntk" / "openmpi.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return module


def test_its_own_folder_goes(openmpi, monkeypatch, tmp_path):
    """The script creates the folder before it restarts itself, and removes it after the restart."""
    monkeypatch.delenv("MNIST_CNTK_OPENMPI", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(openmpi.os, "execv", lambda *_: None)
    openmpi.start_anew((tmp_path, ".so.40"))
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    openmpi.get_ready()
    assert list((tmp_path / "tmp").iterdir()) == []
    openmpi.get_ready()


@pytest.mark.parametrize(
    "named",
    [
        "data",
        "tmp/other",
        "tmp",
        "tmp/mnist-cntk-openmpi-x/..",
        "mnist-cntk-openmpi-x",
        "tmp/mnist-cntk-openmpi-x/deep",
        "",
        ".",
    ],
)
def test_nothing_else_goes(openmpi, monkeypatch, tmp_path, named):
    for folder in ("data", "tmp/other", "tmp/mnist-cntk-openmpi-x/deep", "mnist-cntk-openmpi-x"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MNIST_CNTK_OPENMPI", str(tmp_path / named) if named not in ("", ".") else named)
    openmpi.get_ready()
    assert sorted(tmp_path.rglob("*")) == before
