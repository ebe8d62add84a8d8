"""Parse the scalars of a TensorBoard event file. The functions are pure, and the input is untrusted.

A file is a sequence of TFRecords: length (8 bytes), its masked CRC-32C (4), the record, and the
record's CRC (4). A record is an Event in protobuf's wire format, of which only the fields for
scalars are parsed.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple, Union

    Field = Tuple[int, int, Union[int, memoryview]]
    Scalar = Tuple[str, Union[int, float], float, int]  # tag, value, time, step

HEAD_SIZE, TAIL_SIZE = 12, 4
MAX_RECORD = 16 * 1024 * 1024  # maximum bytes of a parsed record; longer records are images and graphs
MAX_FIELDS = 200000  # maximum fields parsed per record, in a fraction of a second; typical records have a few
MAX_TAG = 500  # maximum bytes; readers drop metrics with names longer than 1000 characters
SHORTENED_PREFIX = b"~"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# TensorProto: data type → (field with the values, format of a value in tensor_content)
_TYPES = {1: (5, "<f"), 2: (6, "<d"), 3: (7, "<i"), 9: (10, "<q"), 19: (13, "<e"), 14: (13, "bf16")}


class InvalidEventFile(Exception):
    """Data that is not an event file, or is damaged from the current position on."""


class TooManyFields(Exception):
    """A record with more than ``MAX_FIELDS`` fields. The scalars before the limit are valid."""


class _Budget:
    """The number of fields that may still be parsed in a record, across all nesting levels."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyFields()


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


def parse_event(record: bytes) -> "Tuple[float, Iterator[Scalar]]":
    """Return the time of an event and an iterator over its scalars.

    The call and the iterator may raise InvalidEventFile and TooManyFields. Nothing is copied,
    because a record can have a million values and a supervisor must use little memory.
    """
    view, budget = memoryview(record), _Budget(MAX_FIELDS)
    when, step = 0.0, 0
    for number, wire, value in _fields(view, budget):
        if number == 1 and wire == _FIXED64:
            when = struct.unpack("<d", _raw(value))[0]
        elif number == 2 and wire == _VARINT:
            step = _signed(value)
    if not 0 <= when < 1e11:  # also true for NaN
        when = 0.0
    return when, _iterate_scalars(view, budget, when, step)


def _iterate_scalars(view: memoryview, budget: _Budget, when: float, step: int) -> "Iterator[Scalar]":
    for number, wire, summary in _fields(view, budget):
        if number != 5 or wire != _BYTES:
            continue
        for inner, kind, value in _fields(_raw(summary), budget):
            scalar = _parse_scalar(_raw(value), budget) if inner == 1 and kind == _BYTES else None
            if scalar is not None:
                yield scalar[0], scalar[1], when, step


def _parse_scalar(data: memoryview, budget: _Budget) -> "Optional[Tuple[str, Union[int, float]]]":
    """Return the tag and value if the summary is one number.

    The number is a ``simple_value``, or a tensor without dimensions.
    """
    tag, number_value, tensor, plugin = None, None, None, ""
    for number, wire, value in _fields(data, budget):
        if number == 1 and wire == _BYTES:
            tag = _raw(value)
        elif number == 2 and wire == _FIXED32:
            number_value = _unpack_float(bytes(_raw(value)))
        elif number == 8 and wire == _BYTES:
            tensor = _raw(value)
        elif number == 9 and wire == _BYTES:
            plugin = _plugin_name(_raw(value), budget)
    if number_value is None and tensor is not None and plugin in ("", "scalars"):
        number_value = _tensor_value(tensor, budget)
    if tag is None or number_value is None:
        return None
    return shorten(bytes(tag), MAX_TAG), number_value


def shorten(name: bytes, limit: int) -> str:
    """Decode a name. Shorten a long name to its digest and its end, so that names stay distinct."""
    if len(name) > limit:
        import hashlib  # noqa: PLC0415 - loads OpenSSL, and few names are that long

        digest = hashlib.sha256(name).hexdigest()[:12].encode("ascii")
        name = SHORTENED_PREFIX + digest + b"/" + name[-(limit - len(SHORTENED_PREFIX) - len(digest) - 1) :]
    return name.decode("utf-8", "replace")


def _plugin_name(metadata: memoryview, budget: _Budget) -> str:
    for number, wire, value in _fields(metadata, budget):
        if number == 1 and wire == _BYTES:
            for inner, kind, name in _fields(_raw(value), budget):
                if inner == 1 and kind == _BYTES:
                    return bytes(_raw(name)[:MAX_TAG]).decode("utf-8", "replace")
    return ""


def _tensor_value(data: memoryview, budget: _Budget) -> "Optional[Union[int, float]]":
    kind, dimensions, content, values = 0, False, b"", {}
    for number, wire, value in _fields(data, budget):
        if number == 1 and wire == _VARINT:
            kind = _signed(value)
        elif number == 2 and wire == _BYTES:
            dimensions = any(dimension == 2 for dimension, _, _ in _fields(_raw(value), budget))
        elif number == 4 and wire == _BYTES:
            content = bytes(_raw(value)[:8])  # bytes of the first number
        elif number <= 13:
            values[number] = wire, value
    if dimensions or kind not in _TYPES:
        return None
    field, form = _TYPES[kind]
    if content:
        return _unpack(form, content)
    if field not in values:
        return 0 if kind in (3, 9) else 0.0  # protobuf omits zeros
    wire, value = values[field]
    if form in ("<e", "bf16") or wire == _VARINT or kind in (3, 9):
        integer = _signed(value) if wire == _VARINT else _first_varint(_raw(value))
        return _unpack(form, struct.pack("<H", integer & 0xFFFF)) if kind in (14, 19) else integer
    return _unpack(form, bytes(_raw(value)[:8]))


def _unpack(form: str, data: bytes) -> "Optional[Union[int, float]]":
    if form == "bf16":
        form, data = "<f", b"\0\0" + data[:2]
    if len(data) < struct.calcsize(form):
        return None
    if form == "<f":
        return _unpack_float(data[:4])
    value: Union[int, float] = struct.unpack_from(form, data)[0]
    return value


def _unpack_float(data: bytes) -> float:
    """Return the shortest decimal number for a 32-bit float: 0.1, not 0.10000000149011612."""
    value: float = struct.unpack("<f", data)[0]
    for digits in (6, 7, 8):
        short = float("%.*g" % (digits, value))
        # A rounded value may exceed the largest 32-bit float.
        if abs(short) < 3.4028234e38 and struct.pack("<f", short) == data:
            return short
    return value


# -- protobuf's wire format ---------------------------------------------------------------------------------


def _fields(data: memoryview, budget: _Budget) -> "Iterator[Field]":
    """Yield the number, wire type, and value of each field."""
    offset, end = 0, len(data)
    while offset < end:
        budget.spend()
        key, offset = _varint(data, offset)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, offset = _varint(data, offset)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, offset = _varint(data, offset)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise InvalidEventFile("a field of an unknown kind")
        if offset + size > end:
            raise InvalidEventFile("a field beyond the end of its record")
        yield number, wire, data[offset : offset + size]
        offset += size


def _varint(data: memoryview, offset: int) -> "Tuple[int, int]":
    value = shift = 0
    while shift < 70:
        if offset >= len(data):
            raise InvalidEventFile("a number beyond the end of its record")
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, offset
        shift += 7
    raise InvalidEventFile("a number of too many bytes")


def _first_varint(data: memoryview) -> int:
    return _signed(_varint(data, 0)[0]) if data else 0


def _signed(value: "Union[int, memoryview]") -> int:
    integer = value if isinstance(value, int) else 0
    return integer - (1 << 64) if integer >= 1 << 63 else integer


def _raw(value: "Union[int, memoryview]") -> memoryview:
    return value if isinstance(value, memoryview) else memoryview(b"")


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
