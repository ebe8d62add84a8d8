"""Archives that unpack to implausible sizes, on this machine and on targets."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mlworkbench.environments.pip_solve import find_uv
from mlworkbench.environments.uv_process import run_limited
from mlworkbench.errors import SolveError
from mlworkbench.remote.environments.build_process import run_program
from mlworkbench.remote.environments.build_tools import NoEnvironment, NotFetched, fetch
from mlworkbench.remote.shared import unpacking_limits
from mlworkbench.remote.shared.unpacking_limits import UnpackingLimits, max_bytes_for, temporary_folders
from tests.e2e.package_index import serve_index

MEGABYTE = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are set on Linux only")


class Zeros(io.RawIOBase):
    """A stream of zeros that needs no memory."""

    def __init__(self, size: int) -> None:
        self._remaining = size

    def read(self, size: int = -1) -> bytes:
        size = min(size, self._remaining)
        self._remaining -= size
        return bytes(size)


def bomb(path: Path, *sizes: int) -> Path:
    """Create a source package whose metadata file comes after files of these sizes."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number, size in enumerate(sizes):
            entry = tarfile.TarInfo(f"bomb-1.0/zeros-{number}")
            entry.size = size
            archive.addfile(entry, Zeros(size))
        text = b"Metadata-Version: 2.2\nName: bomb\nVersion: 1.0\n"
        entry = tarfile.TarInfo("bomb-1.0/PKG-INFO")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return path


@linux
@pytest.mark.parametrize("sizes", [(64 * MEGABYTE,), (8 * MEGABYTE,) * 40], ids=["one large file", "many files"])
def test_reading_a_package_does_not_fill_the_disk(tmp_path, monkeypatch, sizes):
    path = bomb(tmp_path / "bomb-1.0.tar.gz", *sizes)
    monkeypatch.setattr(unpacking_limits, "MAX_FILE_SIZE", 16 * MEGABYTE)
    monkeypatch.setattr("mlworkbench.environments.uv_process.MAX_BYTES", 32 * MEGABYTE)
    monkeypatch.setattr("mlworkbench.environments.uv_process._POLL_INTERVAL", 0.01)
    (tmp_path / "in").write_text(f"bomb @ {path.as_uri()}\n")
    cache = tmp_path / "cache"
    environ = {**os.environ, "UV_CACHE_DIR": str(cache), "UV_NO_PROGRESS": "1"}
    command = [find_uv(os.environ), "pip", "compile", "in", "--no-index", "--quiet", "--no-config"]
    with pytest.raises(SolveError) as raised:
        run_limited(command, environ, tmp_path)
    assert "a package unpacks to an implausible size" in (raised.value.hint or "")
    remaining = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert remaining < 16 * MEGABYTE, "unpacked files are removed"


# Writes 64 MiB, and does not end by itself.
WRITE = """
import signal
with open('zeros', 'wb') as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
while True:
    signal.pause()
"""


def build(folder: Path, max_bytes: int) -> str | None:
    holder = os.open(folder, os.O_RDONLY)
    try:
        command = [sys.executable, "-c", WRITE]
        log, limits = str(folder / "log"), UnpackingLimits(max_bytes, str(folder))
        return run_program(command, dict(os.environ), str(folder), log, holder, limits, lambda pid: None)
    finally:
        os.close(holder)


@linux
def test_build_does_not_fill_the_disk(tmp_path, monkeypatch):
    with pytest.raises(
        NoEnvironment, match="the installation exceeded the limit of 0 GB .* a package unpacks to an implausible size"
    ):
        build(tmp_path, 32 * MEGABYTE)
    monkeypatch.setattr(unpacking_limits, "_RESERVE", 1 << 60)
    free = [10, 10, 100]
    monkeypatch.setattr(unpacking_limits, "_free_bytes", lambda folder: free.pop())
    with pytest.raises(NoEnvironment, match="became full .*; hint: free disk space"):
        build(tmp_path, 1 << 60)
    monkeypatch.undo()
    monkeypatch.setattr(unpacking_limits, "MAX_FILE_SIZE", 16 * MEGABYTE)
    output = build(tmp_path, 1 << 60)
    assert output is not None and "File too large" in output


def test_invalid_sizes_in_a_lock_are_ignored():
    assert (
        max_bytes_for([{"size": 10}, {"size": None}, {}, {"size": "9"}, {"size": -5}])
        == unpacking_limits.MAX_BYTES + 200
    )


def test_download_is_limited_to_the_size_in_the_index(tmp_path):
    folder = tmp_path / "index" / "main"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "a-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("zeros", bytes(3 * MEGABYTE))
    with serve_index(tmp_path / "index") as index:
        url = f"{index.url}/main/a-1.0-py3-none-any.whl"
        with pytest.raises(NoEnvironment, match="is larger than 1048576 bytes"):
            fetch(url, str(tmp_path / "part"), max_size=MEGABYTE)
        assert fetch(url, str(tmp_path / "part"), max_size=4 * MEGABYTE)
    assert (tmp_path / "part").stat().st_size > 3 * MEGABYTE
    with pytest.raises(NotFetched, match="unknown url type"):
        fetch((tmp_path / "part").as_uri(), str(tmp_path / "other"))
    assert fetch((tmp_path / "part").as_uri(), str(tmp_path / "other"), local=True)


def test_output_of_a_program_that_ends_by_itself(tmp_path):
    result = run_limited([sys.executable, "-c", "print('x' * 200000)"], dict(os.environ), tmp_path)
    assert isinstance(result, subprocess.CompletedProcess) and (result.returncode, len(result.stdout)) == (0, 200001)


def test_only_temporary_folders_of_the_cache_are_removed(tmp_path):
    """A parent of the cache, or a folder of another program, may have the same prefix as temporary folders."""
    cache = tmp_path / ".tmp-mine" / "cache"
    (cache / ".tmpAbc").mkdir(parents=True)
    (tmp_path / ".tmp-other").mkdir()
    with (
        (cache / ".tmpAbc" / "file").open("w"),
        (cache / "log").open("w"),
        (tmp_path / ".tmp-other" / "x").open("w"),
    ):
        assert temporary_folders(os.getpid(), str(cache)) == {str(cache / ".tmpAbc")}
