"""Where the outputs of a run are, and what of them could not be collected."""

from __future__ import annotations

import os

from ..model import Run
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import ONLY_THERE
from .plain import plain
from .records import left_out


def outputs_place(run: Run, folder: RunFolder) -> str:
    """The folder here, or the target and the command that fetches them."""
    if run.spec.compute.address is None or os.path.exists(folder.home):
        return f"in {plain(folder.outputs)}"
    return f"on {plain(run.spec.compute.name)}; download: mlw history download -r {run.id}"


def left_out_pairs(run: Run, folder: RunFolder) -> list[tuple[str, str]]:
    """What was left out, line by line, and the folder that has what could not be collected."""
    lines = left_out(run)
    if any(line.rpartition(": ")[2] in ONLY_THERE for line in run.left_out):
        lines.append(f"files that were not collected are in {plain(work_place(run, folder))}")
    return [("Skipped" if at == 0 else "", line) for at, line in enumerate(lines)]


def work_place(run: Run, folder: RunFolder) -> str:
    """The working copy of the run, where it ran."""
    if run.spec.compute.address is None:
        return folder.work
    return f"{work_there(run)} on {run.spec.compute.name}"


def work_there(run: Run) -> str:
    """The working copy of the run on its target."""
    return f"~/.mlw/runs/{run.spec.folder}/work"
