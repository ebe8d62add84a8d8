"""All outputs of a run as a zip that is made while it is sent."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from mlworkbench.paths import RunFolder
from mlworkbench.runfiles.manifest import Output
from mlworkbench.ui.answers import zipped

MANY = 70_000  # more than a zip of the old kind can hold


def whole(place: RunFolder) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(b"".join(zipped._stream(place, "demo-1"))))


@pytest.fixture
def place(tmp_path: Path) -> RunFolder:
    found = RunFolder(str(tmp_path / "run"))
    os.makedirs(found.outputs)
    return found


def test_holds_files_and_says_what_it_left_out(place: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not yours")
    outputs = Path(place.outputs)
    (outputs / "a").mkdir()
    (outputs / "a" / "x.txt").write_text("hello")
    (outputs / "big").write_bytes(os.urandom(1_000_000))
    (outputs / "link").symlink_to(tmp_path / "secret")
    (outputs / "b\\..\\c:d\n").write_text("odd")
    found = whole(place)
    assert found.testzip() is None
    assert found.read("demo-1/a/x.txt") == b"hello"
    assert found.read("demo-1/big") == (outputs / "big").read_bytes()
    odd = next(name for name in found.namelist() if "_d_" in name)
    assert found.read(odd) == b"odd" and "\\" not in odd and ":" not in odd and "\n" not in odd
    assert "link" in found.read("demo-1-left-out.txt").decode()
    assert not any(b"not yours" in found.read(name) for name in found.namelist())


def test_names_lead_nowhere_else_and_stay_different() -> None:
    assert zipped.safe("plots/a b ü.png") == "plots/a b ü.png"
    for path in ("../../etc/passwd", "/etc/passwd", "a/../../b", "c:\\x", "x\0y", "\ud800", "", "..", "a//b"):
        made = zipped.safe(path)
        made.encode()
        assert not made.startswith("/") and not {"..", "", "."} & set(made.split("/"))
        assert not set(made) & set('\\:\0"')
    assert zipped.safe("a:b") != zipped.safe("a?b")


def test_more_than_the_old_kind_can_hold(place: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(place.outputs, "one").write_text("1")
    each = lambda: (Output(f"f/{number}", 1, None, "file") for number in range(MANY))  # noqa: E731
    monkeypatch.setattr(zipped, "outputs_of", lambda _place: (each, True))
    one = Path(place.outputs, "one")
    monkeypatch.setattr(zipped, "_opened", lambda _place, _one, _skipped: os.open(one, os.O_RDONLY))
    largest = 0
    data = io.BytesIO()
    for piece in zipped._stream(place, "demo-1"):
        data.write(piece)
        largest = max(largest, len(piece))
    found = zipfile.ZipFile(data)
    assert len(found.namelist()) == MANY and found.read(f"demo-1/f/{MANY - 1}") == b"1"
