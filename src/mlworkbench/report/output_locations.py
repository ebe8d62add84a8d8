"""Locations of a run's outputs, and data that could not be collected."""

from __future__ import annotations

import json
import os
import re

from ..model import Run
from ..remote.shared.layout import RunFolder
from ..remote.shared.output_kinds import ONLY_ON_TARGET
from ..sanitize import plain
from . import units
from .run_records import left_out

_MAX_UNKEPT = 5
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w./+@=-]*", re.ASCII)  # needs no quotes in YAML


def describe_outputs(run: Run, folder: RunFolder) -> str:
    """Return the local folder of the outputs, or the target and the command to download them."""
    if run.spec.compute.address is None or os.path.exists(folder.fetch_marker):
        return f"in {plain(folder.outputs)}"
    return f"on {plain(run.spec.compute.name)}; download: mlw history download -r {run.id}"


def describe_checkpoints(run: Run, folder: RunFolder) -> str | None:
    """Return the size of the checkpoints and where they are, or None if there are none."""
    if not run.checkpoint_bytes:
        return None
    size = units.size(run.checkpoint_bytes)
    if run.spec.compute.address is None:
        return f"{size}, in {plain(folder.checkpoints)}"
    return f"{size}, on {plain(run.spec.compute.name)}; download: mlw history download -r {run.id} --checkpoints"


def left_out_pairs(run: Run, folder: RunFolder) -> list[tuple[str, str]]:
    """Return lines about skipped data, and the folder that contains uncollected files."""
    lines = left_out(run)
    if any(line.rpartition(": ")[2] in ONLY_ON_TARGET for line in run.left_out):
        lines.append(f"files that were not collected are in {plain(describe_work(run, folder))}")
    unkept = describe_unkept(run)
    pairs = [("Skipped" if at == 0 else "", line) for at, line in enumerate(lines)]
    return [*pairs, ("Not kept", unkept)] if unkept else pairs


def describe_unkept(run: Run) -> str | None:
    """Return a line about files outside of ``outputs/``, and the key that collects them; None if there are none."""
    names = [plain(name) for name in run.unkept[:_MAX_UNKEPT]]
    if not names:
        return None
    more = f", and {len(run.unkept) - len(names)} more" if len(run.unkept) > len(names) else ""
    # Names come from the script. Quotes prevent a name from adding other keys to the suggestion.
    items = ", ".join(name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names)
    them = "it" if len(run.unkept) == 1 else "them"
    file = f"aml_config/{plain(run.spec.runconfig)}.runconfig"
    return f"{', '.join(names)}{more}; to collect {them}, add to {file}: Keep: [{items}]"


def describe_work(run: Run, folder: RunFolder) -> str:
    """Return the location of the run's working copy."""
    if run.spec.compute.address is None:
        return folder.work
    return f"{remote_work(run)} on {run.spec.compute.name}"


def remote_work(run: Run) -> str:
    """Return the path of the run's working copy on its target."""
    return f"~/.mlw/runs/{run.spec.folder}/work"
