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
