"""Archives that unpack to far more than they should, on this machine and on targets."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mlworkbench.environments.pip import find_uv
from mlworkbench.environments.uv_process import run_bounded
from mlworkbench.errors import SolveError
from mlworkbench.remote.environments.running import run_program
from mlworkbench.remote.environments.tools import NoEnvironment, NotFetched, fetch
from mlworkbench.remote.shared import unpacking_limits as bounds
from mlworkbench.remote.shared.unpacking_limits import Bounds, most_for, temporary_folders
from tests.e2e.package_index import serving

MEGABYTE = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are set on Linux only")


class Zeros(io.RawIOBase):
    """So many, without the memory for them."""

    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int = -1) -> bytes:
        size = min(size, self._left)
        self._left -= size
        return bytes(size)


def bomb(path: Path, *sizes: int) -> Path:
    """A source package whose static metadata is a large file, or comes after large files."""
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
    monkeypatch.setattr(bounds, "LARGEST_FILE", 16 * MEGABYTE)
    monkeypatch.setattr("mlworkbench.environments.uv_process.MOST", 32 * MEGABYTE)
    monkeypatch.setattr("mlworkbench.environments.uv_process._LOOK", 0.01)
    (tmp_path / "in").write_text(f"bomb @ {path.as_uri()}\n")
    cache = tmp_path / "cache"
    environ = {**os.environ, "UV_CACHE_DIR": str(cache), "UV_NO_PROGRESS": "1"}
    words = [find_uv(os.environ), "pip", "compile", "in", "--no-index", "--quiet", "--no-config"]
    with pytest.raises(SolveError) as caught:
        run_bounded(words, environ, tmp_path)
    assert "a package unpacks to an implausible size" in (caught.value.hint or "")
    left = sum(one.stat().st_size for one in cache.rglob("*") if one.is_file())
    assert left < 16 * MEGABYTE, "what was unpacked is gone"


# Does not end by itself.
WRITE = """
import signal
with open('zeros', 'wb') as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
while True:
    signal.pause()
"""


def build(folder: Path, most: int) -> str | None:
    holder = os.open(folder, os.O_RDONLY)
    try:
        words = [sys.executable, "-c", WRITE]
        log, limit = str(folder / "log"), Bounds(most, str(folder))
        return run_program(words, dict(os.environ), str(folder), log, holder, limit, lambda pid: None)
    finally:
        os.close(holder)


@linux
def test_a_build_does_not_fill_the_disk(tmp_path, monkeypatch):
    with pytest.raises(
        NoEnvironment, match="the installation exceeded the limit of 0 GB .* a package unpacks to an implausible size"
    ):
        build(tmp_path, 32 * MEGABYTE)
    monkeypatch.setattr(bounds, "_RESERVE", 1 << 60)
    free = [10, 10, 100]
    monkeypatch.setattr(bounds, "_free", lambda folder: free.pop())
    with pytest.raises(NoEnvironment, match="became full .*; hint: free disk space"):
        build(tmp_path, 1 << 60)
    monkeypatch.undo()
    monkeypatch.setattr(bounds, "LARGEST_FILE", 16 * MEGABYTE)
    said = build(tmp_path, 1 << 60)
    assert said is not None and "File too large" in said


def test_sizes_in_a_lock_are_numbers_or_nothing():
    assert most_for([{"size": 10}, {"size": None}, {}, {"size": "9"}, {"size": -5}]) == bounds.MOST + 200


def test_a_download_is_not_larger_than_the_index_says(tmp_path):
    folder = tmp_path / "index" / "main"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "a-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("zeros", bytes(3 * MEGABYTE))
    with serving(tmp_path / "index") as index:
        url = f"{index.url}/main/a-1.0-py3-none-any.whl"
        with pytest.raises(NoEnvironment, match="is larger than 1048576 bytes"):
            fetch(url, str(tmp_path / "part"), most=MEGABYTE)
        assert fetch(url, str(tmp_path / "part"), most=4 * MEGABYTE)
    assert (tmp_path / "part").stat().st_size > 3 * MEGABYTE
    with pytest.raises(NotFetched, match="unknown url type"):
        fetch((tmp_path / "part").as_uri(), str(tmp_path / "other"))
    assert fetch((tmp_path / "part").as_uri(), str(tmp_path / "other"), local=True)


def test_a_program_that_ends_by_itself_has_its_answer(tmp_path):
    done = run_bounded([sys.executable, "-c", "print('x' * 200000)"], dict(os.environ), tmp_path)
    assert isinstance(done, subprocess.CompletedProcess) and (done.returncode, len(done.stdout)) == (0, 200001)


def test_only_temporary_folders_of_the_cache_are_removed(tmp_path):
    """A folder above, or of somebody else, may begin with the same letters."""
    cache = tmp_path / ".tmp-mine" / "cache"
    (cache / ".tmpAbc").mkdir(parents=True)
    (tmp_path / ".tmp-other").mkdir()
    with (
        (cache / ".tmpAbc" / "file").open("w"),
        (cache / "log").open("w"),
        (tmp_path / ".tmp-other" / "x").open("w"),
    ):
        assert temporary_folders(os.getpid(), str(cache)) == {str(cache / ".tmpAbc")}
