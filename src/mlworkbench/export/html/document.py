"""One HTML page about runs, for colleagues: a single file that fetches nothing, runs nothing and shows all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...history.parameters import of_run
from ...history.series.series import Series
from ...version import __version__
from ..material import Item, points_of
from .charts import COLOURS, DASHES, Curve, draw, mark
from .details import Details, badge
from .markup import cell, counted, is_number, lasting, shown
from .style import POLICY, STYLE

MOST_RUNS = 500  # in the table
_DETAILED = 60  # runs with a part of their own
_CHARTS = 60
_CURVES = COLOURS * DASHES  # as many can be told apart
_COLUMNS = 12  # parameters and metrics in the table; half of them at least for metrics, if there are so many
_WIDTH = 400  # columns of a chart

Write = Callable[[str], None]
Params = Sequence[dict[str, Any]]


def write_page(items: Sequence[Item], write: Write) -> None:
    """The whole page, part by part."""
    title = _title(items)
    write(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{shown(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<header><h1>{shown(title)}</h1><p class=soft>{_subtitle(items)}</p></header>"
    )
    if len(items) > 1:
        _overview(items[:MOST_RUNS], write)
        if len(items) > MOST_RUNS:
            write(f"<p class=soft>and {counted(len(items) - MOST_RUNS, 'more run')}</p>")
        _curves(items[:_CURVES], write)
        if len(items) > _CURVES:
            write(f"<p class=soft>Charts show the first {_CURVES} of {len(items)} runs.</p>")
        write("<h2>Runs</h2>")
    details = Details({item.run.id: f"r{at}" for at, item in enumerate(items[:_DETAILED])})
    for at, item in enumerate(items[:_DETAILED]):
        details.write(item, at, write, opened=len(items) <= 3, alone=len(items) == 1)
    if len(items) > _DETAILED:
        write(f"<p class=soft>Details of the first {_DETAILED} of {len(items)} runs.</p>")
    if len(items) == 1:
        _curves(items, write)
    write(
        f"<footer>Created with ML Workbench {shown(__version__)} (mlw history export).</footer></main></body></html>\n"
    )


def _title(items: Sequence[Item]) -> str:
    if len(items) == 1:
        return items[0].title
    projects = list(dict.fromkeys(item.run.spec.project_name for item in items))
    return f"{len(items)} runs of {', '.join(projects[:3])}" + (" and others" if len(projects) > 3 else "")


def _subtitle(items: Sequence[Item]) -> str:
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    if len(items) == 1:
        return f"{shown(items[0].run.spec.project_name)} · {badge(items[0])} · as of {made}"
    counts = Counter(item.run.status.value for item in items)
    return ", ".join(f"{count} {shown(name.lower())}" for name, count in counts.items()) + f" · as of {made}"


# -- all runs in one table -----------------------------------------------------------------------------


def _overview(items: Sequence[Item], write: Write) -> None:
    """Parameters that differ, and the numbers that most of the runs have."""
    params: Params = [of_run(item.run) for item in items]
    every, same = _differing(params)
    numbers = _common(items)
    metrics = numbers[: max(_COLUMNS // 2, _COLUMNS - len(every))]
    differing = every[: _COLUMNS - len(metrics)]
    write(f"<h2>Comparison</h2><div class='card wide'><table><thead>{_heads(differing, metrics)}</thead><tbody>")
    for at, (item, told) in enumerate(zip(items, params, strict=True)):
        given = "".join(f"<td>{cell(_given(told, name))}</td>" for name in differing)
        measured = "".join(f"<td class=n>{cell(item.run.metrics.get(name))}</td>" for name in metrics)
        write(f"<tr>{_who(item, at)}{given}{measured}</tr>")
    write("</tbody></table></div>")
    hidden = len(every) - len(differing) + len(numbers) - len(metrics)
    if hidden:
        write(f"<p class=soft>and {hidden} more parameters or metrics; see each run below</p>")
    if same:
        listed = ", ".join(f"{shown(name, 60)} = {cell(_given(params[0], name))}" for name in same[:30])
        write(f"<p class=soft>Same in all runs: {listed}</p>")


def _heads(params: Sequence[str], metrics: Sequence[str]) -> str:
    """Two lines: a name may be both a parameter and a metric."""
    groups = "".join(
        f"<th class=group colspan={len(names)}>{title}</th>"
        for title, names in (("Parameters", params), ("Metrics", metrics))
        if names
    )
    own = "<th>Run</th><th>Status</th><th class=n>Started</th><th class=n>Duration</th>"
    given = "".join(f"<th>{shown(name, 60)}</th>" for name in params)
    measured = "".join(f"<th class=n>{shown(name, 60)}</th>" for name in metrics)
    return f"<tr><th class=group colspan=4></th>{groups}</tr><tr>{own}{given}{measured}</tr>"


def _who(item: Item, at: int) -> str:
    name = f"<a href='#r{at}'>{shown(item.title, 80)}</a>" if at < _DETAILED else shown(item.title, 80)
    own = f"<br><span class='id soft'>{shown(item.run.id)}</span>" if item.title != item.run.id else ""
    when = f"<td class=n>{shown(str(item.words.get('start_time_utc') or ''))}</td>"
    when += f"<td class=n>{lasting(item.run.duration)}</td>"
    return f"<td class=name>{name}{own}</td><td>{badge(item)}</td>{when}"


def _given(told: dict[str, Any], name: str) -> Any:
    """An option without a value is true where it was given."""
    return True if name in told and told[name] is None else told.get(name)


def _differing(params: Params) -> tuple[list[str], list[str]]:
    names = dict.fromkeys(name for one in params for name in one)
    same = [name for name in names if all(name in one and one[name] == params[0].get(name) for one in params)]
    shared = Counter(name for one in params for name in one)  # those that most runs have come first
    return sorted((name for name in names if name not in same), key=lambda name: -shared[name]), same


def _common(items: Sequence[Item]) -> list[str]:
    """Names of numbers, the most frequent first."""
    return [
        name
        for name, _ in Counter(
            name for item in items for name, value in item.run.metrics.items() if is_number(value)
        ).most_common()
    ]


# -- curves --------------------------------------------------------------------------------------------


def _curves(items: Sequence[Item], write: Write) -> None:
    """A chart for each name that has more than one point in some run."""
    every = [points_of(item) for item in items]
    try:
        known = [_drawable(item, series) for item, series in zip(items, every, strict=True)]
        # Those that most runs have come first.
        names = [name for name, _ in Counter(name for one in known for name in one).most_common()]
        if not names:
            return
        write("<h2>Charts</h2>")
        if len(items) > 1:
            keys = [_key(item, at) for at, item in enumerate(items) if known[at]]
            write(f"<ul class=legend>{''.join(keys)}</ul>")
        write("<div class=charts>")
        for name in names[:_CHARTS]:
            curves = [
                Curve(item.title[:80], at, series.drawn(name, _WIDTH, child=item.child))
                for at, (item, series) in enumerate(zip(items, every, strict=True))
            ]
            picture = draw(name[:200], curves)
            if picture:
                write(f"<div class=card><h3>{shown(name, 120)}</h3>{picture}</div>")
        write("</div>")
        if len(names) > _CHARTS:
            write(f"<p class=soft>and {len(names) - _CHARTS} more metrics</p>")
    finally:
        for series in every:
            series.close()


def _drawable(item: Item, series: Series) -> list[str]:
    """Names of what makes a curve."""
    return [known.name for known in series.names(item.child) if known.kind == "number" and known.count > 1]


def _key(item: Item, at: int) -> str:
    line = "<line class=curve x1=0 x2=26 y1=6 y2=6 />"
    return f"<li><svg class='{mark(at)}' width=26 height=12 aria-hidden=true>{line}</svg>{shown(item.title, 80)}</li>"
