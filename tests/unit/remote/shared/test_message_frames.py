"""Messages between client and agent: whatever the other end sends, this end reads a bounded amount, then fails."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlworkbench.remote.shared.message_frames import (
    MAX_BODY,
    MAX_JSON,
    ConnectionClosed,
    ConnectionTimeout,
    FrameError,
    Pipe,
    ranges,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@contextmanager
def received(data: bytes, open_end: bool = False) -> Iterator[Pipe]:
    """Yield a pipe that receives these bytes; the other end is then closed, unless ``open_end``."""
    source, sink = os.pipe()
    writer = threading.Thread(target=_write, args=(sink, data, not open_end))
    writer.start()
    try:
        yield Pipe(source, -1)
    finally:
        os.close(source)
        writer.join()
        if open_end:
            os.close(sink)


def _write(sink: int, data: bytes, close: bool) -> None:
    try:
        while data:
            data = data[os.write(sink, data) :]
    except BrokenPipeError:
        pass
    finally:
        if close:
            os.close(sink)


def encode(message: dict, body: bytes = b"") -> bytes:
    source, sink = os.pipe()
    results = []
    reader = threading.Thread(target=lambda: results.append(_read_all(source)))
    reader.start()
    Pipe(-1, sink).send(message, body)
    os.close(sink)
    reader.join()
    return results[0]


def _read_all(source: int) -> bytes:
    with open(source, "rb") as file:
        return file.read()


@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.binary(max_size=300)), max_size=5))
@settings(deadline=None, max_examples=60)
def test_round_trip(messages):
    with received(b"".join(encode(message, body) for message, body in messages)) as pipe:
        assert [pipe.receive(10) for _ in messages] == messages
        with pytest.raises(ConnectionClosed):
            pipe.receive(10)


def test_long_bodies():
    body = os.urandom(MAX_BODY)
    with received(encode({"a": 1}, body) + encode({"b": 2})) as pipe:
        assert pipe.receive(10) == ({"a": 1}, body)
        assert pipe.receive(10) == ({"b": 2}, b"")


@given(st.binary(max_size=200), st.integers(0, 400))
@settings(deadline=None, max_examples=200)
def test_garbage_and_truncation_raise_a_frame_error(garbage, cut):
    data = encode({"key": "value" * 20}, b"body" * 50) + garbage
    with received(data[:cut]) as pipe, pytest.raises(FrameError):
        _receive_all(pipe)


def _receive_all(pipe: Pipe) -> None:
    while True:
        pipe.receive(10)


@pytest.mark.parametrize("head", [(MAX_JSON + 1, 0), (2, MAX_BODY + 1), (2**32 - 1, 2**32 - 1), (0, 0)])
def test_invalid_lengths_are_rejected_before_reading(head):
    tracemalloc.start()
    data = head[0].to_bytes(4, "big") + head[1].to_bytes(4, "big") + b"x" * 100
    with received(data) as pipe, pytest.raises(FrameError, match="lengths"):
        pipe.receive(10)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("text", [b"[1]", b"{]", b"\xff\xfe", b"[" * 100_000, b'"a"'])
def test_non_objects_are_rejected(text):
    with received(len(text).to_bytes(4, "big") + bytes(4) + text) as pipe, pytest.raises(FrameError):
        pipe.receive(10)


def test_timeout():
    with received(encode({"a": 1})[:-1], open_end=True) as pipe, pytest.raises(ConnectionTimeout):
        pipe.receive(0.05)


def test_message_too_long():
    with pytest.raises(FrameError, match="too long"):
        Pipe(-1, -1).send({}, bytes(MAX_BODY + 1))


def test_send_to_a_closed_pipe():
    source, sink = os.pipe()
    os.close(source)
    with pytest.raises(ConnectionClosed):
        Pipe(-1, sink).send({"a": 1})
    os.close(sink)


@given(st.binary(max_size=500), st.integers(1, 64))
@settings(deadline=None, max_examples=60)
def test_marker_is_found_after_any_output(noise, cut):
    marker = b"\nMLW-AGENT 0123\n"
    noise = noise.replace(marker, b"")
    with received(noise + marker + encode({"a": 1})) as pipe:
        assert pipe.skip_to(marker, 1000, 10) == (noise, True)
        assert pipe.receive(10)[0] == {"a": 1}


def test_endless_output_is_rejected():
    with received(b"y\n" * 200_000) as pipe:
        noise, found = pipe.skip_to(b"mark", 1000, 10)
    assert (len(noise), found) == (1000, False)


@given(st.sets(st.integers(0, 50)))
def test_ranges_contain_the_same_numbers(numbers):
    result = ranges(sorted(numbers))
    assert [number for first, count in result for number in range(first, first + count)] == sorted(numbers)


def test_two_markers_received_together():
    with received(b"noise\nfirst\nmore\nsecond\n") as pipe:
        assert pipe.skip_to(b"\nfirst\n", 100, 10) == (b"noise", True)
        assert pipe.skip_to(b"\nsecond\n", 100, 10) == (b"more", True)
