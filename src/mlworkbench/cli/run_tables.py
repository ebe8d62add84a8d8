"""Runs as results: whole for programs, tidied for people."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from math import isfinite
from typing import Any

from ..errors import HistoryError, UsageError
from ..history.children import search_children
from ..history.parameters import of_run
from ..history.query import Query
from ..history.store import History
from ..model import Run
from ..paths import RunFolder
from ..report import units
from ..report.records import children_ids, for_people, gpu_word, outcome, record
from ..report.telling import common_metrics, varying_parameters
from ..report.values import finite, is_long, shown
from ..runfiles.manifest import read_outputs
from ..runfiles.mask import Mask
from ..runfiles.outputfile import as_typed, open_output
from . import render
from .columns import PARAMS, chosen, dropped_line, fit, title
from .formats import heading
from .screen import Screen

LOGS = ("driver_log", "log")  # the original's name for it, and ours
_CHUNK = 1 << 20
_METRICS, _PARAMETERS = 8, 6  # as many columns of a list at most
_ATTACHED = 1000  # outputs named in a record at most
_LEADING = 4  # columns of a list before the parameters and metrics


def show_run(run: Run, output: str, query: str | None, history: History | None = None) -> None:
    """The record of a run; with the history at hand also what only its folder knows."""
    facts = record(run)
    tidy = output == "table" and query is None
    if history is not None:
        facts["attachments"] = _attachments(history.paths.root.run(run.spec.folder))
        if facts["children"] is None:
            facts["children"] = [one.id for one in search_children(history, run.spec, Query(hidden=True))]
        if not tidy:
            _lengthen(facts, history, run)
    if not tidy:
        render.emit(facts, output=output, query=query)
        return
    shown = {**for_people(facts), **_odd(run)}
    own = record(replace(run, metrics={}))
    ordered = sorted(shown, key=lambda key: key not in own and key in run.metrics)  # metrics last
    render.emit(shown, output=output, columns={key: heading(key) if key not in run.metrics else key for key in ordered})


def _lengthen(facts: dict[str, Any], history: History, run: Run) -> None:
    """Long lists and texts, of which the index has only the size, are put into the record whole."""
    names = [name for name, value in run.metrics.items() if is_long(value)]
    if not names:
        return
    from ..history.series.measured import Measured  # noqa: PLC0415 - a list needs no series

    with Measured(history, run) as measured:
        for name in names:
            newest = measured.values(name, newest=1)
            if newest:
                whole = finite(newest[-1].value)
                if facts.get(name) == facts["metrics"][name]:
                    facts[name] = whole
                facts["metrics"][name] = whole


def show_part(history: History, prefix: str | None, folder: str | None, artifact: str) -> None:
    """One file of a run in place of its record."""
    from ..runs.lookup import refuse_outside  # noqa: PLC0415 - a list of runs needs none of it
    from ..runs.submitting import known_secrets  # noqa: PLC0415
    from .console import Console  # noqa: PLC0415
    from .opening import open_run  # noqa: PLC0415
    from .view import stream  # noqa: PLC0415

    follower = open_run(history, prefix, folder)
    run = follower.refresh()
    if artifact in LOGS:
        refuse_outside(run, "its output was not captured", f"show what it logged with 'mlw show {run.id}'")
        stream(follower, secrets=known_secrets(run, Console()).values(), live=False)
    else:
        show_artifact(history.paths.root.run(run.id), artifact, known_secrets(run, Console()).values())


def _attachments(folder: RunFolder) -> str:
    """What ``info --artifact`` can show, in one text as in the original: the log and the outputs."""
    try:
        listed = (one for one in read_outputs(folder.manifest) if one.is_collected)
        outputs = [f"outputs/{one.path}" for one in islice(listed, _ATTACHED)]
    except (OSError, HistoryError):
        outputs = []  # it has not ended, or its list is damaged
    return ",".join(["driver_log", *outputs])


def show_runs(
    runs: Sequence[Run], output: str, query: str | None, columns: Sequence[str], *, only: str | None = None
) -> None:
    """A list; its table has the columns that fit, with the parameters that differ and the most common metrics.

    ``only``: the columns that the user chose.
    """
    if output != "table" or query is not None:
        if only is not None:
            raise UsageError("--columns applies to tables only", "select keys with --query, for example '[].run_id'")
        render.emit([record(run) for run in runs], output=output, query=query)
        return
    rows = [_row(run) for run in runs]
    if not rows:
        return
    keys = set(record(replace(runs[0], metrics={})))
    if only is not None:
        wanted = chosen(only, rows, keys)
        fitted = fit(wanted, rows, render.width(), keep=wanted)
        render.emit(fitted.rows, output=output, columns=fitted.columns)
        return
    metrics = common_metrics(runs)
    params = [PARAMS + name.replace("-", "_") for name in varying_parameters(runs)]
    extras = [one for pair in zip_longest(params[:_PARAMETERS], metrics[:_METRICS]) for one in pair if one is not None]
    titles = {key: title(key, keys) for key in columns}
    titles |= {key: title(key, keys) for key in extras}
    for key in params:  # a parameter and a metric of the same name
        if key.removeprefix(PARAMS) in metrics and key in titles:
            titles[key] = key
    order = [*columns[:_LEADING], *params[:_PARAMETERS], *metrics[:_METRICS], *columns[_LEADING:]]
    fitted = fit({key: titles[key] for key in order}, rows, render.width(), extras=extras)
    render.emit(fitted.rows, output=output, columns=fitted.columns)
    hidden = len(metrics) - len(metrics[:_METRICS])
    dropped = [*fitted.dropped, *([units.counted(hidden, "more metric")] if hidden else [])]
    if dropped:
        render.message(dropped_line(dropped, choosable=True))


def _row(run: Run) -> dict[str, Any]:
    facts = {**for_people(record(run)), **_odd(run)}
    facts["status"] = outcome(run)
    facts["gpu"] = gpu_word(run.gpu)
    facts["children"] = len(children_ids(run) or ()) or None
    if run.duration is not None:
        facts["duration"] = units.duration(run.duration)
    if run.started is not None:
        facts["start_time_utc"] = units.age(max(0.0, time.time() - run.started))
    else:
        facts["start_time_utc"] = f"submitted {units.age(max(0.0, time.time() - run.spec.created))}"
    axes = (run.spec.sweep or {}).get("axes", ())
    for name, value in of_run(run).items():
        if any(f"{{{axis}}}" == value for axis in axes):
            continue  # the values are those of the children
        facts[PARAMS + name.replace("-", "_")] = "yes" if value is None else shown(value)
    if run.spec.entry.arguments:
        facts["arguments"] = shlex.join(run.spec.entry.arguments)
    if run.tags:
        facts["tags"] = ", ".join(run.tags)
    return facts


def _odd(run: Run) -> dict[str, str]:
    """NaN and infinities, which are nothing to a query and yet worth seeing."""
    return {name: str(value) for name, value in run.metrics.items() if isinstance(value, float) and not isfinite(value)}


def show_artifact(run: RunFolder, artifact: str, secrets: Iterable[str]) -> None:
    """Write one output: safe on a terminal, byte for byte elsewhere; known secrets are masked."""
    with open(open_output(run, as_typed(artifact)), "rb") as file:
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
