"""Line access and search in logs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlworkbench.runfiles import log_lines
from mlworkbench.runfiles.log_lines import MAX_LINE_BYTES, LogLines, SearchResult


@pytest.fixture(autouse=True)
def small_strides(monkeypatch):
    monkeypatch.setattr(log_lines, "STRIDE", 16)


def indexed(path) -> LogLines:
    index = LogLines(str(path))
    index.count()
    return index


def split_lines(data: bytes) -> list[bytes]:
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
        assert index.count() == len(split_lines(data))
        assert [line.data for line in index.lines(first, most)] == split_lines(data)[first : first + most]
        assert [line.number for line in index.lines(first, most)] == [*range(len(split_lines(data)))][
            first : first + most
        ]


@given(st.lists(st.sampled_from([b"alpha", b"Beta", b"", b"gamma beta"]), max_size=12), st.integers(0, 12))
def test_search(tmp_path_factory, lines, first):
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(b"\n".join(lines))
    expected = [at for at, line in enumerate(lines) if b"beta" in line.lower() and at >= first]
    assert indexed(path).find("BETA", first) == SearchResult(expected, None)
    assert indexed(path).find("beta", first, case=True).lines == [at for at in expected if b"beta" in lines[at]]


def test_a_long_line_is_truncated_and_the_next_one_is_not(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (MAX_LINE_BYTES + 5) + b"\nshort\n")
    long, short = indexed(path).lines(0, 5)
    assert (len(long.data), long.cut, short.data, short.cut) == (MAX_LINE_BYTES, True, b"short", False)


def test_a_replaced_file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\n" * 100)
    index = LogLines(str(path))
    assert index.count() == 100
    path.write_bytes(b"b\n")
    assert (index.count(), [line.data for line in index.lines(0, 9)]) == (1, [b"b"])


# -- progress bars -------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Record the number of bytes of each read."""
    sizes: list[int] = []
    read = log_lines._File.read

    def counted(self, offset, size):
        data = read(self, offset, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(log_lines._File, "read", counted)
    return sizes


def bar(at: int, of: int) -> bytes:
    return b"\repoch 1: %3d%%|%s| %d/%d" % (100 * at // of, b"#" * 40, at, of)


@pytest.mark.parametrize("stride", [16, 1000, 256 * 1024])
@pytest.mark.parametrize("updates", [3, 3_000, 100_000])
@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\nnext\n"])
def test_a_progress_bar_shows_its_last_state(tmp_path, monkeypatch, stride, updates, end):
    monkeypatch.setattr(log_lines, "STRIDE", max(stride, updates // 50))
    path = tmp_path / "log"
    whole = b"".join(bar(at, updates) for at in range(1, updates + 1)) + end
    index = LogLines(str(path))
    for part in (len(whole) // 3, len(whole)):  # the index is read while the log grows
        path.write_bytes(b"before\n" + whole[:part])
        index.count()
        before, line, *after = index.lines(0, 9)
    assert (before.data, [other.data for other in after]) == (b"before", [b"next"] if end.endswith(b"next\n") else [])
    assert (b"\r" + line.data).rstrip(b"\r").rpartition(b"\r")[2] == bar(updates, updates)[1:]
    assert not line.cut and line.number == 1
    assert [other.data for other in index.lines(1, 1)] == [line.data]


@settings(max_examples=300)
@given(st.lists(st.text(alphabet="ab\r\n", max_size=30), max_size=8))
def test_a_long_line_ends_as_a_terminal_would_show_it(tmp_path_factory, pieces):
    path, data = tmp_path_factory.mktemp("log") / "log", ""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_lines, "MAX_LINE_BYTES", 8)
        index = LogLines(str(path))
        for piece in pieces:
            data += piece
            path.write_bytes(data.encode())
            index.count()
            shown_lines = [
                (item.data.decode().rstrip("\r").rpartition("\r")[2], item.cut) for item in index.lines(0, 999)
            ]
            for line, (shown, cut) in zip(split_lines(data.encode()), shown_lines, strict=True):
                visible = line.decode().rstrip("\r").rpartition("\r")[2]
                assert (
                    (shown == visible)
                    if not cut
                    else (visible.startswith(shown) and len(visible) <= len(line) and len(line) > 8)
                )


def test_a_line_of_100_mb_is_read_once(tmp_path, reads, monkeypatch):
    monkeypatch.setattr(log_lines, "STRIDE", 256 * 1024)
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.write(b"before\n")
        for at in range(100):
            file.write(b"x" * 999_990 + b"\r%9d" % at)
    index = indexed(path)
    assert index.lines(0, 9)[1].data == b"%9d" % 99
    assert sum(reads) < 102_000_000
    for more, expected in ((b"\r50%", b"50%"), (b"\n", b"50%"), (b"next\n", b"50%")):
        with open(path, "ab") as file:
            file.write(more)
        reads.clear()
        assert index.lines(max(0, index.count() - 50), 50)[1].data == expected
        assert sum(reads) < 200_000, "what is behind it costs no more than itself"


# -- huge logs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """Create a sparse log of 8 TB, which uses almost no disk space. A script can do this with one call."""
    monkeypatch.setattr(log_lines, "STRIDE", 256 * 1024)
    monkeypatch.setattr(log_lines, "MAX_INDEXED_BYTES", 4 * 1024 * 1024)
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.write(b"begin\nneedle\n")
        file.truncate(8 << 40)
        file.seek(0, 2)
        file.write(b"\nlast needle\n")
    yield path
    path.unlink()


def test_beginning_and_end_of_an_endless_log_are_read(endless, reads):
    index = LogLines(str(endless))
    assert index.count() == 3
    assert (index.size, index.full, index.missing > 7 << 40) == (4 * 1024 * 1024, True, True)
    assert [line.data[:9] for line in index.lines(0, 9)] == [b"begin", b"needle", bytes(9)]
    assert [line.data for line in index.tail()] == [b"last needle"]
    assert index.find("needle") == SearchResult([1], None)
    assert sum(reads) < 3 * log_lines.MAX_INDEXED_BYTES


def test_indexing_stops_at_its_deadline_and_continues(endless, reads):
    index, sizes = LogLines(str(endless)), []
    while not index.full:
        index.count(seconds=0)
        sizes.append(index.size)
    assert sizes == [(at + 1) * 1024 * 1024 for at in range(4)]
    assert max(reads) <= 1024 * 1024


def test_a_search_stops_at_its_deadline_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "STRIDE", 1024)
    monkeypatch.setattr(log_lines, "_CHUNK", 4096)
    lines = [b"needle %d" % at if at % 100 == 7 else b"hay" * (at % 50) for at in range(3000)]
    lines[1500] = b"x" * 20_000 + b"needle"
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(lines))
    index, lines_found, start, calls = indexed(path), [], 0, 0
    while start is not None:
        piece = index.find("NEEDLE", lines_found[-1] + 1 if lines_found else 0, start=start, seconds=0)
        lines_found += piece.lines
        start = piece.rest
        calls += 1
    assert lines_found == [at for at, line in enumerate(lines) if b"needle" in line]
    assert calls > 10


def test_a_log_that_is_not_indexed_yet_shows_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "_CHUNK", 1024)
    monkeypatch.setattr(log_lines, "TAIL_BYTES", 100)
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % at for at in range(1000)))
    index = LogLines(str(path))
    assert 0 < index.count(seconds=0) < 1000
    tail = [line.data for line in index.tail()]
    assert tail == [b"line %d" % at for at in range(1000 - len(tail), 1000)]
    assert index.count() == 1000 and index.tail() == []


def test_many_long_lines_are_not_returned_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "_MAX_RESULT_BYTES", 1000)
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([b"x" * 600] * 9))
    assert len(indexed(path).lines(0, 9)) == 2
    assert [line.number for line in indexed(path).lines(2, 9)] == [2, 3]
