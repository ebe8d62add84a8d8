"""``mlw history compare``: what differs between runs, down to the packages and the lines of their code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import click

from ..errors import UnknownName, UsageError
from ..history.series.measured import Measured
from ..history.series.series import Column
from ..history.store import History
from ..model import Run
from ..paths import user_paths
from ..report.differences import differences
from ..report.plain import plain
from ..report.values import shown
from . import paper, render
from .completion import complete_run
from .curves import chart
from .metrics import HEIGHT, over_words, since_start
from .opening import look_up
from .options import rendering

CURVES = 6  # metrics that are drawn without being asked for
_DIGEST = 12  # as many characters of one tell it from all others
_DIGESTS = ("SnapshotId", "environment.digest")
_CELL = 200


@click.command(epilog="Example: mlw history compare demo-swift demo-brave --metric loss --files")
@click.argument("runs", nargs=-1, metavar="RUN RUN…", shell_complete=complete_run)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Compare only this metric (repeatable)")
@click.option("--no-curves", is_flag=True, help="Hide charts")
@click.option("--x", "axis", type=click.Choice(("step", "time")), default="step", help="X axis")
@click.option("--log", is_flag=True, help="Logarithmic Y axis")
@click.option("--files", "names_only", is_flag=True, help="List changed files only, without diffs")
@rendering
def compare(runs: tuple[str, ...], names_only: bool, output: str, query: str | None, **asked: Any) -> None:
    """Compare runs.

    Shows what differs: parameters, metrics with charts, environment, and code. Code is compared with the first run.
    """
    if len(runs) < 2:
        raise UsageError("compare requires at least two runs", "list runs with 'mlw history list'")
    history = History(user_paths())
    found = [look_up(history, name, None) for name in runs]
    _expect(found, asked["metrics"])
    facts = differences(history.paths.root, found, lines=not names_only, metrics=asked["metrics"])
    if output == "table" and query is None:
        drawn = [] if asked["no_curves"] else curves(history, found, asked)
        show(facts, names_only, drawn)
    else:
        render.emit(facts, output=output, query=query)


def _expect(runs: Sequence[Run], metrics: Sequence[str]) -> None:
    known = dict.fromkeys(name for run in runs for name in run.metrics)
    for name in metrics:
        if name not in known:
            raise UnknownName("metric", name, known)


# -- curves --------------------------------------------------------------------------------------------


def curves(history: History, runs: Sequence[Run], asked: Mapping[str, Any]) -> list[str]:
    """The series that at least two of the runs have, over each other; those that were asked for, if one has them."""
    runs = list({run.id: run for run in runs}.values())
    if len(runs) < 2:
        return []
    drawable = {name: [run for run in runs if _is_series(run, name)] for run in runs for name in run.spans}
    least = 1 if asked["metrics"] else 2
    names = [name for name in asked["metrics"] or drawable if len(drawable.get(name, ())) >= least]
    lines: list[str] = []
    for name in islice(names, None if asked["metrics"] else CURVES):
        lines += _chart(history, drawable[name], name, asked)
    if len(names) > CURVES and not asked["metrics"]:
        lines += [f"and {len(names) - CURVES} more series: draw one with --metric NAME", ""]
    return lines


def _is_series(run: Run, name: str) -> bool:
    return name in run.spans and run.spans[name].length > 1


def _chart(history: History, runs: Sequence[Run], name: str, asked: Mapping[str, Any]) -> list[str]:
    drawn: dict[str, list[Column]] = {}
    for run in runs:
        with Measured(history, run) as measured:
            found = measured.drawn(name, 2 * paper.width(), asked["axis"])
        drawn[_label(run)] = since_start(found, run, asked["axis"])
    title = paper.bold(f"{plain(name)} over {over_words(asked['axis'])}")
    options = {"log": asked["log"], "ascii": paper.ascii_only(), "colour": paper.colourful()}
    return [title, *chart(drawn, paper.width(), HEIGHT, **options), ""]


def _label(run: Run) -> str:
    return f"{run.id} ({plain(run.name, 30)})" if run.name else run.id


# -- for people ----------------------------------------------------------------------------------------

_TABLES = (("Parameter", "parameters"), ("Metric", "metrics"))
_MORE_TABLES = (("Property", "properties"), ("Package", "packages"))


def show(facts: Mapping[str, Any], names_only: bool, drawn: Sequence[str] = ()) -> None:
    """The differences as a table for each kind, curves below the metrics, and the code as a diff."""
    paper.write([*_tables(facts, _TABLES), *drawn, *_tables(facts, _MORE_TABLES)])
    if facts["packages_unknown"]:
        render.message(f"packages not compared: not recorded for {', '.join(facts['packages_unknown'])}")
    for part in facts["code"]:
        _show_code(part, names_only)
    kinds = [kind for _, kind in (*_TABLES, *_MORE_TABLES)]
    if not any(facts[kind] for kind in kinds) and not any(part["files"] or "problem" in part for part in facts["code"]):
        render.message("no differences")


def _tables(facts: Mapping[str, Any], kinds: Sequence[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for title, kind in kinds:
        rows = [
            [plain(name, _CELL), *(_value(name, value) for value in values)] for name, values in facts[kind].items()
        ]
        lines += [*paper.table([title, *facts["runs"]], rows), ""] if rows else []
    return lines


def _value(name: str, value: Any) -> str:
    return shown(value, _CELL)[: _DIGEST if name in _DIGESTS else None]


def _show_code(part: Mapping[str, Any], names_only: bool) -> None:
    if "problem" in part:
        render.warn(f"{part['run']}: {part['problem']}")
    if not part["files"]:
        return
    lines = [paper.bold(f"code of {part['run']} compared with {part['against']}")]
    lines += [f"  {file['change']:8} {_safe(file['path'])}" for file in part["files"]]
    lines += [] if names_only else [_safe(line) for line in part["diff"]]
    paper.write([*lines, ""])


def _safe(line: str) -> str:
    # A tab is harmless, and the code of most people has some.
    return "\t".join(plain(piece) for piece in line.split("\t"))
