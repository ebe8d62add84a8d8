"""ZIP archive of all outputs of a run, streamed while it is created."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from mlworkbench.paths import RunFolder
from mlworkbench.runfiles.output_manifest import Output
from mlworkbench.ui.queries import output_zip

MANY = 70_000  # more files than a ZIP without ZIP64 supports


def read_archive(run_folder: RunFolder) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(b"".join(output_zip._stream(run_folder, "demo-1"))))


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(str(tmp_path / "run"))
    os.makedirs(folder.outputs)
    return folder


def test_archive_contains_files_and_lists_skipped_ones(run_folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not yours")
    outputs = Path(run_folder.outputs)
    (outputs / "a").mkdir()
    (outputs / "a" / "x.txt").write_text("hello")
    (outputs / "big").write_bytes(os.urandom(1_000_000))
    (outputs / "link").symlink_to(tmp_path / "secret")
    (outputs / "b\\..\\c:d\n").write_text("odd")
    archive = read_archive(run_folder)
    assert archive.testzip() is None
    assert archive.read("demo-1/a/x.txt") == b"hello"
    assert archive.read("demo-1/big") == (outputs / "big").read_bytes()
    odd = next(name for name in archive.namelist() if "_d_" in name)
    assert archive.read(odd) == b"odd" and "\\" not in odd and ":" not in odd and "\n" not in odd
    assert "link" in archive.read("demo-1-left-out.txt").decode()
    assert not any(b"not yours" in archive.read(name) for name in archive.namelist())


def test_member_names_are_safe_and_unique() -> None:
    assert output_zip.safe_member_name("plots/a b ü.png") == "plots/a b ü.png"
    for path in ("../../etc/passwd", "/etc/passwd", "a/../../b", "c:\\x", "x\0y", "\ud800", "", "..", "a//b"):
        name = output_zip.safe_member_name(path)
        name.encode()
        assert not name.startswith("/") and not {"..", "", "."} & set(name.split("/"))
        assert not set(name) & set('\\:\0"')
    assert output_zip.safe_member_name("a:b") != output_zip.safe_member_name("a?b")


def test_archive_exceeds_classic_zip_limits(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(run_folder.outputs, "one").write_text("1")
    each = lambda: (Output(f"f/{number}", 1, None, "file") for number in range(MANY))  # noqa: E731
    monkeypatch.setattr(output_zip, "outputs_of", lambda _folder: (each, True))
    file = Path(run_folder.outputs, "one")
    monkeypatch.setattr(output_zip, "_open_member", lambda _folder, _output, _skipped: os.open(file, os.O_RDONLY))
    largest = 0
    data = io.BytesIO()
    for piece in output_zip._stream(run_folder, "demo-1"):
        data.write(piece)
        largest = max(largest, len(piece))
    archive = zipfile.ZipFile(data)
    assert len(archive.namelist()) == MANY and archive.read(f"demo-1/f/{MANY - 1}") == b"1"
