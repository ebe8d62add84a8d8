"""Parse the run files of W&B (``run-<id>.wandb``). The functions are pure, and the input is untrusted.

A file starts with 7 bytes of identification. Blocks of 32 KiB follow, as in a log of LevelDB: each contains chunks of
checksum (4 bytes), length (2), kind (1), and data, and a chunk is a whole record or a part of one. A record is a
``Record`` of ``wandb_internal.proto`` in protobuf's wire format. The field numbers are those of W&B 0.31.
"""

from __future__ import annotations

import struct
import zlib

from ..shared.untrusted_json import parse_json
from .protobuf_wire import BYTES, VARINT, FieldBudget, as_bytes, as_signed, iterate_fields

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

    Items = List[Tuple[str, Any]]

HEADER = b":W&B\xe1\xbe\x00"  # name, magic number 0xBEE1, version 0
MAX_RECORD = 16 * 1024 * 1024  # maximum bytes of a parsed record
_BLOCK = 32 * 1024
_CHUNK_HEADER = struct.Struct("<IHB")
UNKNOWN = object()
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAX_DEPTH = 20
_MAX_TEXT = 60000  # characters of the JSON of a value
# Kinds of records
HISTORY, SUMMARY, CONFIG, RUN, EXIT, VERSION = "history", "summary", "config", "run", "exit", "version"
_KINDS = {2: HISTORY, 3: SUMMARY, 5: CONFIG, 17: RUN, 18: EXIT, 21: VERSION}
_RUN_TEXTS = {1: "run_id", 3: "project", 6: "group", 7: "job_type", 8: "name", 9: "notes"}


class InvalidRecordLog(Exception):
    """Data that is not a W&B file, or is damaged from the current position on."""


def iterate_records(data: bytes, start: int) -> Iterator[Tuple[int, bytes]]:
    """Yield the end and content of each complete record. ``start`` is the offset of ``data`` in the file.

    An incomplete last record is skipped. Raise InvalidRecordLog for damaged data.
    """
    parts: List[bytes] = []
    position = 0
    while True:
        left_in_block = _BLOCK - (start + position) % _BLOCK
        if left_in_block < _CHUNK_HEADER.size:
            position += left_in_block
            continue
        if position + _CHUNK_HEADER.size > len(data):
            return
        checksum, length, kind = _CHUNK_HEADER.unpack_from(data, position)
        begin = position + _CHUNK_HEADER.size
        position = begin + length
        if _CHUNK_HEADER.size + length > left_in_block or not _FULL <= kind <= _LAST:
            raise InvalidRecordLog("a damaged chunk")
        if position > len(data):
            return
        if zlib.crc32(data[begin - 1 : position]) != checksum:
            raise InvalidRecordLog("a wrong checksum")
        if (kind in (_FULL, _FIRST)) == bool(parts):
            raise InvalidRecordLog("a part of a record is missing")
        parts.append(data[begin:position])
        if kind in (_FULL, _LAST):
            yield start + position, b"".join(parts)
            parts = []


def parse_record(record: bytes) -> Tuple[str, Dict[str, Any], Items]:
    """Return the kind of a record, its fields, and its values by name. The kind is "" for all that is not recorded.

    The function may raise InvalidEventFile and TooManyFields.
    """
    budget = FieldBudget()
    for number, wire, data in iterate_fields(memoryview(record), budget):
        kind = _KINDS.get(number) if wire == BYTES else None
        if kind is not None:
            content = as_bytes(data)
            if kind == RUN:
                return (kind,) + _parse_run(content, budget)
            if kind in (EXIT, VERSION):
                return kind, _parse_exit(content, budget) if kind == EXIT else _parse_version(content, budget), []
            return kind, {}, _parse_items(content, budget)
    return "", {}, []


def _parse_version(data: memoryview, budget: FieldBudget) -> Dict[str, Any]:
    """Return the version of W&B that wrote the file, and the oldest one that can read it."""
    names = {1: "producer", 2: "min_consumer"}
    for number, _, value in iterate_fields(data, budget):
        if number == 1:
            fields = iterate_fields(as_bytes(value), budget)
            return {names[inner]: _text(as_bytes(text)) for inner, _, text in fields if inner in names}
    return {}


def _parse_exit(data: memoryview, budget: FieldBudget) -> Dict[str, Any]:
    """Return the exit code, and the duration in seconds."""
    fields = {number: as_signed(value) for number, wire, value in iterate_fields(data, budget) if wire == VARINT}
    return {"exit_code": fields.get(1, 0), "runtime": fields.get(2, 0)}


def _parse_run(data: memoryview, budget: FieldBudget) -> Tuple[Dict[str, Any], Items]:
    """Return the fields of a run, and its configuration."""
    fields: Dict[str, Any] = {}
    tags: List[str] = []
    config: Items = []
    for number, wire, value in iterate_fields(data, budget):
        if wire != BYTES:
            continue
        content = as_bytes(value)
        if number in _RUN_TEXTS:
            fields[_RUN_TEXTS[number]] = _text(content)
        elif number == 10:
            tags.append(_text(content))
        elif number == 4:
            config += _parse_items(content, budget)
        elif number == 17:
            seconds = [as_signed(part) for inner, kind, part in iterate_fields(content, budget) if inner == 1]
            fields["started"] = float(seconds[0]) if seconds else 0.0
    if tags:
        fields["tags"] = ", ".join(tags)
    return fields, config


def _parse_items(data: memoryview, budget: FieldBudget) -> Items:
    """Return names and values. Nested names are joined with dots. A value in an unknown encoding is UNKNOWN."""
    items: Items = []
    for number, wire, item in iterate_fields(data, budget):
        if number != 1 or wire != BYTES:
            continue
        names: List[str] = []
        value: Any = UNKNOWN
        for inner, kind, content in iterate_fields(as_bytes(item), budget):
            if kind == BYTES and inner in (1, 2):
                names.append(_text(as_bytes(content)))
            elif kind == BYTES and inner == 16:
                try:
                    value = parse_json(_text(as_bytes(content)))
                except ValueError:
                    value = UNKNOWN
        items += _flatten(".".join(filter(None, names)), value, 0)
    return items


def _flatten(name: str, value: Any, depth: int) -> Items:
    if not isinstance(value, dict) or not value or depth >= _MAX_DEPTH:
        return [(name, value)]
    if "_type" in value:
        return [(name + "._type", value["_type"])]  # an image, a table, a histogram
    items: Items = []
    for key, inner in value.items():
        items += _flatten("%s.%s" % (name, key), inner, depth + 1)
    return items


def _text(data: memoryview) -> str:
    return bytes(data[: 4 * _MAX_TEXT]).decode("utf-8", "replace")
