"""Parse TensorBoard event files. The functions are pure, and the input is untrusted.

A file is a sequence of TFRecords: length (8 bytes), its masked CRC-32C (4), the record, and the
record's CRC (4). A record is an Event in protobuf's wire format, with a time, a step, and summaries.
"""

from __future__ import annotations

import struct

from .protobuf_wire import (
    BYTES,
    FIXED64,
    VARINT,
    FieldBudget,
    InvalidEventFile,
    as_bytes,
    as_signed,
    iterate_fields,
)
from .summary_value import GRAPHS, SCALARS, Summary, parse_value

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple, Union

    Scalar = Tuple[str, Union[int, float], float, int]  # tag, value, time, step

HEAD_SIZE, TAIL_SIZE = 12, 4
MAX_RECORD = 16 * 1024 * 1024  # maximum bytes of a parsed record; longer records are images and graphs
_GRAPH_FIELDS = (4, 8, 9)  # graph_def, tagged_run_metadata, meta_graph_def


def iterate_records(data: bytes, start: int = 0) -> "Iterator[Tuple[int, bytes]]":
    """Yield the offset and content of each complete record from ``start``.

    An incomplete last record is skipped.
    """
    while True:
        length = record_length(data, start)
        if length is None or start + HEAD_SIZE + length + TAIL_SIZE > len(data):
            return
        yield start, data[start + HEAD_SIZE : start + HEAD_SIZE + length]
        start += HEAD_SIZE + length + TAIL_SIZE


def record_length(data: bytes, start: int) -> "Optional[int]":
    """Return the length of the record at ``start``, or None if its header is incomplete."""
    if start + HEAD_SIZE > len(data):
        return None
    length, checksum = struct.unpack_from("<QI", data, start)
    if _mask_crc(_crc32c(data[start : start + 8])) != checksum:
        raise InvalidEventFile("a record has a damaged length")
    return int(length)


def parse_event(record: bytes) -> "Tuple[float, int, Iterator[Summary]]":
    """Return the time and step of an event, and an iterator over its summaries.

    The call and the iterator may raise InvalidEventFile and TooManyFields.
    """
    view, budget = memoryview(record), FieldBudget()
    when, step = 0.0, 0
    for number, wire, value in iterate_fields(view, budget):
        if number == 1 and wire == FIXED64:
            when = struct.unpack("<d", as_bytes(value))[0]
        elif number == 2 and wire == VARINT:
            step = as_signed(value)
    if not 0 <= when < 1e11:  # also true for NaN
        when = 0.0
    return when, step, _iterate_summaries(view, budget)


def parse_scalars(record: bytes) -> "Iterator[Scalar]":
    """Yield the scalars of an event."""
    when, step, summaries = parse_event(record)
    for summary in summaries:
        if summary.kind == SCALARS:
            yield summary.tag, summary.value, when, step


def _iterate_summaries(view: memoryview, budget: FieldBudget) -> "Iterator[Summary]":
    for number, wire, data in iterate_fields(view, budget):
        if number in _GRAPH_FIELDS and wire == BYTES:
            yield Summary(GRAPHS, "")
        if number != 5 or wire != BYTES:
            continue
        for inner, kind, value in iterate_fields(as_bytes(data), budget):
            summary = parse_value(as_bytes(value), budget) if inner == 1 and kind == BYTES else None
            if summary is not None:
                yield summary


# -- CRC-32C -----------------------------------------------------------------------------------------------


def _create_crc_table() -> "List[int]":
    table = []
    for index in range(256):
        for _ in range(8):
            index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
        table.append(index)
    return table


_CRC = _create_crc_table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _mask_crc(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
