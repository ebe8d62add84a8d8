"""Read protobuf's wire format. The functions are pure, and the input is untrusted.

``iterate_fields`` yields the fields of one message. Nothing is copied, because a record can have a
million values and a supervisor must use little memory.
"""

from __future__ import annotations

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Iterator, Tuple, Union

    Field = Tuple[int, int, Union[int, memoryview]]

MAX_FIELDS = 200000  # maximum fields parsed per record, in a fraction of a second; typical records have a few
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class InvalidEventFile(Exception):
    """Data that is not an event file, or is damaged from the current position on."""


class TooManyFields(Exception):
    """A record with more than ``MAX_FIELDS`` fields. The values before the limit are valid."""


class FieldBudget:
    """The number of fields that may still be parsed in a record, across all nesting levels."""

    def __init__(self, left: int = MAX_FIELDS) -> None:
        self._left = left

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyFields()


def iterate_fields(data: memoryview, budget: FieldBudget) -> "Iterator[Field]":
    """Yield the number, wire type, and value of each field."""
    offset, end = 0, len(data)
    while offset < end:
        budget.spend()
        key, offset = read_varint(data, offset)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, offset = read_varint(data, offset)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, offset = read_varint(data, offset)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise InvalidEventFile("a field of an unknown kind")
        if offset + size > end:
            raise InvalidEventFile("a field beyond the end of its record")
        yield number, wire, data[offset : offset + size]
        offset += size


def read_varint(data: memoryview, offset: int) -> "Tuple[int, int]":
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


def first_varint(data: memoryview) -> int:
    return as_signed(read_varint(data, 0)[0]) if data else 0


def as_signed(value: "Union[int, memoryview]") -> int:
    integer = value if isinstance(value, int) else 0
    return integer - (1 << 64) if integer >= 1 << 63 else integer


def as_bytes(value: "Union[int, memoryview]") -> memoryview:
    return value if isinstance(value, memoryview) else memoryview(b"")
