"""Reading tracked data: drawing a long series, compared with MLflow (SQLite)."""

from __future__ import annotations

import json
import math
import shutil
import sys
from functools import partial
from pathlib import Path

import machine
import peers
from context import Context
from history import python_of
from table import Line, Section, median, ms, time_of, times
from timing import Contestant, Program, take_turns

POINTS = 1_000_000
WIDTH = 320  # number of columns; the page of the peer requests as many points
QUICKER_AIM = 10.0
DRAW_AIM = 0.1  # seconds that people perceive as immediate
RATE_AIM = 500_000  # points per second

_DRAW = """
import json, sys, time
from mlworkbench.history.series.series_store import Series
from mlworkbench.remote.shared.layout import RunFolder
taken = {}
with Series(RunFolder(sys.argv[1])) as series:
    began = time.perf_counter()
    series.catch_up()
    taken["taken in"] = time.perf_counter() - began
    count = len(series.downsample("loss", int(sys.argv[2])))
    taken["drawn"] = time.perf_counter() - began
    began = time.perf_counter()
    found = len(series.points("loss"))
    taken["all"] = time.perf_counter() - began
assert (count, found) == (int(sys.argv[2]), int(sys.argv[3])), (count, found)
print(json.dumps(taken))
"""
# One point is logged through the documented API; the others are copies of its row with other values.
_LOAD_POINTS = """
import math, sqlite3, sys, time
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1])
run = client.create_run(client.create_experiment("bench")).info.run_id
client.log_metric(run, "loss", 0.0, step=-1)
store = sqlite3.connect(sys.argv[1])
found = store.execute("SELECT * FROM metrics")
names = [column[0] for column in found.description]
row = dict(zip(names, found.fetchone()))
def rows():
    for number in range(int(sys.argv[2])):
        row.update(value=math.sin(number / 1000) / (1 + number), step=number, timestamp=1763190000000 + number)
        yield tuple(row[name] for name in names)
store.execute("DELETE FROM metrics")
store.executemany("INSERT INTO metrics VALUES (" + ", ".join("?" * len(names)) + ")", rows())
store.commit()
print(run)
"""
_DRAW_THEIRS = """
import json, sys, time
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1])
run, width, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
client.get_run(run)  # what its first question costs is not the cost of this one
store = client._tracking_client.store
began = time.perf_counter()
if width:
    found = len(store.get_metric_history_bulk_interval([run], "loss", width, None, None))
    assert 0 < found <= width + 2, found
else:
    found = len(client.get_metric_history(run, "loss"))
    assert found == count, found
print(json.dumps({"drawn" if width else "all": time.perf_counter() - began}))
"""
ParsedOutput = dict[str, float]


def _ours(context: Context, script: str, *arguments: object) -> Program:
    return Program((sys.executable, "-c", script, *map(str, arguments)), context.workspace, context.environment)


def _parsed_output(context: Context, program: Program) -> ParsedOutput:
    result: ParsedOutput = json.loads(context.call(program).splitlines()[-1])
    return result


# -- a long series -------------------------------------------------------------------------------------


def series_section(context: Context) -> Section:
    section = Section(f"a series of {POINTS:,} points")
    section.notes.append(f"load average before: {machine.load()}")
    folder = context.scratch / "series"
    _write_points(folder / "metrics")
    peer, quiet = peers.mlflow(), context.quiet()
    later = _ours(context, _DRAW, folder, WIDTH, POINTS)
    contestants = [
        Contestant("first", partial(_first, context, folder)),
        Contestant("later", lambda: _parsed_output(context, later)),
    ]
    if peer.program:
        place, run = _load_points(context, peer)
        drawn, whole = (
            python_of(context, peer, "-c", _DRAW_THEIRS, place, run, str(width), str(POINTS)) for width in (WIDTH, 0)
        )
        contestants.append(Contestant("mlflow drawn", partial(_parsed_output, context, drawn)))
        contestants.append(Contestant("mlflow all", partial(_parsed_output, context, whole), 1))
    results = take_turns(contestants, context.slow, quiet)
    section.lines += [*_series_lines(results), *_peer_lines(peer, results)]
    size = (folder / "series.db").stat().st_size
    section.notes += [
        f"median of {context.slow} rounds, each a new process; a call in it, without what it imports; {quiet.words()}",
        "to draw is to get what a picture needs: here the least, the largest and the latest value in each of "
        f"{WIDTH} columns; there {WIDTH} of the points, as its own page asks for",
        f"the metric file has {(folder / 'metrics' / '1-0').stat().st_size / POINTS:.0f} bytes a point, what is made of"
        f" it {size / POINTS:.0f}",
    ]
    shutil.rmtree(folder)
    return section


def _write_points(folder: Path) -> None:
    """Write the points as the in-run library does."""
    folder.mkdir(parents=True)
    with open(folder / "1-0", "w") as file:
        for number in range(POINTS):
            value, when = math.sin(number / 1000) / (1 + number), 1763190000 + number / 1000
            file.write(f'{{"n": "loss", "v": {value!r}, "t": {when:.6f}, "s": {number}, "i": {number + 1}}}\n')


def _first(context: Context, folder: Path) -> ParsedOutput:
    for path in folder.glob("series.db*"):
        path.unlink()
    return _parsed_output(context, _ours(context, _DRAW, folder, WIDTH, POINTS))


def _load_points(context: Context, peer: peers.Peer) -> tuple[str, str]:
    """Load the points into the peer. Return the path of its store and the run ID."""
    place = str(context.scratch / "points.db")
    return place, context.call(python_of(context, peer, "-c", _LOAD_POINTS, place, str(POINTS))).split()[-1]


def _of(results: dict[str, list[ParsedOutput]], name: str, what: str) -> list[float]:
    return [result[what] for result in results[name]]


def _series_lines(results: dict[str, list[ParsedOutput]]) -> list[Line]:
    later, first = _of(results, "later", "drawn"), _of(results, "first", "drawn")
    rate = POINTS / median(_of(results, "first", "taken in"))
    return [
        Line("drawn", time_of(later), "", "", f"≤ {ms(DRAW_AIM)}", median(later) <= DRAW_AIM),
        Line(
            "drawn for the first time", time_of(first), f"{rate:,.0f} points taken in each second", "",
            f"≥ {RATE_AIM:,} points/s", rate >= RATE_AIM,
        ),
        Line("all points", time_of(_of(results, "later", "all"))),
    ]  # fmt: skip


def _peer_lines(peer: peers.Peer, results: dict[str, list[ParsedOutput]]) -> list[Line]:
    if "mlflow drawn" not in results:
        return [Line(f"{peer.name}, the same", "not installed", peer.problem)]
    lines = []
    for what, name in (("drawn", "what its page asks for"), ("all", "`get_metric_history`, once")):
        theirs = _of(results, f"mlflow {what}", what)
        ratio, first = (median(theirs) / median(_of(results, when, what)) for when in ("later", "first"))
        beside = f"drawn for the first time: {times(first)}" if what == "drawn" else ""
        lines.append(Line(f"{peer.name} {peer.version}, SQLite store: {name}", time_of(theirs), beside, times(ratio)))
    return lines
