"""``mlw history metrics``: what a run measured, as a table, as a chart, or point by point."""

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
from ..export.csvfile import cell
from ..history.series.drawing import columns
from ..history.series.measured import Measured
from ..history.series.points import NO_STEP
from ..history.series.series import Column, Name
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report.plain import plain
from ..report.values import finite, shown
from . import paper, render
from .command import GLOBAL, under
from .completion import complete_run
from .curves import chart, sparkline
from .opening import look_up
from .options import debugging, in_project

HEIGHT = 14
SPARK = 24
_NARROW, _WIDE = 20, 400
_BATCH = 5000  # points that are written at a time
_TEXTS = 20  # values that are no numbers, shown at most
_CELL = 40
_FORMATS = ("table", "json", "jsonc", "tsv", "csv")

Point = tuple[str, int | None, float | None, Any]  # name, step, time, value


@click.command(epilog="Example: mlw history metrics demo-swift loss --log")
@click.argument("run", shell_complete=complete_run)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--x", "axis", type=click.Choice(("step", "time")), default="step", help="X axis")
@click.option("--log", is_flag=True, help="Logarithmic Y axis")
@click.option("--width", type=click.IntRange(_NARROW, _WIDE), help="Chart width in columns (default: terminal width)")
@click.option("--height", type=click.IntRange(3, 100), default=HEIGHT, help="Chart height in lines")
@under(
    GLOBAL,
    click.option(
        *("-o", "--output"),
        type=click.Choice(_FORMATS),
        default="table",
        metavar="FORMAT",
        help=f"Output format: {', '.join(_FORMATS)}",
    ),
    click.option("--query", metavar="JMESPATH", help="Filter the result with a JMESPath expression"),
)
@in_project
@debugging
def metrics(run: str, names: tuple[str, ...], folder: str | None, **asked: Any) -> None:
    """Show the metrics of a run.

    Prints a table of all metrics, or a chart of each NAME. With -o json, csv, or tsv, prints every point: name, step,
    time in seconds since 1970, and value.
    """
    history = History(user_paths())
    found = look_up(history, run, folder)
    with Measured(history, found) as measured:
        known = _chosen(measured, names, found)
        if asked["output"] != "table" or asked["query"] is not None:
            _for_programs(found, measured, known, asked["output"], asked["query"])
        elif not names:
            _tabulate(found, measured, known, asked["width"] or paper.width())
        else:
            for one in known:
                paper.write(_picture(found, measured, one, asked))


def _chosen(measured: Measured, names: Sequence[str], run: Run) -> list[Name]:
    known = measured.names()
    if not known:
        raise UsageError(
            f"run {run.id} has logged no metrics" + ("" if run.status.final else " yet"),
            f"show the run with 'mlw show {run.id}'",
        )
    if not names:
        return known
    chosen: list[Name] = []
    for name in names:
        found = [one for one in known if one.name == name] or _column(measured, name)
        if not found:
            raise UnknownName("metric", name, {one.name for one in known})
        chosen += found
    return chosen


def _column(measured: Measured, name: str) -> list[Name]:
    """A column of a table that was logged row by row is a series, too: ``table.column``."""
    values = measured.column(name)
    numbers = len(measured.points(name)) if values else 0
    counts = {"number": numbers, "value": len(values) - numbers}
    return [Name(name, kind, count) for kind, count in counts.items() if count]


# -- for people ----------------------------------------------------------------------------------------


def _tabulate(run: Run, measured: Measured, known: Sequence[Name], width: int) -> None:
    paper.write(lines_of(run, measured, known, width))
    first = next((one.name for one in known if one.kind == "number" and one.count > 1), None)
    if first is not None:
        render.message(f"hint: draw a chart with: mlw history metrics {run.id} {_quoted(first)}")


def lines_of(run: Run, measured: Measured, known: Sequence[Name], width: int) -> list[str]:
    """A line for each name: how many, the last, the least, the greatest, and a small curve where it fits."""
    rows = [_row(run, measured, one) for one in known]
    titles = ["Metric", "Points", "Last", "Min", "Max"]
    cells = [row[:5] for row in rows]
    room = min(SPARK, width - paper.breadth(titles, cells) - 2)
    if room < 4 or not any(row[5] for row in rows):
        return paper.table(titles, cells, {1, 2, 3, 4})
    curved = [[*row[:5], _spark(row[5], room)] for row in rows]
    return paper.table([*titles, "Curve"], curved, {1, 2, 3, 4})


def _row(run: Run, measured: Measured, one: Name) -> list[Any]:
    name, count = plain(one.name, _CELL), str(one.count)
    if one.kind == "row":
        newest = measured.rows(one.name, newest=1)
        cells = [f"{column}={shown(value)}" for column, value in newest[-1].items()] if newest else []
        return [name, count, plain(", ".join(cells), _CELL), "", "", []]
    if one.kind == "value":
        value = _newest(measured, one.name)
        return [name, count, shown(value, _CELL), "", "", _list_columns(value, SPARK)]
    drawn = measured.drawn(one.name, SPARK)
    last = run.metrics.get(one.name)
    if not isinstance(last, (int, float)):  # it was logged as a text since
        last = drawn[-1].last if drawn else None
    ends = measured.ends(one.name) or (None, None)
    return [name, count, shown(last), *map(shown, ends), drawn if one.count > 1 else []]


def _spark(drawn: Sequence[Column], room: int) -> str:
    return sparkline(drawn, room, ascii=paper.ascii_only()) if drawn else ""


def _newest(measured: Measured, name: str) -> Any:
    values = measured.values(name, newest=1)
    return values[-1].value if values else None


def _list_columns(value: Any, width: int) -> list[Column]:
    """A list of numbers is a curve, too."""
    if not isinstance(value, list) or len(value) < 2 or not all(type(one) in (int, float) for one in value):
        return []
    return columns(range(len(value)), [float(one) for one in value], width)


def _picture(run: Run, measured: Measured, one: Name, asked: dict[str, Any]) -> list[str]:
    width = min(max(_NARROW, asked["width"] or paper.width()), _WIDE)
    over, drawn = "list index", []
    if one.kind == "number":
        found = measured.drawn(one.name, 2 * width, asked["axis"])
        over, drawn = over_words(asked["axis"]), since_start(found, run, asked["axis"])
        if asked["axis"] == "step" and one.count > 1 and not measured.has_steps(one.name):
            over = "points"
    elif one.kind == "value":
        drawn = _list_columns(_newest(measured, one.name), 2 * width)
    if not drawn:
        return _texts(run, measured, one)
    title = paper.bold(f"{plain(one.name)} over {over}")
    options = {"log": asked["log"], "ascii": paper.ascii_only(), "colour": paper.colourful()}
    *lines, _ = chart({one.name: drawn}, width, asked["height"], **options)  # the title says what the legend would
    return [title, *lines, ""]


def over_words(axis: str) -> str:
    return "seconds" if axis == "time" else "steps"


def since_start(drawn: list[Column], run: Run, axis: str) -> list[Column]:
    """Moments as seconds since the run's start, which is what people compare."""
    if axis != "time" or not drawn:
        return drawn
    start = run.started or run.spec.created
    return [column._replace(x=column.x - start) for column in drawn]


def _texts(run: Run, measured: Measured, one: Name) -> list[str]:
    if one.kind == "row":
        rows = measured.rows(one.name)
        titles = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[shown(row.get(key), _CELL) for key in titles] for row in rows[-_TEXTS:]]
        return [paper.bold(plain(one.name)), *_more(len(rows)), *paper.table(titles, cells), ""]
    if one.kind == "number":
        return [f"{plain(one.name)}  {shown(run.metrics.get(one.name))}"]
    values = measured.values(one.name, newest=_TEXTS)
    steps = ["" if value.step is None else str(value.step) for value in values]
    cells = [[step, shown(value.value, 200)] for step, value in zip(steps, values, strict=True)]
    return [*_more(one.count), *paper.table(["Step", one.name], cells, {0}), ""]


def _more(count: int) -> list[str]:
    return [f"(last {_TEXTS} of {count})"] if count > _TEXTS else []


def _quoted(name: str) -> str:
    import shlex  # noqa: PLC0415

    return shlex.quote(plain(name))


# -- for programs --------------------------------------------------------------------------------------


def _for_programs(run: Run, measured: Measured, known: Sequence[Name], output: str, query: str | None) -> None:
    if query is not None or output == "jsonc":
        whole: dict[str, list[Any]] = {}
        for name, *rest in _points(measured, known):
            whole.setdefault(name, []).append(_point(*rest))
        kind = "json" if output == "csv" else output
        render.emit({"run_id": run.id, "metrics": whole}, output=kind, query=query)
    elif output == "json":
        _write_json(run, measured, known)
    else:
        _write_lines(_points(measured, known), _tsv if output == "tsv" else _csv())


def _points(measured: Measured, known: Sequence[Name]) -> Iterator[Point]:
    for one in known:
        if one.kind == "number":
            points = measured.points(one.name)
            for step, moment, value in zip(points.steps, points.times, points.values, strict=True):
                yield one.name, None if step == NO_STEP else step, moment, value
        elif one.kind == "value":
            for told in measured.values(one.name):
                yield one.name, told.step, told.time, told.value
        else:
            for row in measured.rows(one.name):
                yield one.name, None, None, row


def _point(step: int | None, moment: float | None, value: Any) -> dict[str, Any]:
    return {"step": step, "time": moment, "value": finite(value)}


def _write_json(run: Run, measured: Measured, known: Sequence[Name]) -> None:
    """Piece by piece: a million points as one value would fill the memory."""
    render.pour(f'{{"run_id": {json.dumps(run.id)}, "metrics": {{'.encode())
    names = list(dict.fromkeys(one.name for one in known))
    for number, name in enumerate(names):
        render.pour(f"{',' if number else ''}\n{json.dumps(name)}: [".encode())
        points = _points(measured, [one for one in known if one.name == name])
        comma = ""
        while batch := list(islice(points, _BATCH)):
            text = ",\n".join(json.dumps(_point(*rest)) for _, *rest in batch)
            render.pour(f"{comma}\n{text}".encode())
            comma = ","
        render.pour(b"]")
    render.pour(b"}}\n")


def _write_lines(points: Iterator[Point], line: Callable[[Point | None], str]) -> None:
    render.pour(line(None).encode())
    while batch := list(islice(points, _BATCH)):
        render.pour("".join(map(line, batch)).encode("utf-8", "backslashreplace"))


def _tsv(point: Point | None) -> str:
    return "" if point is None else "\t".join(plain(field) for field in _fields(point)) + "\n"


def _csv() -> Callable[[Point | None], str]:
    safe = plain if render.terminal(sys.stdout) else str

    def line(point: Point | None) -> str:
        text = io.StringIO()
        fields = ["name", "step", "time", "value"] if point is None else [safe(_guarded(one)) for one in _fields(point)]
        csv.writer(text, lineterminator="\n").writerow(fields)
        return text.getvalue()

    return line


def _fields(point: Point) -> list[str]:
    name, step, moment, value = point
    text = value if isinstance(value, str) else repr(value) if isinstance(value, float) else json.dumps(finite(value))
    return [name, "" if step is None else str(step), "" if moment is None else f"{moment:.6f}", text]


def _guarded(text: str) -> str:
    """A text that a spreadsheet would take for a formula is one no more."""
    try:
        float(text)
    except ValueError:
        return cell(text)
    return text
