"""Gallery of sample projects.

Each sample is a folder, combined with the shared folders listed in its ``sample.json``. Files that
several samples share (local target, GPU settings, digit images) are in ``shared``. Files of the
sample itself take precedence.
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
_SKIPPED_FOLDERS = {"__pycache__"}


@dataclass(frozen=True)
class Sample:
    """Sample project. The readme's first run (``script``, ``arguments``) takes under a minute."""

    name: str
    layers: tuple[Path, ...]  # lowest priority first; the last layer is the sample's own folder
    script: str
    arguments: str
    order: int

    @property
    def folder(self) -> Path:
        return self.layers[-1]

    def files(self) -> dict[str, Path]:
        """Return the files of a project created from the sample, as project path → source file."""
        files: dict[str, Path] = {}
        for layer in self.layers:
            files.update(_walk_layer(layer))
        return files

    def description(self) -> str:
        """Return the first paragraph of the readme after the title."""
        text = (self.folder / "readme.md").read_text(encoding="utf-8")
        paragraphs = [
            paragraph for paragraph in text.split("\n\n") if paragraph.strip() and not paragraph.startswith("#")
        ]
        return " ".join(paragraphs[0].split()) if paragraphs else ""

    def write(self, folder: Path, project_name: str) -> None:
        """Write all files to a folder, replacing placeholders for a project named ``project_name``."""
        placeholders = {
            "__PROJECT_NAME__": project_name,
            "__DEFAULT_IMAGE__": DEFAULT_IMAGE,
            "__SCRIPT__": self.script,
            "__ARGUMENTS__": f" {self.arguments}" if self.arguments else "",
        }
        for path, source in self.files().items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_substitute(source.read_bytes(), placeholders))


def load_samples() -> list[Sample]:
    """Return all samples in the order suggested for beginners."""
    samples = [_read_sample(entry) for entry in GALLERY.iterdir() if (entry / _MANIFEST).is_file()]
    return sorted(samples, key=lambda sample: (sample.order, sample.name))


def get_sample(name: str) -> Sample:
    by_name = {sample.name: sample for sample in load_samples()}
    if name not in by_name:
        raise UnknownName("template", name, by_name)
    return by_name[name]


def _read_sample(folder: Path) -> Sample:
    manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    shared = tuple(GALLERY / _SHARED / name for name in manifest["shared"])
    return Sample(folder.name, (*shared, folder), manifest["script"], manifest["arguments"], manifest["order"])


def _walk_layer(layer: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(layer):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        for file in sorted(files):
            path = Path(folder, file)
            if path != layer / _MANIFEST:
                yield path.relative_to(layer).as_posix(), path


def _substitute(data: bytes, placeholders: dict[str, str]) -> bytes:
    """Replace placeholders and use LF line endings in text files; return binary data unchanged."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    for placeholder, value in placeholders.items():
        text = text.replace(placeholder, value)
    return text.replace("\r\n", "\n").encode()
