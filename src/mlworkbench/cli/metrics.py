"""``mlw history metrics``: print the metrics of a run as a table, a chart, or single points."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import click

from ..errors import UnknownName, UsageError
from ..export.csv_export import cell
from ..history.journal_parsing import strict_json
from ..history.series.downsampling import columns
from ..history.series.points import NO_STEP
from ..history.series.run_series import RunSeries
from ..history.series.series_store import Column, Name
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..remote.shared.metric_limits import split_rank
from ..report.value_format import format_value
from ..sanitize import plain
from . import render, text_output
from .command import GLOBAL_SECTION, option_section
from .completion_types import complete_run
from .curves import draw_chart, sparkline
from .options import global_options, project_option
from .run_lookup import get_current_run

DEFAULT_HEIGHT = 14
SPARKLINE_WIDTH = 24
_MIN_WIDTH, _MAX_WIDTH = 20, 400
_BATCH = 5000  # maximum points per write
_MAX_VALUES = 20  # maximum number of non-numeric values shown
_MAX_CELL = 40
_FORMATS = ("table", "json", "jsonc", "tsv", "csv")

Point = tuple[str, int | None, float | None, Any]  # name, step, time, value


@click.command(epilog="Example: mlw history metrics demo-swift loss --log")
@click.argument("run", shell_complete=complete_run)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--x", "axis", type=click.Choice(("step", "time")), default="step", help="X axis")
@click.option("--log", is_flag=True, help="Logarithmic Y axis")
@click.option(
    "--width", type=click.IntRange(_MIN_WIDTH, _MAX_WIDTH), help="Chart width in columns (default: terminal width)"
)
@click.option("--height", type=click.IntRange(3, 100), default=DEFAULT_HEIGHT, help="Chart height in lines")
@click.option("--ranks", is_flag=True, help="Include the metrics of all ranks, such as 'rank 2/loss'")
@option_section(
    GLOBAL_SECTION,
    click.option(
        *("-o", "--output"),
        type=click.Choice(_FORMATS),
        default="table",
        metavar="FORMAT",
        help=f"Output format: {', '.join(_FORMATS)}",
    ),
    click.option("--query", metavar="JMESPATH", help="Filter the result with a JMESPath expression"),
)
@project_option
@global_options
def metrics(run: str, names: tuple[str, ...], folder: str | None, **options: Any) -> None:
    """Show the metrics of a run.

    Prints a table of all metrics, or a chart of each NAME. With -o json, csv, or tsv, prints every point: name, step,
    time in seconds since 1970, and value.
    """
    history = History(user_paths())
    selected = get_current_run(history, run, folder)
    with RunSeries(history, selected, with_ranks=options["ranks"]) as run_series:
        series = _select_metrics(run_series, names, selected)
        if options["output"] != "table" or options["query"] is not None:
            _emit_points(selected, run_series, series, options["output"], options["query"])
        elif not names:
            _print_table(selected, run_series, series, options["width"] or text_output.width())
        else:
            for entry in series:
                text_output.write_lines(_format_metric(selected, run_series, entry, options))


def _select_metrics(run_series: RunSeries, names: Sequence[str], run: Run) -> list[Name]:
    available = run_series.names()
    if not available:
        raise UsageError(
            f"run {run.id} has logged no metrics" + ("" if run.status.final else " yet"),
            f"show the run with 'mlw show {run.id}'",
        )
    if not names:
        return available
    selected: list[Name] = []
    for name in names:
        matches = [entry for entry in available if name in (entry.name, split_rank(entry.name)[1])]
        matches = matches or _table_column(run_series, name)
        if not matches:
            raise UnknownName("metric", name, {entry.name for entry in available})
        selected += matches
    return selected


def _table_column(run_series: RunSeries, name: str) -> list[Name]:
    """Return ``table.column``, a column of a table that was logged row by row, as a series."""
    values = run_series.column(name)
    numbers = len(run_series.points(name)) if values else 0
    counts = {"number": numbers, "value": len(values) - numbers}
    return [Name(name, kind, count) for kind, count in counts.items() if count]


# -- tables and charts ------------------------------------------------------------------------------------


def _print_table(run: Run, run_series: RunSeries, series: Sequence[Name], width: int) -> None:
    text_output.write_lines(format_metrics(run, run_series, series, width))
    first = next((entry.name for entry in series if entry.kind == "number" and entry.count > 1), None)
    if first is not None:
        render.message(f"hint: draw a chart with: mlw history metrics {run.id} {_shell_quote(first)}")


def format_metrics(run: Run, run_series: RunSeries, series: Sequence[Name], width: int) -> list[str]:
    """Return one table line per metric: points, last, minimum, maximum, and a sparkline if it fits."""
    rows = [_row(run, run_series, entry) for entry in series]
    titles = ["Metric", "Points", "Last", "Min", "Max"]
    cells = [row[:5] for row in rows]
    sparkline_width = min(SPARKLINE_WIDTH, width - text_output.table_width(titles, cells) - 2)
    if sparkline_width < 4 or not any(row[5] for row in rows):
        return text_output.format_table(titles, cells, {1, 2, 3, 4})
    with_curves = [[*row[:5], _sparkline(row[5], sparkline_width)] for row in rows]
    return text_output.format_table([*titles, "Curve"], with_curves, {1, 2, 3, 4})


def _row(run: Run, run_series: RunSeries, entry: Name) -> list[Any]:
    name, count = plain(entry.name, _MAX_CELL), str(entry.count)
    if entry.kind == "row":
        newest = run_series.rows(entry.name, newest=1)
        cells = [f"{column}={format_value(value)}" for column, value in newest[-1].items()] if newest else []
        return [name, count, plain(", ".join(cells), _MAX_CELL), "", "", []]
    if entry.kind == "value":
        value = _newest_value(run_series, entry.name)
        return [name, count, format_value(value, _MAX_CELL), "", "", _list_columns(value, SPARKLINE_WIDTH)]
    columns = run_series.downsample(entry.name, SPARKLINE_WIDTH)
    last = run.metrics.get(entry.name)
    if not isinstance(last, (int, float)):  # the last logged value is a string
        last = columns[-1].last if columns else None
    ends = run_series.value_range(entry.name) or (None, None)
    return [name, count, format_value(last), *map(format_value, ends), columns if entry.count > 1 else []]


def _sparkline(columns: Sequence[Column], width: int) -> str:
    return sparkline(columns, width, ascii=text_output.ascii_only()) if columns else ""


def _newest_value(run_series: RunSeries, name: str) -> Any:
    values = run_series.values(name, newest=1)
    return values[-1].value if values else None


def _list_columns(value: Any, width: int) -> list[Column]:
    """Return the chart columns of a logged list of numbers, or an empty list for any other value."""
    if not isinstance(value, list) or len(value) < 2 or not all(type(item) in (int, float) for item in value):
        return []
    return columns(range(len(value)), [float(item) for item in value], width)


def _format_metric(run: Run, run_series: RunSeries, entry: Name, options: dict[str, Any]) -> list[str]:
    width = min(max(_MIN_WIDTH, options["width"] or text_output.width()), _MAX_WIDTH)
    unit, drawn = "list index", []
    if entry.kind == "number":
        columns = run_series.downsample(entry.name, 2 * width, options["axis"])
        unit, drawn = axis_unit(options["axis"]), relative_to_start(columns, run, options["axis"])
        if options["axis"] == "step" and entry.count > 1 and not run_series.has_steps(entry.name):
            unit = "points"
    elif entry.kind == "value":
        drawn = _list_columns(_newest_value(run_series, entry.name), 2 * width)
    if not drawn:
        return _format_values(run, run_series, entry)
    title = text_output.bold(f"{plain(entry.name)} over {unit}")
    chart_options = {"log": options["log"], "ascii": text_output.ascii_only(), "color": text_output.use_color()}
    # The last line is the legend, which would repeat the title.
    *lines, _ = draw_chart({entry.name: drawn}, width, options["height"], **chart_options)
    return [title, *lines, ""]


def axis_unit(axis: str) -> str:
    return "seconds" if axis == "time" else "steps"


def relative_to_start(columns: list[Column], run: Run, axis: str) -> list[Column]:
    """Convert times to seconds since the start of the run, which are comparable between runs."""
    if axis != "time" or not columns:
        return columns
    start = run.started or run.spec.created
    return [column._replace(x=column.x - start) for column in columns]


def _format_values(run: Run, run_series: RunSeries, entry: Name) -> list[str]:
    if entry.kind == "row":
        rows = run_series.rows(entry.name)
        titles = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[format_value(row.get(key), _MAX_CELL) for key in titles] for row in rows[-_MAX_VALUES:]]
        return [
            text_output.bold(plain(entry.name)),
            *_truncation_note(len(rows)),
            *text_output.format_table(titles, cells),
            "",
        ]
    if entry.kind == "number":
        return [f"{plain(entry.name)}  {format_value(run.metrics.get(entry.name))}"]
    values = run_series.values(entry.name, newest=_MAX_VALUES)
    steps = ["" if value.step is None else str(value.step) for value in values]
    cells = [[step, format_value(value.value, 200)] for step, value in zip(steps, values, strict=True)]
    return [*_truncation_note(entry.count), *text_output.format_table(["Step", entry.name], cells, {0}), ""]


def _truncation_note(count: int) -> list[str]:
    return [f"(last {_MAX_VALUES} of {count})"] if count > _MAX_VALUES else []


def _shell_quote(name: str) -> str:
    import shlex  # noqa: PLC0415

    return shlex.quote(plain(name))


# -- machine-readable output ------------------------------------------------------------------------------


def _emit_points(run: Run, run_series: RunSeries, series: Sequence[Name], output: str, query: str | None) -> None:
    if query is not None or output == "jsonc":
        points: dict[str, list[Any]] = {}
        for name, *rest in _iterate_points(run_series, series):
            points.setdefault(name, []).append(_point_record(*rest))
        kind = "json" if output == "csv" else output
        render.emit({"run_id": run.id, "metrics": points}, output=kind, query=query)
    elif output == "json":
        _write_json(run, run_series, series)
    else:
        _write_lines(_iterate_points(run_series, series), _tsv_line if output == "tsv" else _csv_formatter())


def _iterate_points(run_series: RunSeries, series: Sequence[Name]) -> Iterator[Point]:
    for entry in series:
        if entry.kind == "number":
            points = run_series.points(entry.name)
            for step, time, value in zip(points.steps, points.times, points.values, strict=True):
                yield entry.name, None if step == NO_STEP else step, time, value
        elif entry.kind == "value":
            for item in run_series.values(entry.name):
                yield entry.name, item.step, item.time, item.value
        else:
            for row in run_series.rows(entry.name):
                yield entry.name, None, None, row


def _point_record(step: int | None, time: float | None, value: Any) -> dict[str, Any]:
    return {"step": step, "time": time, "value": strict_json(value)}


def _write_json(run: Run, run_series: RunSeries, series: Sequence[Name]) -> None:
    """Write JSON in batches. A million points in a single value would need too much memory."""
    render.write_bytes(f'{{"run_id": {json.dumps(run.id)}, "metrics": {{'.encode())
    names = list(dict.fromkeys(entry.name for entry in series))
    for index, name in enumerate(names):
        render.write_bytes(f"{',' if index else ''}\n{json.dumps(name)}: [".encode())
        points = _iterate_points(run_series, [entry for entry in series if entry.name == name])
        comma = ""
        while batch := list(islice(points, _BATCH)):
            text = ",\n".join(json.dumps(_point_record(*rest)) for _, *rest in batch)
            render.write_bytes(f"{comma}\n{text}".encode())
            comma = ","
        render.write_bytes(b"]")
    render.write_bytes(b"}}\n")


def _write_lines(points: Iterator[Point], line: Callable[[Point | None], str]) -> None:
    render.write_bytes(line(None).encode())
    while batch := list(islice(points, _BATCH)):
        render.write_bytes("".join(map(line, batch)).encode("utf-8", "backslashreplace"))


def _tsv_line(point: Point | None) -> str:
    return "" if point is None else "\t".join(plain(field) for field in _fields(point)) + "\n"


def _csv_formatter() -> Callable[[Point | None], str]:
    safe = plain if render.is_terminal(sys.stdout) else str

    def line(point: Point | None) -> str:
        text = io.StringIO()
        fields = (
            ["name", "step", "time", "value"]
            if point is None
            else [safe(_escape_formula(field)) for field in _fields(point)]
        )
        csv.writer(text, lineterminator="\n").writerow(fields)
        return text.getvalue()

    return line


def _fields(point: Point) -> list[str]:
    name, step, time, value = point
    text = (
        value if isinstance(value, str) else repr(value) if isinstance(value, float) else json.dumps(strict_json(value))
    )
    return [name, "" if step is None else str(step), "" if time is None else f"{time:.6f}", text]


def _escape_formula(text: str) -> str:
    """Escape a string that a spreadsheet would interpret as a formula. Numbers are not changed."""
    try:
        float(text)
    except ValueError:
        return cell(text)
    return text
