"""A run's folder with metric files, and all that its series tell."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from mlworkbench.history.series.series import Series
from mlworkbench.remote.shared.layout import RunFolder


class Place:
    """A run's folder with metric files."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(str(path))
        os.makedirs(self.folder.metrics, exist_ok=True)

    @property
    def database(self) -> Path:
        return Path(self.folder.path, "series.db")

    def append(self, data: bytes, file: str = "1-0") -> None:
        with open(os.path.join(self.folder.metrics, file), "ab") as out:
            out.write(data)

    def log(self, *points: dict[str, Any], file: str = "1-0") -> None:
        self.append(b"".join(json.dumps(point).encode() + b"\n" for point in points), file)

    def read(self) -> Series:
        """Caught up."""
        found = Series(self.folder)
        found.catch_up()
        return found


def content(found: Series) -> dict[str, Any]:
    """All that a series can tell; as text, for NaN is not equal to itself."""
    told: dict[str, Any] = {}
    for child in (None, "kid"):
        for name in found.names(child):
            points = found.points(name.name, child)
            told[f"{child} {name}"] = repr(
                (
                    list(points.steps), list(points.times), list(points.values), found.values(name.name, child),
                    found.rows(name.name, child), found.drawn(name.name, 7, "step", child),
                    found.drawn(name.name, 7, "time", child),
                )
            )  # fmt: skip
    return told


def truth(place: Place) -> dict[str, Any]:
    """From the metric files alone."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Place(Path(folder))
        for name in os.listdir(place.folder.metrics):
            fresh.append(Path(place.folder.metrics, name).read_bytes(), name)
        with fresh.read() as found:
            return content(found)
