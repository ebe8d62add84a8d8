"""Runs as results: whole for programs, tidied for people."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite
from typing import Any

from ..errors import HistoryError, UnknownName
from ..model import Run
from ..paths import RunFolder
from ..remote.tree import READ, Folders
from ..runfiles.manifest import read_outputs
from . import render
from .mask import Mask
from .records import for_people, gpu_word, outcome, record
from .screen import Screen

LOGS = ("driver_log", "log")  # the original's name for it, and ours
_CHUNK = 1 << 20
_SHOWN = 20
_METRICS = 8  # as many columns of a list at most
_GAP = 3
_ATTACHED = 1000  # outputs named in a record at most
# What goes first when a terminal is narrow; run_id and status never do.
_DISPENSABLE = ("tags", "name", "target", "arguments", "start_time_utc", "gpu", "script_name", "duration", "age")


def show_run(run: Run, output: str, query: str | None, folder: RunFolder | None = None) -> None:
    facts = record(run)
    if folder is not None:
        facts["attachments"] = _attachments(folder)
    tidy = output == "table" and query is None
    render.emit({**for_people(facts), **_odd(run)} if tidy else facts, output=output, query=query)


def _attachments(folder: RunFolder) -> str:
    """What ``info --artifact`` can show, in one text as in the original: the log and the outputs."""
    try:
        outputs = [f"outputs/{one.path}" for one in islice(read_outputs(folder.manifest), _ATTACHED)]
    except (OSError, HistoryError):
        outputs = []  # it has not ended, or its list is damaged
    return ",".join(["driver_log", *outputs])


def show_runs(runs: Sequence[Run], output: str, query: str | None, columns: Sequence[str]) -> None:
    """A list; its table has the columns that fit, with the metrics that most of the runs have."""
    if output != "table" or query is not None:
        render.emit([record(run) for run in runs], output=output, query=query)
        return
    if not runs:
        render.message("no runs")
        return
    rows = [_row(run) for run in runs]
    metrics = _common(runs)
    shown = _fit([*columns[:2], *metrics[:_METRICS], *columns[2:]], rows, render.width())
    render.emit(rows, output=output, columns=shown)
    hidden = [name for name in metrics if name not in shown]
    if hidden:
        render.message(f"and {len(hidden)} more metrics; see them with -o json, or mlw history info RUN")


def _row(run: Run) -> dict[str, Any]:
    facts = {**for_people(record(run)), **_odd(run)}
    facts["status"] = outcome(run)
    facts["gpu"] = gpu_word(run.gpu)
    if run.spec.entry.arguments:
        facts["arguments"] = shlex.join(run.spec.entry.arguments)
    if run.spec.tags:
        facts["tags"] = ", ".join(run.spec.tags)
    return facts


def _odd(run: Run) -> dict[str, str]:
    """NaN and infinities, which are nothing to a query and yet worth seeing."""
    return {name: str(value) for name, value in run.metrics.items() if isinstance(value, float) and not isfinite(value)}


def _common(runs: Sequence[Run]) -> list[str]:
    """Names of plain metrics, the most frequent first; one that is named like a key of ours is not a column."""
    keys = set(record(replace(runs[0], metrics={})))
    counts = Counter(
        name
        for run in runs
        for name, value in run.metrics.items()
        if isinstance(value, (int, float, str)) and name not in keys
    )
    return [name for name, _ in counts.most_common()]


def _fit(columns: list[str], rows: Sequence[dict[str, Any]], width: int | None) -> list[str]:
    """The columns that have something to show and fit into the width."""
    shown = [name for name in columns if name in ("run_id", "status") or any(row.get(name) is not None for row in rows)]
    need = {name: max(len(name), *(len(_text(row.get(name))) for row in rows)) + _GAP for name in shown}
    metrics = [name for name in shown if name not in _DISPENSABLE and name not in ("run_id", "status")]
    for name in (*_DISPENSABLE, *reversed(metrics)):
        if width is None or sum(need[one] for one in shown) <= width:
            break
        if name in shown:
            shown.remove(name)
    return shown


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def show_artifact(run: RunFolder, artifact: str, secrets: Iterable[str]) -> None:
    """Write one output: safe on a terminal, byte for byte elsewhere; known secrets are masked."""
    with open(_open_output(run, artifact), "rb") as file:
        stages: list[Mask | Screen] = []
        values = [os.fsencode(value) for value in secrets]
        if values:
            stages.append(Mask(values))
        if render.terminal(sys.stdout):
            stages.append(Screen(encoding=getattr(sys.stdout, "encoding", None) or "utf-8"))
        while chunk := file.read(_CHUNK):
            for stage in stages:
                chunk = stage.feed(chunk)
            render.pour(chunk)
        rest = b""
        for stage in stages:
            rest = stage.feed(rest) + stage.end()
        render.pour(rest)


def _open_output(run: RunFolder, artifact: str) -> int:
    """The file behind ``outputs/x`` or ``x``. Names are opened one by one, so that no link leads elsewhere."""
    names = [name for name in artifact.replace(os.sep, "/").split("/") if name not in ("", ".")]
    if names[:1] == ["outputs"] and len(names) > 1:
        names = names[1:]
    if not names or ".." in names or "\0" in artifact:
        raise UnknownName("artifact", artifact, _artifacts(run))
    try:
        with Folders(run.outputs) as folders:
            flags = READ | getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to would hold us for ever
            handle = os.open(names[-1], flags, dir_fd=folders.open("/".join(names[:-1])))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG):
            raise UnknownName("artifact", artifact, _artifacts(run)) from None
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise HistoryError(f"{artifact} is a link, which is not followed") from None
        raise HistoryError(f"cannot read {artifact}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnknownName("artifact", artifact, _artifacts(run), "it is no plain file")
    return handle


def _artifacts(run: RunFolder) -> list[str]:
    """Some that there are, for whoever has mistyped one."""
    found = ["driver_log"]
    for folder, _, names in os.walk(run.outputs):
        place = os.path.relpath(folder, run.outputs)
        found += [os.path.normpath(os.path.join("outputs", place, name)) for name in sorted(names)]
        if len(found) > _SHOWN:
            return [*found[:_SHOWN], "…"]
    return found
