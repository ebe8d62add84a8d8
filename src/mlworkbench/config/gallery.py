"""The gallery of sample projects: each is a folder, laid over the folders that its ``sample.json`` names.

What several samples have in common – the target of this machine, the settings for GPUs, pictures of digits – stands
once, in ``shared``; what a sample says itself counts more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UnknownName
from .keys import DEFAULT_IMAGE

GALLERY = Path(__file__).parent.parent / "samples"
_SHARED = "shared"
_MANIFEST = "sample.json"
_LEFT = {"__pycache__"}


@dataclass(frozen=True)
class Sample:
    """``script``: what the readme has people run first, with ``arguments`` that show something within a minute."""

    name: str
    layers: tuple[Path, ...]  # lowest first; the last one is its own
    script: str
    arguments: str
    order: int

    @property
    def own(self) -> Path:
        return self.layers[-1]

    def files(self) -> dict[str, Path]:
        """What a project made from it holds: path in the project → file here."""
        found: dict[str, Path] = {}
        for layer in self.layers:
            found.update(_files_of(layer))
        return found

    def description(self) -> str:
        """First paragraph of its readme, below the title."""
        text = (self.own / "readme.md").read_text(encoding="utf-8")
        paragraphs = [part for part in text.split("\n\n") if part.strip() and not part.startswith("#")]
        return " ".join(paragraphs[0].split()) if paragraphs else ""

    def write(self, folder: Path, project_name: str) -> None:
        """All its files, filled in for a project of this name."""
        words = {
            "__PROJECT_NAME__": project_name,
            "__DEFAULT_IMAGE__": DEFAULT_IMAGE,
            "__SCRIPT__": self.script,
            "__ARGUMENTS__": f" {self.arguments}" if self.arguments else "",
        }
        for path, source in self.files().items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_filled(source.read_bytes(), words))


def samples() -> list[Sample]:
    """All of them, in the order in which a newcomer wants to meet them."""
    found = [_read(entry) for entry in GALLERY.iterdir() if (entry / _MANIFEST).is_file()]
    return sorted(found, key=lambda one: (one.order, one.name))


def sample(name: str) -> Sample:
    known = {one.name: one for one in samples()}
    if name not in known:
        raise UnknownName("template", name, known)
    return known[name]


def _read(folder: Path) -> Sample:
    said = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    shared = tuple(GALLERY / _SHARED / name for name in said["shared"])
    return Sample(folder.name, (*shared, folder), said["script"], said["arguments"], said["order"])


def _files_of(layer: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, files in os.walk(layer):
        folders[:] = sorted(set(folders) - _LEFT)
        for file in sorted(files):
            path = Path(place, file)
            if path != layer / _MANIFEST:
                yield path.relative_to(layer).as_posix(), path


def _filled(data: bytes, words: dict[str, str]) -> bytes:
    """Texts with the words put in, and lines that end as on Linux; anything else as it is."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    for word, value in words.items():
        text = text.replace(word, value)
    return text.replace("\r\n", "\n").encode()
