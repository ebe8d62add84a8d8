"""Output images embedded in the page. Their type is detected from their content, not their name."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from ..run_data import Item, files_of, open_output

MAX_IMAGE = 2_000_000  # maximum size of an image in bytes
MAX_TOTAL = 24_000_000  # maximum total size of all images
MAX_PER_RUN = 12
_IMAGE_NAME = re.compile(r"\.(png|jpe?g|gif|webp|svg)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class EmbeddedImage:
    """An image as a data URL for an ``<img>`` element."""

    name: str
    url: str


class ImageEmbedder:
    """An embedder of images from several runs, up to the size limit of the page."""

    def __init__(self) -> None:
        self._space_left = MAX_TOTAL

    def embed(self, item: Item) -> tuple[list[EmbeddedImage], int]:
        """Return the images of a run, and the number of images that are not shown."""
        images: list[EmbeddedImage] = []
        omitted = 0
        for name, output in files_of(item):
            if not _IMAGE_NAME.search(name):
                continue
            if len(images) >= MAX_PER_RUN or output.size > min(MAX_IMAGE, self._space_left):
                omitted += 1
                continue
            try:
                with open_output(item, output) as file:
                    data = file.read(MAX_IMAGE + 1)
            except OSError:
                omitted += 1  # the file has not been fetched from the target
                continue
            kind = detect_image_type(data)
            if kind is not None and len(data) <= min(MAX_IMAGE, self._space_left):
                self._space_left -= len(data)
                images.append(EmbeddedImage(name, f"data:{kind};base64,{base64.b64encode(data).decode()}"))
        return images, omitted


def detect_image_type(data: bytes) -> str | None:
    """Return the MIME type, or None if it is not an image.

    An SVG in an ``<img>`` element runs no scripts and loads no resources.
    """
    for head, kind in ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif")):
        if data.startswith(head):
            return f"image/{kind}"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    begin = data[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if begin.startswith(b"<?xml") and b"<svg" in begin:
        return "image/svg+xml"
    return None
