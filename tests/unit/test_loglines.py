"""A log as lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlworkbench.runfiles import loglines
from mlworkbench.runfiles.loglines import LONGEST, LogLines


@pytest.fixture(autouse=True)
def small_strides(monkeypatch):
    monkeypatch.setattr(loglines, "STRIDE", 16)


def wanted(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if data.endswith(b"\n") or not data else lines


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=40) | st.just(b"\n\n"), max_size=6), st.integers(0, 30), st.integers(1, 30))
def test_any_lines_of_a_file_that_grows(tmp_path_factory, pieces, first, most):
    path = tmp_path_factory.mktemp("log") / "log"
    index, data = LogLines(str(path)), b""
    assert index.count() == 0 and index.lines(0, 5) == []
    for piece in pieces:
        data += piece
        path.write_bytes(data)
        assert index.count() == len(wanted(data))
        assert [line.data for line in index.lines(first, most)] == wanted(data)[first : first + most]
        assert [line.number for line in index.lines(first, most)] == [*range(len(wanted(data)))][first : first + most]


@given(st.lists(st.sampled_from([b"alpha", b"Beta", b"", b"gamma beta"]), max_size=12), st.integers(0, 12))
def test_search(tmp_path_factory, lines, first):
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(b"\n".join(lines))
    found = [at for at, line in enumerate(lines) if b"beta" in line.lower() and at >= first]
    assert LogLines(str(path)).find("BETA", first) == found
    assert LogLines(str(path)).find("beta", first, case=True) == [at for at in found if b"beta" in lines[at]]


def test_a_long_line_is_cut_and_the_next_one_is_whole(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (LONGEST + 5) + b"\nshort\n")
    one, two = LogLines(str(path)).lines(0, 5)
    assert (len(one.data), one.cut, two.data, two.cut) == (LONGEST, True, b"short", False)


def test_a_file_in_its_place(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\n" * 100)
    index = LogLines(str(path))
    assert index.count() == 100
    path.write_bytes(b"b\n")
    assert (index.count(), [line.data for line in index.lines(0, 9)]) == (1, [b"b"])


# -- progress bars -------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Bytes, of each time that somebody read."""
    found: list[int] = []
    read = loglines._File.read

    def counted(self, offset, size):
        data = read(self, offset, size)
        found.append(len(data))
        return data

    monkeypatch.setattr(loglines._File, "read", counted)
    return found


def bar(at: int, of: int) -> bytes:
    return b"\repoch 1: %3d%%|%s| %d/%d" % (100 * at // of, b"#" * 40, at, of)


@pytest.mark.parametrize("stride", [16, 1000, 256 * 1024])
@pytest.mark.parametrize("updates", [3, 3_000, 100_000])
@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\nnext\n"])
def test_of_a_progress_bar_the_last_state_is_there(tmp_path, monkeypatch, stride, updates, end):
    monkeypatch.setattr(loglines, "STRIDE", max(stride, updates // 50))
    path = tmp_path / "log"
    whole = b"".join(bar(at, updates) for at in range(1, updates + 1)) + end
    index = LogLines(str(path))
    for part in (len(whole) // 3, len(whole)):  # it is looked at while it grows
        path.write_bytes(b"before\n" + whole[:part])
        before, line, *after = index.lines(0, 9)
    assert (before.data, [one.data for one in after]) == (b"before", [b"next"] if end.endswith(b"next\n") else [])
    assert (b"\r" + line.data).rstrip(b"\r").rpartition(b"\r")[2] == bar(updates, updates)[1:]
    assert not line.cut and line.number == 1
    assert [one.data for one in index.lines(1, 1)] == [line.data]


@settings(max_examples=300)
@given(st.lists(st.text(alphabet="ab\r\n", max_size=30), max_size=8))
def test_of_a_line_that_is_too_long_the_end_is_as_a_terminal_leaves_it(tmp_path_factory, pieces):
    path, data = tmp_path_factory.mktemp("log") / "log", ""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loglines, "LONGEST", 8)
        index = LogLines(str(path))
        for piece in pieces:
            data += piece
            path.write_bytes(data.encode())
            found = [(one.data.decode().rstrip("\r").rpartition("\r")[2], one.cut) for one in index.lines(0, 999)]
            for line, (seen, cut) in zip(wanted(data.encode()), found, strict=True):
                left = line.decode().rstrip("\r").rpartition("\r")[2]
                assert (
                    (seen == left) if not cut else (left.startswith(seen) and len(left) <= len(line) and len(line) > 8)
                )


def test_a_line_of_100_mb_is_read_once(tmp_path, reads, monkeypatch):
    monkeypatch.setattr(loglines, "STRIDE", 256 * 1024)
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.write(b"before\n")
        for at in range(100):
            file.write(b"x" * 999_990 + b"\r%9d" % at)
    index = LogLines(str(path))
    assert index.lines(0, 9)[1].data == b"%9d" % 99
    assert sum(reads) < 102_000_000
    for more, seen in ((b"\r50%", b"50%"), (b"\n", b"50%"), (b"next\n", b"50%")):
        with open(path, "ab") as file:
            file.write(more)
        reads.clear()
        assert index.lines(max(0, index.count() - 50), 50)[1].data == seen
        assert sum(reads) < 200_000, "what is behind it costs no more than itself"
