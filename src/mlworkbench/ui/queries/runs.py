"""Runs as lists show them: which ones, in which order, and in which columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...errors import UsageError
from ...history import overview
from ...history.parameters import of_run
from ...history.query import Query
from ...history.store import History
from ...model import Run, Status
from ...report.plain import plain
from ...report.records import ending, gpu_word, outcome, record
from ...report.telling import common_metrics, varying_parameters
from ...report.values import shown
from ...report.wishes import expect, make_query

LIMIT = 500  # rows of one answer
_LOOKED_AT = 300  # runs whose metrics and parameters are offered as columns
_NAMED = 500  # names of one kind
_OFFERED = 500  # values of one kind that can be filtered for
_LATELY = 8  # runs that ended a short while ago
_WORDS = 500  # characters of a cell
_FILTERS = 256  # about which something is remembered
Answer = TypeVar("Answer")
CHOSEN = 1000  # runs that are chosen at once
_PARAMETERS, _VALUES = 3, 5  # columns of a list by itself: parameters, and metrics with them
# What a column is called here → what a query sorts by. Metrics and parameters go by their own names.
SORTED = {
    "id": "run_id",
    "number": "run_number",
    "name": "name",
    "status": "status",
    "script": "script_name",
    "target": "target",
    "project": "experiment_id",
    "created": "created",
    "started": "start_time_utc",
    "duration": "duration",
    "gpu": "gpu",
    "tags": "tags",
    "note": "note",
}
_OURS = ("metrics.", "params.", "min.", "max.", "tags.")


@dataclass(frozen=True)
class Wishes:
    """Which runs a list is to show, and how."""

    project: str | None = None  # its id; None: of all projects
    text: str = ""
    where: str = ""
    statuses: Sequence[str] = ()
    targets: Sequence[str] = ()
    scripts: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: str = ""
    parent: str | None = None
    children: bool = False
    archived: bool = False
    sort: str = ""  # a key of SORTED, metrics.NAME or params.NAME; newest first without
    descending: bool = False
    offset: int = 0
    limit: int = 100
    columns: Sequence[str] = field(default=())  # metrics.NAME, params.NAME

    def query(self, history: History) -> Query:
        """``UsageError`` or ``UnknownName`` where it makes no sense."""
        words = {
            "where": [self.where] if self.where.strip() else [],
            "text": self.text.split(),
            "status": self.statuses,
            "target": self.targets,
            "script": self.scripts,
            "tag": self.tags,
            "since": self.since.strip() or None,
            "parent": self.parent,
            "archived": self.archived,
        }
        asked = make_query(self.project, words, history)
        return replace(
            asked,
            children=self.children or self.parent is not None,
            sort=_sorted_by(self.sort) if self.sort else None,
            descending=self.descending,
            offset=self.offset,
            limit=min(self.limit, LIMIT),
        )


@dataclass(frozen=True)
class Page:
    """Some of the runs that fit, and how many there are."""

    rows: list[dict[str, Any]]
    total: int
    offset: int


def find(history: History, prefix: str) -> Run:
    """The run of this id, or the only one whose id begins so or whose name it is."""
    return history.get(prefix)


def rows(history: History, wishes: Wishes) -> Page:
    """``UsageError`` or ``UnknownName`` where the filter makes no sense."""
    query = wishes.query(history)
    total = _count(history, query)
    if not total:
        _expect_names(history, query)
    found = history.search(query) if query.offset < total else []
    return Page([row(run, wishes.columns) for run in found], total, query.offset)


class _Remembered:
    """What was worked out from all runs, until somebody writes: a list is looked at more often than it changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str, str], Any] = {}

    def of(self, history: History, what: str, query: Query, work: Callable[[], Answer]) -> Answer:
        """``work()``, or what it was. It is shared: nobody may change it."""
        bare = replace(query, sort=None, descending=False, limit=None, offset=0)
        key = (str(history.paths.home), overview.newest_generation(history), what, repr(bare))
        known: Answer | None = self._known.get(key)
        if known is None:
            known = work()
            if len(self._known) >= _FILTERS:
                self._known.clear()
            self._known[key] = known
        return known


_remembered = _Remembered()


def _count(history: History, query: Query) -> int:
    return _remembered.of(history, "count", query, lambda: overview.count(history, query))


def row(run: Run, columns: Iterable[str] = ()) -> dict[str, Any]:
    """One line of a list. Texts are fit to be shown, and nothing else."""
    spec = run.spec
    wanted = list(columns)
    params = of_run(run) if wanted else {}
    return {
        "id": run.id,
        "number": spec.number,
        "name": plain(run.name or "", _WORDS),
        "status": run.status.value,
        "outcome": plain(outcome(run), _WORDS),
        "final": run.status.final,
        "script": plain(spec.entry.name, _WORDS),
        "arguments": plain(" ".join(spec.entry.arguments), _WORDS),
        "target": plain(spec.compute.name, _WORDS),
        "project": plain(spec.project_name, _WORDS),
        "created": spec.created,
        "started": run.started,
        "ended": run.ended,
        "duration": run.duration,
        "gpu": gpu_word(run.gpu),
        "tags": [plain(tag, _WORDS) for tag in run.tags],
        "note": plain(run.noted.note or "", _WORDS),
        "archived": run.noted.archived,
        "parent": spec.parent,
        "children": len(run.children) or len((spec.sweep or {}).get("children", ())),
        "sweep": spec.sweep is not None,
        "values": {name: _value(run, params, name) for name in wanted},
    }


def _value(run: Run, params: dict[str, Any], column: str) -> float | int | str | None:
    kind, _, name = column.partition(".")
    if kind == "params":
        value = params.get(name, params.get(name.replace("_", "-")))
        value = True if value is None and name in params else value
    elif kind in ("min", "max"):
        span = run.spans.get(name)
        value = (span.least if kind == "min" else span.most) if span else run.metrics.get(name)
    else:
        value = run.metrics.get(name)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number and abs(value) < 2**53 else shown(value, 120)


def _sorted_by(column: str) -> str:
    if column in SORTED:
        return SORTED[column]
    if column.startswith(_OURS):
        return column
    raise UsageError(f"cannot sort runs by {column!r}", f"available: {', '.join(SORTED)}, metrics.NAME, params.NAME")


def check(history: History, wishes: Wishes) -> None:
    """What is wrong with a filter before it is used: ``UsageError`` or ``UnknownName``."""
    query = wishes.query(history)
    if query.where is not None and not history.search(replace(query, limit=1, offset=0, sort=None)):
        _expect_names(history, query)


def _expect_names(history: History, query: Query) -> None:
    """No run fits: maybe because a name in the condition was mistyped."""
    expect(history, replace(query, sort=None))


def names(history: History, wishes: Wishes) -> dict[str, list[str]]:
    """The metrics and parameters of the newest runs that fit, the most frequent ones first."""
    query = wishes.query(history)
    return _remembered.of(history, "names", query, lambda: _names(history, query))


def _names(history: History, query: Query) -> dict[str, list[str]]:
    newest = _newest(history, query)
    metrics = Counter(name for run in newest for name in run.metrics)
    params = Counter(name for run in newest for name in of_run(run))
    return {
        "metrics": [name for name, _ in metrics.most_common(_NAMED)],
        "params": [name for name, _ in params.most_common(_NAMED)],
    }


def usual(history: History, wishes: Wishes) -> tuple[str, ...]:
    """The columns that a list has by itself: what is the same or missing in all of the newest runs is left out."""
    bare = replace(wishes, text="", where="", statuses=(), targets=(), scripts=(), tags=(), since="")
    query = bare.query(history)
    return _remembered.of(history, "usual", query, lambda: _usual(bare, _newest(history, query)))


def _newest(history: History, query: Query) -> Sequence[Run]:
    return history.search(replace(query, sort=None, offset=0, limit=_LOOKED_AT))


def _usual(wishes: Wishes, newest: Sequence[Run]) -> tuple[str, ...]:
    lines = [row(run) for run in newest]

    def has(*names: str) -> list[str]:
        return [name for name in names if any(one[name] for one in lines)]

    given = [f"params.{name}" for name in varying_parameters(newest)[:_PARAMETERS]]
    rest = {name for run in newest for name in of_run(run)} if given and wishes.parent is None else set()
    measured = [f"metrics.{name}" for name in common_metrics(newest)]
    projects = ["project"] if wishes.project is None and len({one["project"] for one in lines}) > 1 else []
    return (
        "status",
        *projects,
        *(() if wishes.parent and given else has("name")),  # the names of a sweep's children say what was varied
        *(given or has("arguments")),
        *measured[: max(2, min(4, _VALUES - len(given)))],
        *("started", "duration", "script", "target"),
        *(has("arguments") if len(rest) > len(given) else ()),
        *has("tags", "gpu"),
    )


def chosen(history: History, wishes: Wishes) -> list[dict[str, Any]]:
    """The first of the runs that fit, as whoever does something with them needs them."""
    found = history.search(replace(wishes.query(history), offset=0, limit=CHOSEN))
    keys = ("id", "status", "final", "archived", "sweep", "children")
    return [{key: line[key] for key in keys} for line in map(row, found)]


def statuses(history: History, wishes: Wishes) -> dict[str, int]:
    """How many runs of each status fit, whatever statuses are wished for."""
    counted = _values(history, replace(wishes, statuses=()).query(history), "status")
    return {status.value: counted.get(status.value, 0) for status in Status}


@dataclass(frozen=True)
class Offered:
    """What there is to filter for, with how many runs each."""

    statuses: dict[str, int]
    scripts: dict[str, int]
    targets: dict[str, int]
    tags: dict[str, int]


def offered(history: History, project: str | None, archived: bool, children: bool) -> Offered:
    query = Query(project, archived=archived, children=children)
    found = {name: _values(history, query, name) for name in ("status", "script", "target", "tags")}
    statuses = {status.value: found["status"].get(status.value, 0) for status in Status}
    return Offered(statuses, *(_most(found[name]) for name in ("script", "target", "tags")))


def _values(history: History, query: Query, name: str) -> dict[str, int]:
    return _remembered.of(history, f"each {name}", query, lambda: overview.values(history, query, name))


def _most(counted: dict[str, int]) -> dict[str, int]:
    frequent = sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:_OFFERED]
    return dict(frequent)


def generation(history: History) -> int:
    """Another number means that some run was written about."""
    return overview.generation(history)


def one(history: History, prefix: str) -> dict[str, Any]:
    """All that is known of a run, as ``mlw history info -o json`` has it."""
    return record(history.get(prefix))


@dataclass(frozen=True)
class Jobs:
    """What goes on, and what ended a short while ago."""

    going: list[dict[str, Any]]
    waiting: int  # children of sweeps whose turn has not come
    lately: list[dict[str, Any]]


def jobs(history: History, project: str | None) -> Jobs:
    unfinished = history.unfinished(project)
    sweeps = {run.id for run in unfinished if run.spec.sweep}
    shown_ones = [run for run in unfinished if run.accepted is not None or run.spec.parent not in sweeps]
    ended = Query(project, children=False, statuses=[one.value for one in Status if one.final], limit=_LATELY)
    return Jobs(
        [{**_job(run), "latest": _latest(run)} for run in shown_ones[:100]],
        len(unfinished) - len(shown_ones),
        [_job(run) for run in history.search(ended)],
    )


def _job(run: Run) -> dict[str, Any]:
    return {**row(run), "ending": plain(ending(run) or "", 200)}


def _latest(run: Run) -> str:
    """The metric that was told first, which is mostly the one that matters, as it stands now."""
    name = next(iter(common_metrics([run])), None)
    if name is None:
        return ""
    return f"{plain(name, 40)} {shown(run.metrics.get(name), 20)}"
