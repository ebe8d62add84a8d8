"""Print runs: complete records for programs, and tables for people."""

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
from ..history.child_runs import search_children
from ..history.parameters import run_parameters
from ..history.run_query import Query
from ..history.store import History
from ..model import Run
from ..paths import RunFolder
from ..report import units
from ..report.default_columns import common_metrics, varying_parameters
from ..report.run_records import children_ids, gpu_cell, outcome, record, to_display
from ..report.value_format import format_value, is_long
from ..runfiles.output_file import open_output, strip_outputs_prefix
from ..runfiles.output_manifest import read_outputs
from ..runfiles.secret_masking import Mask
from ..sanitize import plain
from . import render
from .columns import PARAMS, column_title, dropped_columns_note, fit_columns, select_columns
from .output_formats import heading
from .terminal_safety import TerminalFilter

LOG_NAMES = ("driver_log", "log")  # log names in Azure ML Workbench and in mlw
_CHUNK = 1 << 20
_MAX_METRICS, _MAX_PARAMETERS = 8, 6  # maximum columns in a list
_MAX_ATTACHMENTS = 1000  # maximum outputs listed in a record
_MAX_TAG = 60  # characters of a tag in a list
_LEADING_COLUMNS = 4  # number of columns before parameters and metrics


def show_run(run: Run, output: str, query: str | None, history: History | None = None) -> None:
    """Print the record of a run. With ``history``, include values from the run folder."""
    facts = record(run)
    is_table = output == "table" and query is None
    if history is not None:
        facts["attachments"] = _attachments(history.paths.root.run(run.spec.folder))
        if facts["children"] is None:
            facts["children"] = [child.id for child in search_children(history, run.spec, Query(hidden=True))]
        if not is_table:
            _add_long_values(facts, history, run)
            facts.update(_recorded_data(history, run))
    if not is_table:
        render.emit(facts, output=output, query=query)
        return
    table_facts = {**to_display(facts), **_non_finite_metrics(run)}
    record_keys = record(replace(run, metrics={}))
    ordered = sorted(table_facts, key=lambda key: key not in record_keys and key in run.metrics)  # metrics last
    render.emit(
        table_facts, output=output, columns={key: heading(key) if key not in run.metrics else key for key in ordered}
    )


def _add_long_values(facts: dict[str, Any], history: History, run: Run) -> None:
    """Replace long lists and strings, for which the index stores only the size, with their values."""
    names = [name for name, value in run.metrics.items() if is_long(value)]
    if not names:
        return
    from ..history.series.run_series import RunSeries  # noqa: PLC0415 - only long values need it

    with RunSeries(history, run) as run_series:
        for name in names:
            newest = run_series.values(name, newest=1)
            if newest:
                value_in_full = newest[-1].value
                if facts.get(name) == facts["metrics"][name]:
                    facts[name] = value_in_full
                facts["metrics"][name] = value_in_full


def _recorded_data(history: History, run: Run) -> dict[str, Any]:
    """Return what the script recorded besides metrics, and the packages of the environment."""
    from ..report.mlflow_report import load_mlflow_data, to_json  # noqa: PLC0415 - lists do not need it
    from ..report.packages import load_packages  # noqa: PLC0415

    packages = [{"name": package.name, "version": package.version} for package in load_packages(history, run)]
    return {**to_json(load_mlflow_data(history, run)), "packages": packages}


def show_run_file(history: History, prefix: str | None, folder: str | None, artifact: str) -> None:
    """Print a single file of a run instead of its record."""
    from ..runs.open_run import refuse_untracked  # noqa: PLC0415 - lists do not need it
    from ..runs.submitting import known_secrets  # noqa: PLC0415
    from .follow_view import stream  # noqa: PLC0415
    from .run_lookup import open_run  # noqa: PLC0415
    from .submission_console import Console  # noqa: PLC0415

    follower = open_run(history, prefix, folder)
    run = follower.refresh()
    if artifact in LOG_NAMES:
        refuse_untracked(run, "its output was not captured", f"show what it logged with 'mlw show {run.id}'")
        stream(follower, secrets=known_secrets(run, Console()).values(), live=False)
    else:
        show_artifact(history.paths.root.run(run.id), artifact, known_secrets(run, Console()).values())


def _attachments(folder: RunFolder) -> str:
    """Return the names that ``info --artifact`` accepts (log and outputs), separated by commas."""
    try:
        listed = (entry for entry in read_outputs(folder.manifest) if entry.is_collected)
        outputs = [f"outputs/{entry.path}" for entry in islice(listed, _MAX_ATTACHMENTS)]
    except (OSError, HistoryError):
        outputs = []  # the run has not finished, or the manifest is damaged
    return ",".join(["driver_log", *outputs])


def show_runs(
    runs: Sequence[Run], output: str, query: str | None, columns: Sequence[str], *, only: str | None = None
) -> None:
    """Print a list of runs. The table shows the columns that fit.

    Columns include varying parameters and common metrics. ``only`` contains the columns that the user
    selected.
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
        selected = select_columns(only, rows, keys)
        fitted = fit_columns(selected, rows, render.width(), keep=selected)
        render.emit(fitted.rows, output=output, columns=fitted.columns)
        return
    metrics = common_metrics(runs)
    params = [PARAMS + name.replace("-", "_") for name in varying_parameters(runs)]
    extras = [
        key_or_name
        for pair in zip_longest(params[:_MAX_PARAMETERS], metrics[:_MAX_METRICS])
        for key_or_name in pair
        if key_or_name is not None
    ]
    titles = {key: column_title(key, keys) for key in columns}
    titles |= {key: column_title(key, keys) for key in extras}
    for key in params:  # add the prefix if a metric has the same name
        if key.removeprefix(PARAMS) in metrics and key in titles:
            titles[key] = key
    order = [
        *columns[:_LEADING_COLUMNS],
        *params[:_MAX_PARAMETERS],
        *metrics[:_MAX_METRICS],
        *columns[_LEADING_COLUMNS:],
    ]
    fitted = fit_columns({key: titles[key] for key in order}, rows, render.width(), extras=extras)
    render.emit(fitted.rows, output=output, columns=fitted.columns)
    hidden = len(metrics) - len(metrics[:_MAX_METRICS])
    dropped = [*fitted.dropped, *([units.pluralize(hidden, "more metric")] if hidden else [])]
    if dropped:
        render.message(dropped_columns_note(dropped, choosable=True))


def _row(run: Run) -> dict[str, Any]:
    facts = {**to_display(record(run)), **_non_finite_metrics(run)}
    facts["status"] = outcome(run)
    facts["gpu"] = gpu_cell(run.gpu)
    facts["children"] = len(children_ids(run) or ()) or None
    if run.duration is not None:
        facts["duration"] = units.duration(run.duration)
    if run.started is not None:
        facts["start_time_utc"] = units.age(max(0.0, time.time() - run.started))
    else:
        facts["start_time_utc"] = f"submitted {units.age(max(0.0, time.time() - run.spec.created))}"
    axes = (run.spec.sweep or {}).get("axes", ())
    for name, value in run_parameters(run).items():
        if any(f"{{{axis}}}" == value for axis in axes):
            continue  # each child has its own value
        facts[PARAMS + name.replace("-", "_")] = "yes" if value is None else format_value(value)
    if run.spec.entry.arguments:
        facts["arguments"] = shlex.join(run.spec.entry.arguments)
    if run.tags:
        facts["tags"] = ", ".join(plain(tag, _MAX_TAG) for tag in run.tags)
    return facts


def _non_finite_metrics(run: Run) -> dict[str, str]:
    """Return NaN and infinite metrics as strings. JSON types lack them, but tables show them."""
    return {name: str(value) for name, value in run.metrics.items() if isinstance(value, float) and not isfinite(value)}


def show_artifact(run: RunFolder, artifact: str, secrets: Iterable[str]) -> None:
    """Write an output, filtered on a terminal and unchanged elsewhere. Known secrets are masked."""
    with open(open_output(run, strip_outputs_prefix(artifact)), "rb") as file:
        stages: list[Mask | TerminalFilter] = []
        values = [os.fsencode(value) for value in secrets]
        if values:
            stages.append(Mask(values))
        if render.is_terminal(sys.stdout):
            stages.append(TerminalFilter(encoding=getattr(sys.stdout, "encoding", None) or "utf-8"))
        while chunk := file.read(_CHUNK):
            for stage in stages:
                chunk = stage.feed(chunk)
            render.write_bytes(chunk)
        rest = b""
        for stage in stages:
            rest = stage.feed(rest) + stage.end()
        render.write_bytes(rest)
