"""Locations of a run's outputs, and data that could not be collected."""

from __future__ import annotations

import os

from ..model import Run
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import ONLY_ON_TARGET
from ..sanitize import plain
from .run_records import left_out


def describe_outputs(run: Run, folder: RunFolder) -> str:
    """Return the local folder of the outputs, or the target and the command to download them."""
    if run.spec.compute.address is None or os.path.exists(folder.fetch_marker):
        return f"in {plain(folder.outputs)}"
    return f"on {plain(run.spec.compute.name)}; download: mlw history download -r {run.id}"


def left_out_pairs(run: Run, folder: RunFolder) -> list[tuple[str, str]]:
    """Return lines about skipped data, and the folder that contains uncollected files."""
    lines = left_out(run)
    if any(line.rpartition(": ")[2] in ONLY_ON_TARGET for line in run.left_out):
        lines.append(f"files that were not collected are in {plain(describe_work(run, folder))}")
    return [("Skipped" if at == 0 else "", line) for at, line in enumerate(lines)]


def describe_work(run: Run, folder: RunFolder) -> str:
    """Return the location of the run's working copy."""
    if run.spec.compute.address is None:
        return folder.work
    return f"{remote_work(run)} on {run.spec.compute.name}"


def remote_work(run: Run) -> str:
    """Return the path of the run's working copy on its target."""
    return f"~/.mlw/runs/{run.spec.folder}/work"
