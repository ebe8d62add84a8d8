"""Pictures among a run's outputs, as part of the page itself. What they are is told by their bytes, not by a name."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from ..material import Item, files_of, open_output

LARGEST = 2_000_000  # bytes of one
ALL = 24_000_000  # of a whole page
OF_A_RUN = 12
_NAMED = re.compile(r"\.(png|jpe?g|gif|webp|svg)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Picture:
    """Ready for an ``<img>``."""

    name: str
    address: str


class Pictures:
    """Takes pictures of run after run until the page is full."""

    def __init__(self) -> None:
        self._room = ALL

    def of(self, item: Item) -> tuple[list[Picture], int]:
        """Those of one run, and how many more there are."""
        found: list[Picture] = []
        left = 0
        for name, output in files_of(item):
            if not _NAMED.search(name):
                continue
            if len(found) >= OF_A_RUN or output.size > min(LARGEST, self._room):
                left += 1
                continue
            try:
                with open_output(item, output) as file:
                    data = file.read(LARGEST + 1)
            except OSError:
                left += 1  # it is still on the target
                continue
            kind = kind_of(data)
            if kind is not None and len(data) <= min(LARGEST, self._room):
                self._room -= len(data)
                found.append(Picture(name, f"data:{kind};base64,{base64.b64encode(data).decode()}"))
        return found, left


def kind_of(data: bytes) -> str | None:
    """None for what is no picture. An SVG in an ``<img>`` runs no script and fetches nothing."""
    for head, kind in ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif")):
        if data.startswith(head):
            return f"image/{kind}"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    begin = data[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if begin.startswith(b"<?xml") and b"<svg" in begin:
        return "image/svg+xml"
    return None
