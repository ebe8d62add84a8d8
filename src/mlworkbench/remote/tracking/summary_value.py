"""Parse one value of a TensorBoard summary: a scalar, images, text, hyperparameters, or another kind.

The functions are pure, and the input is untrusted. Histograms and precision-recall curves are returned unparsed,
because only some of their steps are stored. For other kinds, only the kind and the tag are returned.
"""

from __future__ import annotations

import struct

from .distribution import parse_histogram, parse_histogram_tensor, parse_pr_curve
from .protobuf_wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    FieldBudget,
    InvalidEventFile,
    TooManyFields,
    as_bytes,
    as_signed,
    first_varint,
    iterate_fields,
)

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

    Parameters = List[Tuple[str, Union[None, bool, int, float, str]]]
    Item = TypeVar("Item")

SCALARS, IMAGES, TEXT, HPARAMS, HISTOGRAMS, AUDIO, GRAPHS, TENSORS = KINDS = (
    "scalars images text hparams histograms audio graphs tensors".split()
)
PR_CURVES = "pr_curves"
MAX_TAG = 500  # maximum bytes; readers drop metrics with names longer than 1000 characters
MAX_PARAMETERS = 1000  # maximum per session
SHORTENED_PREFIX = b"~"
_MAX_STRINGS = 64  # maximum strings of a tensor; images have a few, and text is one string or a small table
_MAX_TEXT = 6000  # maximum characters of a hyperparameter, as for all parameters
_MAX_KIND = 40
_MAX_IMAGE_FIELDS = 100  # an image has four fields
_TEXT_SUFFIX = "/text_summary"  # PyTorch and tensorboardX append this to the tag of a text
_GRAPH_PLUGINS = ("graphs", "graph_keras_model", "graph_run_metadata", "graph_run_metadata_graph")

# TensorProto: data type → (field with the values, format of a value in tensor_content)
_TYPES = {1: (5, "<f"), 2: (6, "<d"), 3: (7, "<i"), 9: (10, "<q"), 19: (13, "<e"), 14: (13, "bf16")}


class Summary:
    """One value of a record.

    ``value`` is a number for scalars, a list of encoded images, a string for text, and a list of pairs for
    hyperparameters. Images and text that cannot be parsed are empty. For histograms and precision-recall curves,
    it is the function that parses them, and its argument. It is None for all other kinds.
    """

    __slots__ = ("kind", "tag", "value")

    def __init__(self, kind: str, tag: str, value: "Any" = None) -> None:
        self.kind = kind
        self.tag = tag
        self.value = value


def parse_value(data: memoryview, budget: FieldBudget) -> "Optional[Summary]":
    """Return the summary in a ``Summary.Value`` message, or None if it has no tag or no data."""
    parts: Dict[int, memoryview] = {}
    for number, wire, value in iterate_fields(data, budget):
        if wire == (FIXED32 if number == 2 else BYTES) and number <= 9:
            parts[number] = as_bytes(value)
    if 1 not in parts:
        return None
    tag = shorten(bytes(parts[1]), MAX_TAG)
    plugin, content = _parse_metadata(parts.get(9, memoryview(b"")), budget)
    if 2 in parts:
        return Summary(SCALARS, tag, _unpack_float(bytes(parts[2])))
    if plugin == HPARAMS:
        return Summary(HPARAMS, tag, _parse_part(_parse_hparams, content, 20 * MAX_PARAMETERS))
    if 4 in parts:
        return Summary(IMAGES, tag, _parse_part(_encoded_images, parts[4], _MAX_IMAGE_FIELDS))
    if 5 in parts:
        return Summary(HISTOGRAMS, tag, (parse_histogram, parts[5]))
    if 6 in parts:
        return Summary(AUDIO, tag)
    return _parse_tensor(tag, parts[8], plugin, budget) if 8 in parts else None


def _parse_part(parse: "Callable[[memoryview, FieldBudget], List[Item]]", data: memoryview, limit: int) -> "List[Item]":
    """Parse a part that is no scalar. If it is damaged or too long, the rest of the record is still read."""
    try:
        return parse(data, FieldBudget(limit))
    except (InvalidEventFile, TooManyFields):
        return []


def shorten(name: bytes, limit: int) -> str:
    """Decode a name. Shorten a long name to its digest and its end, so that names stay distinct."""
    if len(name) > limit:
        import hashlib  # noqa: PLC0415 - loads OpenSSL, and few names are that long

        digest = hashlib.sha256(name).hexdigest()[:12].encode("ascii")
        name = SHORTENED_PREFIX + digest + b"/" + name[-(limit - len(SHORTENED_PREFIX) - len(digest) - 1) :]
    return name.decode("utf-8", "replace")


def _parse_metadata(metadata: memoryview, budget: FieldBudget) -> "Tuple[str, memoryview]":
    """Return the plugin's name and its content."""
    plugin, content = "", memoryview(b"")
    for number, wire, value in iterate_fields(metadata, budget):
        if number == 1 and wire == BYTES:
            for inner, kind, item in iterate_fields(as_bytes(value), budget):
                if inner == 1 and kind == BYTES:
                    plugin = bytes(as_bytes(item)[:MAX_TAG]).decode("utf-8", "replace")
                elif inner == 2 and kind == BYTES:
                    content = as_bytes(item)
    return plugin, content


def _parse_tensor(tag: str, tensor: memoryview, plugin: str, budget: FieldBudget) -> "Optional[Summary]":
    if plugin in ("", SCALARS):
        number = _tensor_value(tensor, budget)
        if number is not None:
            return Summary(SCALARS, tag, number)
        return None if plugin else Summary(TENSORS, tag)
    if plugin == IMAGES:
        images = _parse_part(_tensor_strings, tensor, 10 * _MAX_STRINGS)
        return Summary(IMAGES, tag, images[2:])  # the first two strings are width and height
    if plugin == TEXT:
        tag = tag[: -len(_TEXT_SUFFIX)] if tag.endswith(_TEXT_SUFFIX) and tag != _TEXT_SUFFIX else tag
        strings = [
            bytes(item).decode("utf-8", "replace") for item in _parse_part(_tensor_strings, tensor, 10 * _MAX_STRINGS)
        ]
        return Summary(TEXT, tag, "\n".join(strings))
    if plugin in (HISTOGRAMS, PR_CURVES):
        return Summary(plugin, tag, (parse_histogram_tensor if plugin == HISTOGRAMS else parse_pr_curve, tensor))
    kind = GRAPHS if plugin in _GRAPH_PLUGINS else plugin if plugin.replace("_", "").isalnum() else "other"
    return Summary(kind[:_MAX_KIND], tag)


def _encoded_images(image: memoryview, budget: FieldBudget) -> "List[memoryview]":
    return [as_bytes(value) for number, wire, value in iterate_fields(image, budget) if (number, wire) == (4, BYTES)]


def _parse_hparams(content: memoryview, budget: FieldBudget) -> "Parameters":
    """Return the hyperparameters of a ``SessionStartInfo``; nothing for other messages of the plugin."""
    parameters: Parameters = []
    for number, wire, session in iterate_fields(content, budget):
        if (number, wire) != (3, BYTES):
            continue
        for inner, kind, entry in iterate_fields(as_bytes(session), budget):
            if (inner, kind) == (1, BYTES) and len(parameters) < MAX_PARAMETERS:
                name, value = b"", memoryview(b"")
                for key, form, item in iterate_fields(as_bytes(entry), budget):
                    if form == BYTES and key == 1:
                        name = bytes(as_bytes(item))
                    elif form == BYTES and key == 2:
                        value = as_bytes(item)
                if name:
                    parameters.append((shorten(name, MAX_TAG), _parse_parameter(value, budget)))
    return parameters


def _parse_parameter(data: memoryview, budget: FieldBudget) -> "Union[None, bool, int, float, str]":
    """Return the value of a ``google.protobuf.Value``. All its numbers are floats; whole ones become integers."""
    result: Union[None, bool, int, float, str] = None
    for number, wire, value in iterate_fields(data, budget):
        if (number, wire) == (2, FIXED64):
            result = struct.unpack("<d", as_bytes(value))[0]
            if isinstance(result, float) and result.is_integer() and abs(result) < 2**53:
                result = int(result)
        elif (number, wire) == (3, BYTES):
            result = bytes(as_bytes(value)[: 4 * _MAX_TEXT]).decode("utf-8", "replace")[:_MAX_TEXT]
        elif (number, wire) == (4, VARINT):
            result = as_signed(value) != 0
    return result


# -- tensors -----------------------------------------------------------------------------------------------


def _tensor_strings(data: memoryview, budget: FieldBudget) -> "List[memoryview]":
    strings: List[memoryview] = []
    for number, wire, value in iterate_fields(data, budget):
        if (number, wire) == (8, BYTES) and len(strings) < _MAX_STRINGS:
            strings.append(as_bytes(value))
    return strings


def _tensor_value(data: memoryview, budget: FieldBudget) -> "Optional[Union[int, float]]":
    kind, dimensions, content, values = 0, False, b"", {}
    for number, wire, value in iterate_fields(data, budget):
        if number == 1 and wire == VARINT:
            kind = as_signed(value)
        elif number == 2 and wire == BYTES:
            dimensions = any(dimension == 2 for dimension, _, _ in iterate_fields(as_bytes(value), budget))
        elif number == 4 and wire == BYTES:
            content = bytes(as_bytes(value)[:8])  # bytes of the first number
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
    if form in ("<e", "bf16") or wire == VARINT or kind in (3, 9):
        integer = as_signed(value) if wire == VARINT else first_varint(as_bytes(value))
        return _unpack(form, struct.pack("<H", integer & 0xFFFF)) if kind in (14, 19) else integer
    return _unpack(form, bytes(as_bytes(value)[:8]))


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
