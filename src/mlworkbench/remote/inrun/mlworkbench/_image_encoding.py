"""Encode images and figures as files, without importing an imaging library."""

import io
import os
import struct
import zlib

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\0", ".tif"),
    (b"MM\0*", ".tif"),
)
_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG color types by channels
_EXPECTED = "an image must be a file path, bytes, a PIL image, a figure, or an array of height x width (x 1, 3, or 4)"


def encode_image(image):
    """Return the encoded bytes and the file suffix of an image.

    The image can be a path, bytes, a PIL image, a figure, an array, a tensor, or nested lists.
    """
    if isinstance(image, (bytes, bytearray)):
        return bytes(image), _detect_suffix(bytes(image[:16]))
    if isinstance(image, str) or hasattr(image, "__fspath__"):
        with open(image if isinstance(image, str) else image.__fspath__(), "rb") as file:
            data = file.read()
        return data, os.path.splitext(str(image))[1].lower() or _detect_suffix(data[:16])
    if hasattr(image, "savefig") or hasattr(image, "to_html"):
        return encode_figure(image)
    if callable(getattr(image, "save", None)):  # a PIL image, which supports more modes than PNG
        buffer = io.BytesIO()
        mode = getattr(image, "mode", "RGB")
        is_png_mode = mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16")
        (image if is_png_mode else image.convert("RGB")).save(buffer, format="PNG")
        return buffer.getvalue(), ".png"
    return _png_of_array(image), ".png"


def encode_figure(source, suffix=".png"):
    """Return the encoded bytes and the file suffix of a figure.

    The figure can be from matplotlib (or pyplot itself), seaborn, plotly, or altair.
    """
    savefig = getattr(source, "savefig", None)
    if callable(savefig):
        suffix = suffix if suffix in (".png", ".svg", ".pdf", ".jpg") else ".png"
        buffer = io.BytesIO()
        savefig(buffer, format=suffix[1:])
        return buffer.getvalue(), suffix
    if callable(getattr(source, "to_html", None)):
        return source.to_html().encode("utf-8"), ".html"
    raise TypeError("%s is not a figure: it has neither savefig() nor to_html()" % type(source).__name__)


def _detect_suffix(head):
    for signature, suffix in _SIGNATURES:
        if head.startswith(signature):
            return suffix
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return ".webp"
    return ".svg" if head.lstrip()[:1] == b"<" else ".bin"


# -- arrays ------------------------------------------------------------------------------------------------


def _png_of_array(image):
    for method in ("detach", "cpu"):  # a tensor, maybe on a GPU
        if callable(getattr(image, method, None)):
            image = getattr(image, method)()
    if callable(getattr(image, "numpy", None)):
        image = image.numpy()
    if hasattr(image, "shape") and hasattr(image, "astype") and hasattr(image, "tobytes"):
        return _png_of_numpy(image)
    return _png_of_lists(image.tolist() if hasattr(image, "tolist") else image)


def _png_of_numpy(image):
    while len(image.shape) > 3 and image.shape[0] == 1:
        image = image[0]
    if len(image.shape) == 3 and image.shape[2] not in _COLOR_TYPES and image.shape[0] in _COLOR_TYPES:
        image = image.transpose(1, 2, 0)  # PyTorch puts the channels first
    if len(image.shape) not in (2, 3) or 0 in image.shape:
        raise ValueError("%s; got shape %s" % (_EXPECTED, "x".join(map(str, image.shape))))
    kind = getattr(image.dtype, "kind", "")
    if kind == "b":
        image = image.astype("uint8") * 255
    elif kind == "f":
        # NaN becomes black. If no value exceeds 1, the range is 0 to 1; otherwise, it is 0 to 255.
        image = image.copy()
        image[image != image] = 0
        image = (image * (255 if float(image.max()) <= 1 else 1)).clip(0, 255).round().astype("uint8")
    elif kind in "iu":
        image = image.clip(0, 255).astype("uint8")
    else:
        raise TypeError("%s; got dtype %s" % (_EXPECTED, image.dtype))
    channels = image.shape[2] if len(image.shape) == 3 else 1
    return _encode_png(image.tobytes(), image.shape[1], image.shape[0], channels)


def _png_of_lists(rows):
    try:
        flat = [_channels(pixel) for row in rows for pixel in row]
        widths, channels = {len(row) for row in rows}, {len(pixel) for pixel in flat}
    except TypeError:
        raise TypeError("%s, not %s" % (_EXPECTED, type(rows).__name__))
    if len(widths) != 1 or len(channels) != 1:
        raise ValueError("all rows of an image must have the same length, and all pixels the same number of channels")
    parts = [part if part == part else 0 for pixel in flat for part in pixel]
    in_unit = any(isinstance(part, (float, bool)) for part in parts) and max(parts) <= 1
    data = bytes(int(round(min(255, max(0, part * (255 if in_unit else 1))))) for part in parts)
    return _encode_png(data, widths.pop(), len(rows), channels.pop())


def _channels(pixel):
    return tuple(pixel) if isinstance(pixel, (list, tuple)) else (pixel,)


def _encode_png(data, width, height, channels):
    if channels not in _COLOR_TYPES or len(data) != width * height * channels:
        raise ValueError("%s; got %d channels" % (_EXPECTED, channels))
    line = width * channels
    rows = b"".join(b"\0" + data[start : start + line] for start in range(0, len(data), line))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = [_png_chunk(b"IHDR", header), _png_chunk(b"IDAT", zlib.compress(rows, 6)), _png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) & 0xFFFFFFFF)
