"""The bytes of a TensorBoard event file → its scalars. Pure; every byte comes from a script and is hostile input.

A file is a sequence of TFRecords: length (8 bytes), its masked CRC-32C (4), the record, the record's CRC (4). A record
is an Event in protobuf's wire format, of which the few fields that scalars need are read here.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # as in typing, whose import a supervisor would hold and wait for
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple, Union

    Field = Tuple[int, int, Union[int, memoryview]]
    Scalar = Tuple[str, Union[int, float], float, int]  # tag, value, time, step

HEAD, TAIL = 12, 4
LONGEST = 16 * 1024 * 1024  # bytes of a record that is looked into; longer ones are images and graphs
MOST_FIELDS = 200000  # fields of a record that are parsed: a fraction of a second; a real record has a few
LONGEST_TAG = 500  # bytes; readers drop a metric whose name has more than 1000 characters
CUT = b"~"  # begins a name that was shortened
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# TensorProto: data type → (field with the values, how one value is packed in tensor_content)
_TYPES = {1: (5, "<f"), 2: (6, "<d"), 3: (7, "<i"), 9: (10, "<q"), 19: (13, "<e"), 14: (13, "bf16")}


class Broken(Exception):
    """These bytes are no event file, or its rest is not."""


class TooManyFields(Exception):
    """A record has more fields than are parsed. The scalars before that are valid."""


class _Budget:
    """The number of fields that may still be parsed in one record, at all levels of nesting together."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyFields()


def records(data: bytes, start: int = 0) -> "Iterator[Tuple[int, bytes]]":
    """Start and content of each whole record from ``start`` on; the rest waits for its end."""
    while True:
        length = record_length(data, start)
        if length is None or start + HEAD + length + TAIL > len(data):
            return
        yield start, data[start + HEAD : start + HEAD + length]
        start += HEAD + length + TAIL


def record_length(data: bytes, start: int) -> "Optional[int]":
    """Of the record that begins there; None if its head is not whole."""
    if start + HEAD > len(data):
        return None
    length, told = struct.unpack_from("<QI", data, start)
    if _masked(_crc32c(data[start : start + 8])) != told:
        raise Broken("a record has a damaged length")
    return int(length)


def event(record: bytes) -> "Tuple[float, Iterator[Scalar]]":
    """When it happened, and its scalars, parsed one by one while they are taken; both raise Broken and TooManyFields.

    Nothing is copied: a record may have a million values, and a supervisor has to stay small.
    """
    view, budget = memoryview(record), _Budget(MOST_FIELDS)
    when, step = 0.0, 0
    for number, wire, value in _fields(view, budget):
        if number == 1 and wire == _FIXED64:
            when = struct.unpack("<d", _raw(value))[0]
        elif number == 2 and wire == _VARINT:
            step = _signed(value)
    if not 0 <= when < 1e11:  # also where it is not a number
        when = 0.0
    return when, _scalars(view, budget, when, step)


def _scalars(view: memoryview, budget: _Budget, when: float, step: int) -> "Iterator[Scalar]":
    for number, wire, summary in _fields(view, budget):
        if number != 5 or wire != _BYTES:
            continue
        for inner, kind, value in _fields(_raw(summary), budget):
            scalar = _scalar(_raw(value), budget) if inner == 1 and kind == _BYTES else None
            if scalar is not None:
                yield scalar[0], scalar[1], when, step


def _scalar(data: memoryview, budget: _Budget) -> "Optional[Tuple[str, Union[int, float]]]":
    """Tag and value of a summary's value, if it is one number: ``simple_value``, or a tensor without dimensions."""
    tag, found, tensor, plugin = None, None, None, ""
    for number, wire, value in _fields(data, budget):
        if number == 1 and wire == _BYTES:
            tag = _raw(value)
        elif number == 2 and wire == _FIXED32:
            found = _single(bytes(_raw(value)))
        elif number == 8 and wire == _BYTES:
            tensor = _raw(value)
        elif number == 9 and wire == _BYTES:
            plugin = _plugin(_raw(value), budget)
    if found is None and tensor is not None and plugin in ("", "scalars"):
        found = _of_tensor(tensor, budget)
    if tag is None or found is None:
        return None
    return shortened(bytes(tag), LONGEST_TAG), found


def shortened(name: bytes, longest: int) -> str:
    """The name as text; one that is too long keeps its end, after a digest of the whole: two of them stay different."""
    if len(name) > longest:
        import hashlib  # noqa: PLC0415 - loads OpenSSL, and hardly any name is so long

        digest = hashlib.sha256(name).hexdigest()[:12].encode("ascii")
        name = CUT + digest + b"/" + name[-(longest - len(CUT) - len(digest) - 1) :]
    return name.decode("utf-8", "replace")


def _plugin(metadata: memoryview, budget: _Budget) -> str:
    for number, wire, value in _fields(metadata, budget):
        if number == 1 and wire == _BYTES:
            for inner, kind, name in _fields(_raw(value), budget):
                if inner == 1 and kind == _BYTES:
                    return bytes(_raw(name)[:LONGEST_TAG]).decode("utf-8", "replace")
    return ""


def _of_tensor(data: memoryview, budget: _Budget) -> "Optional[Union[int, float]]":
    kind, dimensions, content, values = 0, False, b"", {}
    for number, wire, value in _fields(data, budget):
        if number == 1 and wire == _VARINT:
            kind = _signed(value)
        elif number == 2 and wire == _BYTES:
            dimensions = any(one == 2 for one, _, _ in _fields(_raw(value), budget))
        elif number == 4 and wire == _BYTES:
            content = bytes(_raw(value)[:8])  # of the first number
        elif number <= 13:
            values[number] = wire, value
    if dimensions or kind not in _TYPES:
        return None
    field, form = _TYPES[kind]
    if content:
        return _unpack(form, content)
    if field not in values:
        return 0 if kind in (3, 9) else 0.0  # protobuf leaves out what is zero
    wire, value = values[field]
    if form in ("<e", "bf16") or wire == _VARINT or kind in (3, 9):
        whole = _signed(value) if wire == _VARINT else _first_varint(_raw(value))
        return _unpack(form, struct.pack("<H", whole & 0xFFFF)) if kind in (14, 19) else whole
    return _unpack(form, bytes(_raw(value)[:8]))


def _unpack(form: str, data: bytes) -> "Optional[Union[int, float]]":
    if form == "bf16":
        form, data = "<f", b"\0\0" + data[:2]
    if len(data) < struct.calcsize(form):
        return None
    if form == "<f":
        return _single(data[:4])
    value: Union[int, float] = struct.unpack_from(form, data)[0]
    return value


def _single(data: bytes) -> float:
    """A float of 32 bits as the shortest number that it stands for: 0.1, not 0.10000000149011612."""
    value: float = struct.unpack("<f", data)[0]
    for digits in (6, 7, 8):
        short = float("%.*g" % (digits, value))
        # A rounded one may be beyond the largest that has 32 bits.
        if abs(short) < 3.4028234e38 and struct.pack("<f", short) == data:
            return short
    return value


# -- protobuf's wire format ---------------------------------------------------------------------------------


def _fields(data: memoryview, budget: _Budget) -> "Iterator[Field]":
    """Number, wire type and value of each field."""
    at, end = 0, len(data)
    while at < end:
        budget.spend()
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise Broken("a field of an unknown kind")
        if at + size > end:
            raise Broken("a field beyond the end of its record")
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> "Tuple[int, int]":
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise Broken("a number beyond the end of its record")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Broken("a number of too many bytes")


def _first_varint(data: memoryview) -> int:
    return _signed(_varint(data, 0)[0]) if data else 0


def _signed(value: "Union[int, memoryview]") -> int:
    whole = value if isinstance(value, int) else 0
    return whole - (1 << 64) if whole >= 1 << 63 else whole


def _raw(value: "Union[int, memoryview]") -> memoryview:
    return value if isinstance(value, memoryview) else memoryview(b"")


# -- CRC-32C, of a few bytes at a time ----------------------------------------------------------------------


def _table() -> "List[int]":
    table = []
    for index in range(256):
        for _ in range(8):
            index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
        table.append(index)
    return table


_CRC = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
