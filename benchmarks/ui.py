"""The Workbench in the browser: startup time and behavior with large data, compared with MLflow's pages."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import machine
import peers
from browsing import Server, Visitor, chromium, frames, free_port, heap, start_ours, start_theirs, wait_for_port
from context import Context
from history import Store, fill, load_peer, python_of
from table import Line, Section, mb, median, ms, quantile, time_of, times
from timing import Contestant, take_turns

RUNS = 100_000
LINES = 10_000_000
LINE = 100  # bytes per line of the log: a gigabyte in total
METRICS = 100
POINTS = 100_000
FIRST_AIM = 2.5  # seconds from typing `mlw ui` to a usable page
READY_AIM = 1.0
FRAME_AIM = 0.1  # seconds without a new frame that people perceive as a stall
ROWS_AIM = 2000  # maximum number of elements of a log in the page

_ROW = ".ag-row a[href*='/runs/']"  # both tools use the same grid
_LOG_LINE = ".mlw-log-line"
_CHART = ".mlw-chart[aria-label*='least ']"  # the label is set after the points are drawn
_THEIR_CHART = "svg.main-svg"
_USABLE = "window.did_handshake === true && document.querySelector('h1') !== null"
_THEIR_USABLE = "document.querySelector('a[href*=\"experiments\"]') !== null"
_SHOWN_AT = """([place, near]) => [...document.querySelectorAll(".ag-row")].some(row =>
    Math.abs(row.getAttribute("row-index") - place) < near && row.innerText.trim().length > 10)"""
# Copies rows in the database of the peer, because its API takes about 100 µs for each point.
_LOAD_METRICS = """
import math, sqlite3, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1])
place = client.create_experiment("bench")
run = client.create_run(place, run_name="long").info.run_id
count, points = int(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    client.log_metric(run, "metric-%03d" % number, 0.0, step=-1)
client.set_terminated(run)
store = sqlite3.connect(sys.argv[1])
found = store.execute("SELECT * FROM metrics")
names = [column[0] for column in found.description]
templates = [dict(zip(names, row)) for row in found]
def rows():
    for row in templates:
        for number in range(points):
            row.update(value=math.sin(number / 1000), step=number, timestamp=1763190000000 + number)
            yield tuple(row[name] for name in names)
store.execute("DELETE FROM metrics")
store.executemany("INSERT INTO metrics VALUES (" + ", ".join("?" * len(names)) + ")", rows())
store.commit()
print(place, run)
"""


def _section(title: str) -> Section:
    section = Section(title)
    section.notes.append(f"load average before: {machine.load()}")
    return section


@contextmanager
def _ours(store: Store, browser: Any, folder: Path | None = None) -> Iterator[Visitor]:
    program = store.mlw("ui", "--no-browser", "--port", str(free_port()), folder=folder)
    server = start_ours(program, store.context.scratch / "ui.txt")
    try:
        visitor = Visitor(browser, server)
        visitor.come_in()
        yield visitor
    finally:
        server.stop()


@contextmanager
def _theirs(context: Context, peer: peers.Peer, browser: Any, database: str) -> Iterator[Visitor | None]:
    if not peer.program:
        yield None
        return
    server = start_theirs(context, peer, database)
    try:
        wait_for_port(server)
        yield Visitor(browser, server)
    finally:
        server.stop()


def _beside(peer: peers.Peer, what: str, ours: list[float], theirs: list[float], aim: float | None = None) -> Line:
    """Return a line that compares the seconds of mlw and of the peer."""
    met = None if aim is None else median(ours) <= aim
    aimed = "" if aim is None else f"≤ {ms(aim)}"
    if not theirs:
        return Line(what, time_of(ours), peer.problem and f"{peer.name}: {peer.problem}", "", aimed, met)
    name = f"{peer.name} {peer.version}: {time_of(theirs)}"
    return Line(what, time_of(ours), name, times(median(theirs) / median(ours)), aimed, met)


def _weights(peer: peers.Peer, ours: tuple[Visitor, Any], theirs: tuple[Visitor, Any] | None) -> list[Line]:
    """Report the memory of servers and pages, and the elements in the pages."""
    found = [(visitor.server.memory, *heap(page)) for visitor, page in (ours, *([theirs] if theirs else []))]
    lines = []
    for number, what in enumerate(("memory of the server, all its processes", "memory of the page's JavaScript")):
        beside = f"{peer.name} {peer.version}: {mb(found[1][number])}" if theirs else ""
        lines.append(
            Line(what, mb(found[0][number]), beside, times(found[1][number] / found[0][number]) if theirs else "")
        )
    beside = f"{peer.name} {peer.version}: {found[1][2]:,}" if theirs else ""
    return [*lines, Line("elements in the page", f"{found[0][2]:,}", beside)]


def _stall(what: str, gaps: list[float]) -> Line:
    longest = max(gaps)
    value = f"longest gap between two pictures {ms(longest)}; of 99 % ≤ {ms(quantile(gaps, 0.99))}"
    return Line(what, value, f"{len(gaps)} pictures", "", f"≤ {ms(FRAME_AIM)}", longest <= FRAME_AIM)


# -- first page ----------------------------------------------------------------------------------------


def first_page_section(context: Context) -> Section:
    section = _section("from typing `mlw ui` to a page that can be used")
    project = context.project("ui-first")
    context.call(context.mlw(project, "submit", "hello.py"))
    peer, quiet, database = peers.mlflow(), context.quiet(), str(context.scratch / "first.db")
    with chromium() as browser:
        kept = browser.new_context()  # for repeat visits, with cached scripts
        turns: list[Contestant[dict[str, float]]] = [
            Contestant("again", partial(_first_page, context, project, kept)),
            Contestant("new", lambda: _first_page(context, project, browser.new_context())),
        ]
        if peer.program:
            load_peer(context, peer, database, 1)
            turns.append(Contestant("mlflow", partial(_their_first_page, context, peer, browser, database), 3))
        results = take_turns(turns, context.slow, quiet)
    ours, new = results["again"], results["new"]
    theirs = [one["usable"] for one in results.get("mlflow", [])]
    section.lines += [
        _beside(peer, "a browser that was here before", [one["usable"] for one in ours], theirs, FIRST_AIM),
        _beside(peer, "a browser that never was", [one["usable"] for one in new], [], FIRST_AIM),
        *(Line(f"of that, {what}", time_of([one[name] for one in new])) for name, what in _STAGES.items()),
    ]
    section.notes += [
        f"median and smallest of {context.slow} rounds; each starts a new server, in a project with one run; the"
        f" browser runs already and is given the link at once; {quiet.words()}",
        "usable: the page has its heading, and its socket answers; there: a list of experiments is shown",
        "the stages follow each other and add up; a browser that never was here fetches everything anew",
    ]
    return section


_STAGES = {
    "link": "until the link is printed (Python, click, the sockets)",
    "answer": "until the first byte of the login's answer (NiceGUI, FastAPI, our pages are imported)",
    "page": "until the page's own answer (the login leads to it)",
    "loaded": "until everything that it names is loaded",
    "usable": "until it can be used: the whole",
}


def _first_page(context: Context, project: Path, browser: Any) -> dict[str, float]:
    program = context.mlw(project, "ui", "--no-browser", "--port", str(free_port()))
    server = start_ours(program, context.scratch / "first.txt")
    try:
        page = browser.new_page()
        heard: dict[str, float] = {}
        answered = partial(_note, heard, server)
        page.on("response", lambda answer: answered("answer" if "/login" in answer.url else "page", answer))
        page.on("load", lambda: heard.__setitem__("loaded", time.perf_counter() - server.began))
        page.goto(server.link, wait_until="commit")
        page.wait_for_url(server.address + "/", wait_until="commit")
        page.wait_for_function(_USABLE)
        usable = time.perf_counter() - server.began
        page.close()
        return {"link": server.told, **heard, "usable": usable}
    finally:
        server.stop()


def _note(heard: dict[str, float], server: Server, name: str, answer: Any) -> None:
    if answer.request.is_navigation_request():
        heard.setdefault(name, time.perf_counter() - server.began)


def _their_first_page(context: Context, peer: peers.Peer, browser: Any, database: str) -> dict[str, float]:
    server = start_theirs(context, peer, database)
    try:
        wait_for_port(server)
        page = browser.new_context().new_page()
        page.goto(server.address + "/#/experiments", wait_until="commit")
        page.wait_for_function(_THEIR_USABLE)
        return {"usable": time.perf_counter() - server.began}
    finally:
        server.stop()


# -- many runs -----------------------------------------------------------------------------------------


def many_runs_section(context: Context) -> Section:
    section = _section(f"the list of {RUNS:,} runs")
    store = Store(context, context.scratch / "ui-runs")
    fill(store, RUNS)
    context.call(store.mlw("history", "rebuild"))
    peer, quiet, database = peers.mlflow(), context.quiet(), str(context.scratch / "ui-runs.db")
    if peer.program:
        load_peer(context, peer, database, RUNS)
    with chromium() as browser, _ours(store, browser) as ours, _theirs(context, peer, browser, database) as theirs:
        results = _ready(
            context, quiet, {"mlw": (ours, "/runs", _ROW), "mlflow": (theirs, "/#/experiments/1/runs", _ROW)}
        )
        section.lines.append(
            _beside(peer, "ready: rows are shown", results["mlw"], results.get("mlflow", []), READY_AIM)
        )
        page = ours.ready("/runs", _ROW)[1]
        section.lines += [
            Line("sorted by another column", time_of(_sorts(context, page))),
            Line("to its middle: rows are shown there", time_of(_jumps(context, page))),
            _stall("scrolled by 500 rows", frames(page, partial(_scroll, page))),
        ]
        other = (theirs, theirs.ready("/#/experiments/1/runs", _ROW)[1]) if theirs else None
        section.lines += _weights(peer, (ours, page), other)
    section.notes += [
        f"median of {context.slow} rounds in one browser whose cache is warm; {quiet.words()}",
        "each run has 4 metrics and 2 parameters; our grid holds the rows in sight and scrolls over all runs, theirs"
        " shows 100 runs, and 100 more on demand",
    ]
    shutil.rmtree(store.home)
    return section


def _ready(
    context: Context, quiet: machine.Quiet, asked: dict[str, tuple[Visitor | None, str, str]]
) -> dict[str, list[float]]:
    def once(visitor: Visitor, path: str, sign: str) -> float:
        taken, page = visitor.ready(path, sign)
        page.close()
        return taken

    turns = [Contestant(name, partial(once, who, path, sign)) for name, (who, path, sign) in asked.items() if who]
    return take_turns(turns, context.slow, quiet)


def _sorts(context: Context, page: Any) -> list[float]:
    """Sort by clicking a column header, which reverses the order each time. Return the seconds of each sort."""
    taken = []
    head = page.locator(".ag-header-cell:not([col-id=''])", has_text="Duration").first
    for _ in range(context.slow):
        began = time.perf_counter()
        with page.expect_response(lambda answer: "/api/runs/rows" in answer.url):
            head.click()
        page.wait_for_selector(_ROW)
        taken.append(time.perf_counter() - began)
    return taken


def _jumps(context: Context, page: Any) -> list[float]:
    taken = []
    for number in range(context.slow):
        began = time.perf_counter()
        share = (number + 1) / (context.slow + 1)
        page.evaluate("share => { const box = document.querySelector('.ag-body-viewport');"
                      " box.scrollTop = box.scrollHeight * share; }", share)  # fmt: skip
        page.wait_for_function(_SHOWN_AT, arg=[share * RUNS, RUNS // 20 + 100])
        taken.append(time.perf_counter() - began)
    return taken


def _scroll(page: Any, what: str = ".ag-body-viewport") -> None:
    page.locator(what).first.hover()
    for _ in range(100):
        page.mouse.wheel(0, 200)


# -- a long log ----------------------------------------------------------------------------------------


def long_log_section(context: Context) -> Section:
    section = _section(f"a log of {LINES:,} lines, {LINES * LINE / 1e9:.1f} GB")
    store = Store(context, context.scratch / "ui-log")
    fill(store, 1)
    folder = store.home / "runs" / "bench-00000-x"
    _write_log(folder / "log")
    context.call(store.mlw("history", "rebuild"))
    quiet = context.quiet()
    with chromium() as browser, _ours(store, browser) as ours:
        before = ours.server.memory
        path = "/runs/bench-00000-x?tab=log"
        first, page = ours.ready(path, _LOG_LINE)
        page.close()
        later = _ready(context, quiet, {"mlw": (ours, path, _LOG_LINE)})["mlw"]
        page = ours.ready(path, _LOG_LINE)[1]
        gaps = frames(page, partial(_scroll, page, ".mlw-log"))
        section.lines += [
            Line("ready for the first time: lines are shown", ms(first)),
            Line("ready later", time_of(later), "", "", f"≤ {ms(READY_AIM)}", median(later) <= READY_AIM),
            Line("to a line in the middle", time_of(_go_to_lines(context, page))),
            _stall("scrolled by 1,000 lines", gaps),
            _elements(page),
            Line("memory of the server", mb(ours.server.memory), f"before: {mb(before)}"),
        ]
    section.notes += [f"median of {context.slow} rounds; MLflow has no page for the log of a run; {quiet.words()}"]
    shutil.rmtree(store.home)
    return section


def _write_log(path: Path) -> None:
    with open(path, "wb", buffering=1 << 20) as file:
        for number in range(LINES):
            file.write(b"%-*d\n" % (LINE - 1, number + 1))


def _go_to_lines(context: Context, page: Any) -> list[float]:
    taken = []
    for number in range(context.slow):
        wanted = LINES * (number + 1) // (context.slow + 1)
        began = time.perf_counter()
        field = page.get_by_label("Line", exact=False).first
        field.fill(str(wanted))
        field.press("Enter")
        page.wait_for_selector(f"{_LOG_LINE}[data-line='{wanted}']")
        taken.append(time.perf_counter() - began)
    return taken


def _elements(page: Any) -> Line:
    count = page.locator(_LOG_LINE).count()
    return Line("lines in the page at once", f"{count:,}", "", "", f"≤ {ROWS_AIM:,}", count <= ROWS_AIM)


# -- many long series ----------------------------------------------------------------------------------


def many_series_section(context: Context) -> Section:
    section = _section(f"a run with {METRICS} metrics of {POINTS:,} points")
    store = Store(context, context.scratch / "ui-series")
    fill(store, 1)
    folder = store.home / "runs" / "bench-00000-x"
    _write_points(folder / "metrics")
    context.call(store.mlw("history", "rebuild"))
    peer, quiet, database = peers.mlflow(), context.quiet(), str(context.scratch / "ui-series.db")
    place, run = "", ""
    if peer.program:
        told = context.call(python_of(context, peer, "-c", _LOAD_METRICS, database, str(METRICS), str(POINTS)))
        place, run = told.split()[-2:]
    with chromium() as browser, _ours(store, browser) as ours, _theirs(context, peer, browser, database) as theirs:
        path, other = "/runs/bench-00000-x?tab=metrics", f"/#/experiments/{place}/runs/{run}/model-metrics"
        first, page = ours.ready(path, _CHART)
        page.close()
        results = _ready(context, quiet, {"mlw": (ours, path, _CHART), "mlflow": (theirs, other, _THEIR_CHART)})
        page = ours.ready(path, _CHART)[1]
        gaps = frames(page, partial(_wheel, page))
        section.lines += [
            Line("ready for the first time: a chart is drawn", ms(first), "the points are taken in meanwhile"),
            _beside(peer, "ready later", results["mlw"], results.get("mlflow", []), READY_AIM),
            _stall("scrolled over the charts", gaps),
            *_weights(peer, (ours, page), (theirs, theirs.ready(other, _THEIR_CHART)[1]) if theirs else None),
        ]
    section.notes += [f"median of {context.slow} rounds in one browser whose cache is warm; {quiet.words()}"]
    shutil.rmtree(store.home)
    return section


def _wheel(page: Any) -> None:
    page.mouse.move(700, 600)
    for _ in range(60):
        page.mouse.wheel(0, 150)


def _write_points(folder: Path) -> None:
    """Write as the in-run library does: values logged in one step are adjacent."""
    names = [json.dumps(f"metric-{number:03}") for number in range(METRICS)]
    with open(folder / "1-1", "w", buffering=1 << 20) as file:
        for step in range(POINTS):
            value, when = math.sin(step / 1000), 1763190000 + step / 1000
            for name in names:
                file.write(f'{{"n": {name}, "v": {value!r}, "t": {when:.6f}, "s": {step}}}\n')


Sections = dict[str, Callable[[Context], Section]]
SECTIONS: Sections = {
    "ui-first": first_page_section,
    "ui-runs": many_runs_section,
    "ui-log": long_log_section,
    "ui-series": many_series_section,
}
