"""A report about runs as a single HTML page that loads no resources and runs no scripts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...history.parameters import run_parameters
from ...history.series.series_store import Series
from ...version import __version__
from ..run_data import Item, points_of
from .charts import COLORS, DASHES, Curve, css_classes, draw_chart
from .markup import cell, escape_text, format_duration, is_number, pluralize
from .run_details import RunSections, badge
from .stylesheet import POLICY, STYLE

MAX_RUNS = 500  # maximum number of rows in the table
_MAX_SECTIONS = 60  # maximum number of runs with a section
_MAX_CHARTS = 60
_MAX_CURVES = COLORS * DASHES  # number of distinguishable curves
_MAX_COLUMNS = 12  # maximum number of parameters and metrics in the table, at least half of them metrics
_WIDTH = 400  # maximum number of points of a curve

Write = Callable[[str], None]
Params = Sequence[dict[str, Any]]


def write_page(items: Sequence[Item], write: Write) -> None:
    """Write the whole page section by section."""
    title = _title(items)
    write(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape_text(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{escape_text(title)}</h1><p class=soft>{_subtitle(items)}</p></header>"
    )
    if len(items) > 1:
        _write_comparison(items[:MAX_RUNS], write)
        if len(items) > MAX_RUNS:
            write(f"<p class=soft>and {pluralize(len(items) - MAX_RUNS, 'more run')}</p>")
        _write_charts(items[:_MAX_CURVES], write)
        if len(items) > _MAX_CURVES:
            write(f"<p class=soft>Charts show the first {_MAX_CURVES} of {len(items)} runs.</p>")
        write("<h2>Runs</h2>")
    details = RunSections({item.run.id: f"r{index}" for index, item in enumerate(items[:_MAX_SECTIONS])})
    for index, item in enumerate(items[:_MAX_SECTIONS]):
        details.write(item, index, write, is_open=len(items) <= 3, is_only=len(items) == 1)
    if len(items) > _MAX_SECTIONS:
        write(f"<p class=soft>Details of the first {_MAX_SECTIONS} of {len(items)} runs.</p>")
    if len(items) == 1:
        _write_charts(items, write)
    version = escape_text(__version__)
    write(f"<footer>Created with ML Workbench {version} (mlw history export).</footer></main></body></html>\n")


def _title(items: Sequence[Item]) -> str:
    if len(items) == 1:
        return items[0].title
    projects = list(dict.fromkeys(item.run.spec.project_name for item in items))
    return f"{len(items)} runs of {', '.join(projects[:3])}" + (" and others" if len(projects) > 3 else "")


def _subtitle(items: Sequence[Item]) -> str:
    created = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if len(items) == 1:
        return f"{escape_text(items[0].run.spec.project_name)} · {badge(items[0])} · as of {created}"
    counts = Counter(item.run.status.value for item in items)
    return ", ".join(f"{count} {escape_text(name.lower())}" for name, count in counts.items()) + f" · as of {created}"


# -- all runs in one table -----------------------------------------------------------------------------


def _write_comparison(items: Sequence[Item], write: Write) -> None:
    """Write a table of the parameters that differ between runs and the most common numeric metrics."""
    params: Params = [run_parameters(item.run) for item in items]
    every, same = _split_parameters(params)
    numbers = _common_metrics(items)
    metrics = numbers[: max(_MAX_COLUMNS // 2, _MAX_COLUMNS - len(every))]
    differing = every[: _MAX_COLUMNS - len(metrics)]
    write(f"<h2>Comparison</h2><div class='card wide'><table><thead>{_header_rows(differing, metrics)}</thead><tbody>")
    for index, (item, values) in enumerate(zip(items, params, strict=True)):
        param_cells = "".join(f"<td>{cell(_parameter_value(values, name))}</td>" for name in differing)
        metric_cells = "".join(f"<td class=n>{cell(item.run.metrics.get(name))}</td>" for name in metrics)
        write(f"<tr>{_run_cells(item, index)}{param_cells}{metric_cells}</tr>")
    write("</tbody></table></div>")
    hidden = len(every) - len(differing) + len(numbers) - len(metrics)
    if hidden:
        write(f"<p class=soft>and {hidden} more parameters or metrics; see each run below</p>")
    if same:
        listed = ", ".join(f"{escape_text(name, 60)} = {cell(_parameter_value(params[0], name))}" for name in same[:30])
        write(f"<p class=soft>Same in all runs: {listed}</p>")


def _header_rows(params: Sequence[str], metrics: Sequence[str]) -> str:
    """Return two header rows, because a name may be both a parameter and a metric."""
    groups = "".join(
        f"<th class=group colspan={len(names)}>{title}</th>"
        for title, names in (("Parameters", params), ("Metrics", metrics))
        if names
    )
    run_heads = "<th>Run</th><th>Status</th><th class=n>Started</th><th class=n>Duration</th>"
    param_heads = "".join(f"<th>{escape_text(name, 60)}</th>" for name in params)
    metric_heads = "".join(f"<th class=n>{escape_text(name, 60)}</th>" for name in metrics)
    return f"<tr><th class=group colspan=4></th>{groups}</tr><tr>{run_heads}{param_heads}{metric_heads}</tr>"


def _run_cells(item: Item, index: int) -> str:
    name = (
        f"<a href='#r{index}'>{escape_text(item.title, 80)}</a>"
        if index < _MAX_SECTIONS
        else escape_text(item.title, 80)
    )
    run_id = f"<br><span class='id soft'>{escape_text(item.run.id)}</span>" if item.title != item.run.id else ""
    times = f"<td class=n>{escape_text(str(item.display.get('start_time_utc') or ''))}</td>"
    times += f"<td class=n>{format_duration(item.run.duration)}</td>"
    return f"<td class=name>{name}{run_id}</td><td>{badge(item)}</td>{times}"


def _parameter_value(params: dict[str, Any], name: str) -> Any:
    """Return the value of a parameter. An option without a value is True if it was given."""
    return True if name in params and params[name] is None else params.get(name)


def _split_parameters(params: Params) -> tuple[list[str], list[str]]:
    names = dict.fromkeys(name for values in params for name in values)
    same = [name for name in names if all(name in values and values[name] == params[0].get(name) for values in params)]
    shared = Counter(name for values in params for name in values)  # to sort the most common ones first
    return sorted((name for name in names if name not in same), key=lambda name: -shared[name]), same


def _common_metrics(items: Sequence[Item]) -> list[str]:
    """Return the names of numeric metrics, the most common ones first."""
    return [
        name
        for name, _ in Counter(
            name for item in items for name, value in item.run.metrics.items() if is_number(value)
        ).most_common()
    ]


# -- curves --------------------------------------------------------------------------------------------


def _write_charts(items: Sequence[Item], write: Write) -> None:
    """Write a chart for each metric that has more than one point in any run."""
    every = [points_of(item) for item in items]
    try:
        metrics = [_curve_names(item, series) for item, series in zip(items, every, strict=True)]
        # Show the most common metrics first.
        names = [name for name, _ in Counter(name for run_metrics in metrics for name in run_metrics).most_common()]
        if not names:
            return
        write("<h2>Charts</h2>")
        if len(items) > 1:
            keys = [_legend_entry(item, index) for index, item in enumerate(items) if metrics[index]]
            write(f"<ul class=legend>{''.join(keys)}</ul>")
        write("<div class=charts>")
        for name in names[:_MAX_CHARTS]:
            curves = [
                Curve(item.title[:80], index, series.downsample(name, _WIDTH, child=item.child))
                for index, (item, series) in enumerate(zip(items, every, strict=True))
            ]
            chart = draw_chart(name[:200], curves)
            if chart:
                write(f"<div class=card><h3>{escape_text(name, 120)}</h3>{chart}</div>")
        write("</div>")
        if len(names) > _MAX_CHARTS:
            write(f"<p class=soft>and {len(names) - _MAX_CHARTS} more metrics</p>")
    finally:
        for series in every:
            series.close()


def _curve_names(item: Item, series: Series) -> list[str]:
    """Return the names of the metrics that can be drawn as curves."""
    return [metric.name for metric in series.names(item.child) if metric.kind == "number" and metric.count > 1]


def _legend_entry(item: Item, index: int) -> str:
    line = "<line class=curve x1=0 x2=26 y1=6 y2=6 />"
    title = escape_text(item.title, 80)
    return f"<li><svg class='{css_classes(index)}' width=26 height=12 aria-hidden=true>{line}</svg>{title}</li>"
