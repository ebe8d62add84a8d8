"""A run folder with metrics files, and the complete content of its series."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from mlworkbench.history.series.series_store import Series
from mlworkbench.remote.shared.layout import RunFolder


class MetricFolder:
    """A run folder with metrics files."""

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
        """Return the series after it has read all metrics files."""
        series = Series(self.folder)
        series.catch_up()
        return series


def content(series: Series) -> dict[str, Any]:
    """Return the results of all queries of a series, as text, because NaN is not equal to itself."""
    result: dict[str, Any] = {}
    for child in (None, "kid"):
        for name in series.names(child):
            points = series.points(name.name, child)
            result[f"{child} {name}"] = repr(
                (
                    list(points.steps), list(points.times), list(points.values), series.values(name.name, child),
                    series.rows(name.name, child), series.downsample(name.name, 7, "step", child),
                    series.downsample(name.name, 7, "time", child),
                )
            )  # fmt: skip
    return result


def expected_content(metrics: MetricFolder) -> dict[str, Any]:
    """Return the content computed from the metrics files alone."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = MetricFolder(Path(folder))
        for name in os.listdir(metrics.folder.metrics):
            fresh.append(Path(metrics.folder.metrics, name).read_bytes(), name)
        with fresh.read() as series:
            return content(series)
