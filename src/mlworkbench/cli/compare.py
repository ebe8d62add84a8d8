"""``mlw history compare``: differences between runs, down to packages and lines of code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import click

from ..errors import UnknownName, UsageError
from ..history.series.run_series import RunSeries
from ..history.series.series_store import Column
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report.run_differences import differences
from ..report.value_format import format_value
from ..sanitize import plain
from . import render, text_output
from .completion_types import complete_run
from .curves import draw_chart
from .metrics import DEFAULT_HEIGHT, axis_unit, relative_to_start
from .options import result_options
from .run_lookup import get_current_run

MAX_CURVES = 6  # maximum metrics drawn by default
_DIGEST_LENGTH = 12  # number of characters shown
_DIGEST_PROPERTIES = ("SnapshotId", "environment.digest")
_MAX_CELL = 200


@click.command(epilog="Example: mlw history compare demo-swift demo-brave --metric loss --files")
@click.argument("runs", nargs=-1, metavar="RUN RUN…", shell_complete=complete_run)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Compare only this metric (repeatable)")
@click.option("--no-curves", is_flag=True, help="Hide charts")
@click.option("--x", "axis", type=click.Choice(("step", "time")), default="step", help="X axis")
@click.option("--log", is_flag=True, help="Logarithmic Y axis")
@click.option("--files", "names_only", is_flag=True, help="List changed files only, without diffs")
@result_options
def compare(runs: tuple[str, ...], names_only: bool, output: str, query: str | None, **options: Any) -> None:
    """Compare runs.

    Shows what differs: parameters, metrics with charts, environment, and code. Code is compared with the first run.
    """
    if len(runs) < 2:
        raise UsageError("compare requires at least two runs", "list runs with 'mlw history list'")
    history = History(user_paths())
    selected = [get_current_run(history, name, None) for name in runs]
    _check_metric_names(selected, options["metrics"])
    facts = differences(history.paths.root, selected, lines=not names_only, metrics=options["metrics"])
    if output == "table" and query is None:
        charts = [] if options["no_curves"] else draw_curves(history, selected, options)
        print_differences(facts, names_only, charts)
    else:
        render.emit(facts, output=output, query=query)


def _check_metric_names(runs: Sequence[Run], metrics: Sequence[str]) -> None:
    available = dict.fromkeys(name for run in runs for name in run.metrics)
    for name in metrics:
        if name not in available:
            raise UnknownName("metric", name, available)


# -- curves --------------------------------------------------------------------------------------------


def draw_curves(history: History, runs: Sequence[Run], options: Mapping[str, Any]) -> list[str]:
    """Draw series that at least two runs logged. For requested metrics, one run is enough."""
    runs = list({run.id: run for run in runs}.values())
    if len(runs) < 2:
        return []
    drawable = {name: [run for run in runs if _is_series(run, name)] for run in runs for name in run.spans}
    required = 1 if options["metrics"] else 2
    names = [name for name in options["metrics"] or drawable if len(drawable.get(name, ())) >= required]
    lines: list[str] = []
    for name in islice(names, None if options["metrics"] else MAX_CURVES):
        lines += _draw_chart(history, drawable[name], name, options)
    if len(names) > MAX_CURVES and not options["metrics"]:
        lines += [f"and {len(names) - MAX_CURVES} more series: draw one with --metric NAME", ""]
    return lines


def _is_series(run: Run, name: str) -> bool:
    return name in run.spans and run.spans[name].length > 1


def _draw_chart(history: History, runs: Sequence[Run], name: str, options: Mapping[str, Any]) -> list[str]:
    curves: dict[str, list[Column]] = {}
    for run in runs:
        with RunSeries(history, run) as run_series:
            columns = run_series.downsample(name, 2 * text_output.width(), options["axis"])
        curves[_label(run)] = relative_to_start(columns, run, options["axis"])
    title = text_output.bold(f"{plain(name)} over {axis_unit(options['axis'])}")
    chart_options = {"log": options["log"], "ascii": text_output.ascii_only(), "color": text_output.use_color()}
    return [title, *draw_chart(curves, text_output.width(), DEFAULT_HEIGHT, **chart_options), ""]


def _label(run: Run) -> str:
    return f"{run.id} ({plain(run.name, 30)})" if run.name else run.id


# -- tables and diffs -------------------------------------------------------------------------------------

_TABLES = (("Parameter", "parameters"), ("Metric", "metrics"))
_MORE_TABLES = (("Property", "properties"), ("Package", "packages"))


def print_differences(facts: Mapping[str, Any], names_only: bool, charts: Sequence[str] = ()) -> None:
    """Print the differences: a table per kind, charts below the metrics, and the code as a diff."""
    text_output.write_lines([*_tables(facts, _TABLES), *charts, *_tables(facts, _MORE_TABLES)])
    if facts["packages_unknown"]:
        render.message(f"packages not compared: not recorded for {', '.join(facts['packages_unknown'])}")
    for part in facts["code"]:
        _print_code(part, names_only)
    kinds = [kind for _, kind in (*_TABLES, *_MORE_TABLES)]
    if not any(facts[kind] for kind in kinds) and not any(part["files"] or "problem" in part for part in facts["code"]):
        render.message("no differences")


def _tables(facts: Mapping[str, Any], kinds: Sequence[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for title, kind in kinds:
        rows = [
            [plain(name, _MAX_CELL), *(_format_value(name, value) for value in values)]
            for name, values in facts[kind].items()
        ]
        lines += [*text_output.format_table([title, *facts["runs"]], rows), ""] if rows else []
    return lines


def _format_value(name: str, value: Any) -> str:
    return format_value(value, _MAX_CELL)[: _DIGEST_LENGTH if name in _DIGEST_PROPERTIES else None]


def _print_code(part: Mapping[str, Any], names_only: bool) -> None:
    if "problem" in part:
        render.warn(f"{part['run']}: {part['problem']}")
    if not part["files"]:
        return
    lines = [text_output.bold(f"code of {part['run']} compared with {part['against']}")]
    lines += [f"  {file['change']:8} {_sanitize(file['path'])}" for file in part["files"]]
    lines += [] if names_only else [_sanitize(line) for line in part["diff"]]
    text_output.write_lines([*lines, ""])


def _sanitize(line: str) -> str:
    # Tabs are harmless and common in code.
    return "\t".join(plain(piece) for piece in line.split("\t"))
