"""Lists of runs: filtering, sorting, and columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...errors import UsageError
from ...history import run_counts
from ...history.journal_parsing import strict_json
from ...history.parameters import run_parameters
from ...history.run_query import Query
from ...history.store import History
from ...inferred_state import has_started
from ...model import Run, Status
from ...report.default_columns import common_metrics, varying_parameters
from ...report.run_filters import make_query, require_known_names
from ...report.run_records import ending, gpu_cell, outcome, record
from ...report.value_format import format_value
from ...sanitize import plain

MAX_ROWS = 500  # maximum number of rows per response
_SAMPLED_RUNS = 300  # number of newest runs from which metrics and parameters are offered as columns
_MAX_NAMES = 500  # maximum number of names per kind
_MAX_CHOICES = 500  # maximum number of filter values per kind
_MAX_RECENT = 8  # maximum number of recently finished runs
_MAX_CELL = 500  # maximum number of characters per cell
_MAX_CACHED = 256  # maximum number of cached results
Result = TypeVar("Result")
MAX_SELECTED = 1000  # maximum number of runs selected at once
_DEFAULT_PARAMETERS, _DEFAULT_VALUES = 3, 5  # default columns: parameters; parameters and metrics together
# Maps columns to the sort keys of a query. The sort keys of metrics and parameters are their names.
SORT_KEYS = {
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
_SORT_PREFIXES = ("metrics.", "params.", "min.", "max.", "tags.")


@dataclass(frozen=True)
class RunFilter:
    """Filter, sort order, and page of a run list."""

    project: str | None = None  # project ID; None: all projects
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
    sort: str = ""  # a key of SORT_KEYS, metrics.NAME, or params.NAME; default: newest first
    descending: bool = False
    offset: int = 0
    limit: int = 100
    columns: Sequence[str] = field(default=())  # metrics.NAME, params.NAME

    def query(self, history: History) -> Query:
        """Return the query; raise ``UsageError`` or ``UnknownName`` if the filter is invalid."""
        options = {
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
        query = make_query(self.project, options, history)
        return replace(
            query,
            children=self.children or self.parent is not None,
            sort=_sort_key(self.sort) if self.sort else None,
            descending=self.descending,
            offset=self.offset,
            limit=min(self.limit, MAX_ROWS),
        )


@dataclass(frozen=True)
class Page:
    """Page of matching runs, and their total number."""

    rows: list[dict[str, Any]]
    total: int
    offset: int


def find(history: History, prefix: str) -> Run:
    """Return the run with this ID or name, or the only run whose ID contains ``prefix``."""
    return history.get(prefix)


def rows(history: History, run_filter: RunFilter) -> Page:
    """Return a page of runs; raise ``UsageError`` or ``UnknownName`` if the filter is invalid."""
    query = run_filter.query(history)
    total = _count(history, query)
    if not total:
        _expect_names(history, query)
    runs = history.search(query) if query.offset < total else []
    return Page([row(run, run_filter.columns) for run in runs], total, query.offset)


class _QueryCache:
    """Cache of values derived from all runs, valid until a run changes.

    Lists are read more often than they change.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, int, str, str], Any] = {}

    def get(self, history: History, kind: str, query: Query, compute: Callable[[], Result]) -> Result:
        """Return the cached value, or compute it. The value is shared, so callers must not modify it."""
        unordered = replace(query, sort=None, descending=False, limit=None, offset=0)
        key = (str(history.paths.home), run_counts.newest_generation(history), kind, repr(unordered))
        value: Result | None = self._values.get(key)
        if value is None:
            value = compute()
            if len(self._values) >= _MAX_CACHED:
                self._values.clear()
            self._values[key] = value
        return value


_cache = _QueryCache()


def _count(history: History, query: Query) -> int:
    return _cache.get(history, "count", query, lambda: run_counts.count(history, query))


def row(run: Run, columns: Iterable[str] = ()) -> dict[str, Any]:
    """Return a list row. Strings are sanitized for display."""
    spec = run.spec
    names = list(columns)
    params = run_parameters(run) if names else {}
    return {
        "id": run.id,
        "number": spec.number,
        "name": plain(run.name or "", _MAX_CELL),
        "status": run.status.value,
        "outcome": plain(outcome(run), _MAX_CELL),
        "final": run.status.final,
        "script": plain(spec.entry.name, _MAX_CELL),
        "arguments": plain(" ".join(spec.entry.arguments), _MAX_CELL),
        "target": plain(spec.compute.name, _MAX_CELL),
        "project": plain(spec.project_name, _MAX_CELL),
        "created": spec.created,
        "started": run.started,
        "ended": run.ended,
        "duration": run.duration,
        "gpu": gpu_cell(run.gpu),
        "tags": [plain(tag, _MAX_CELL) for tag in run.tags],
        "note": plain(run.noted.note or "", _MAX_CELL),
        "archived": run.noted.archived,
        "parent": spec.parent,
        "children": len(run.children) or len((spec.sweep or {}).get("children", ())),
        "sweep": spec.sweep is not None,
        "values": {name: _value(run, params, name) for name in names},
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
    return value if is_number and abs(value) < 2**53 else format_value(value, 120)


def _sort_key(column: str) -> str:
    if column in SORT_KEYS:
        return SORT_KEYS[column]
    if column.startswith(_SORT_PREFIXES):
        return column
    raise UsageError(f"cannot sort runs by {column!r}", f"available: {', '.join(SORT_KEYS)}, metrics.NAME, params.NAME")


def check(history: History, run_filter: RunFilter) -> None:
    """Check a filter before it is used; raise ``UsageError`` or ``UnknownName`` if it is invalid."""
    query = run_filter.query(history)
    if query.where is not None and not history.search(replace(query, limit=1, offset=0, sort=None)):
        _expect_names(history, query)


def _expect_names(history: History, query: Query) -> None:
    """Check the condition for unknown names, which may be why no run matches."""
    require_known_names(history, replace(query, sort=None))


def names(history: History, run_filter: RunFilter) -> dict[str, list[str]]:
    """Return the metrics and parameters of the newest matching runs, most frequent first."""
    query = run_filter.query(history)
    return _cache.get(history, "names", query, lambda: _names(history, query))


def _names(history: History, query: Query) -> dict[str, list[str]]:
    newest = _newest(history, query)
    metrics = Counter(name for run in newest for name in run.metrics)
    params = Counter(name for run in newest for name in run_parameters(run))
    return {
        "metrics": [name for name, _ in metrics.most_common(_MAX_NAMES)],
        "params": [name for name, _ in params.most_common(_MAX_NAMES)],
    }


def default_columns(history: History, run_filter: RunFilter) -> tuple[str, ...]:
    """Return a list's default columns.

    Columns whose values are empty or equal in all of the newest runs are omitted.
    """
    unfiltered = replace(run_filter, text="", where="", statuses=(), targets=(), scripts=(), tags=(), since="")
    query = unfiltered.query(history)
    return _cache.get(history, "usual", query, lambda: _default_columns(unfiltered, _newest(history, query)))


def _newest(history: History, query: Query) -> Sequence[Run]:
    return history.search(replace(query, sort=None, offset=0, limit=_SAMPLED_RUNS))


def _default_columns(run_filter: RunFilter, newest: Sequence[Run]) -> tuple[str, ...]:
    table = [row(run) for run in newest]

    def has(*names: str) -> list[str]:
        return [name for name in names if any(record[name] for record in table)]

    parameters = [f"params.{name}" for name in varying_parameters(newest)[:_DEFAULT_PARAMETERS]]
    rest = (
        {name for run in newest for name in run_parameters(run)} if parameters and run_filter.parent is None else set()
    )
    metrics = [f"metrics.{name}" for name in common_metrics(newest)]
    projects = ["project"] if run_filter.project is None and len({record["project"] for record in table}) > 1 else []
    return (
        "status",
        *projects,
        *(
            () if run_filter.parent and parameters else has("name")
        ),  # names of a sweep's children repeat the varied parameters
        *(parameters or has("arguments")),
        *metrics[: max(2, min(4, _DEFAULT_VALUES - len(parameters)))],
        *("started", "duration", "script", "target"),
        *(has("arguments") if len(rest) > len(parameters) else ()),
        *has("tags", "gpu"),
    )


def select_all(history: History, run_filter: RunFilter) -> list[dict[str, Any]]:
    """Return the first matching runs, with the fields needed for actions on selected runs."""
    runs = history.search(replace(run_filter.query(history), offset=0, limit=MAX_SELECTED))
    keys = ("id", "status", "final", "archived", "sweep", "children")
    return [{key: record[key] for key in keys} for record in map(row, runs)]


def statuses(history: History, run_filter: RunFilter) -> dict[str, int]:
    """Count the matching runs by status, ignoring the status filter."""
    counts = _values(history, replace(run_filter, statuses=()).query(history), "status")
    return {status.value: counts.get(status.value, 0) for status in Status}


@dataclass(frozen=True)
class FilterChoices:
    """Available filter values and the number of runs for each."""

    statuses: dict[str, int]
    scripts: dict[str, int]
    targets: dict[str, int]
    tags: dict[str, int]


def filter_choices(history: History, project: str | None, archived: bool, children: bool) -> FilterChoices:
    query = Query(project, archived=archived, children=children)
    counts = {name: _values(history, query, name) for name in ("status", "script", "target", "tags")}
    statuses = {status.value: counts["status"].get(status.value, 0) for status in Status}
    return FilterChoices(statuses, *(_most_frequent(counts[name]) for name in ("script", "target", "tags")))


def _values(history: History, query: Query, name: str) -> dict[str, int]:
    return _cache.get(history, f"each {name}", query, lambda: run_counts.values(history, query, name))


def _most_frequent(counts: dict[str, int]) -> dict[str, int]:
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_CHOICES]
    return dict(frequent)


def generation(history: History) -> int:
    """Return a number that changes when any run changes."""
    return run_counts.generation(history)


def run_record(history: History, prefix: str) -> dict[str, Any]:
    """Return the complete record of a run, as ``mlw history info -o json`` prints it."""
    facts: dict[str, Any] = strict_json(record(history.get(prefix)))
    return facts


@dataclass(frozen=True)
class Jobs:
    """Active and recently finished runs."""

    running: list[dict[str, Any]]
    waiting: int  # queued child runs of sweeps
    recent: list[dict[str, Any]]


def jobs(history: History, project: str | None) -> Jobs:
    unfinished = history.unfinished(project)
    sweeps = {run.id for run in unfinished if run.spec.sweep}
    shown_runs = [run for run in unfinished if has_started(run) or run.spec.parent not in sweeps]
    ended = Query(
        project, children=False, statuses=[status.value for status in Status if status.final], limit=_MAX_RECENT
    )
    return Jobs(
        [{**_job(run), "latest": _latest(run)} for run in shown_runs[:100]],
        len(unfinished) - len(shown_runs),
        [_job(run) for run in history.search(ended)],
    )


def _job(run: Run) -> dict[str, Any]:
    return {**row(run), "ending": plain(ending(run) or "", 200)}


def _latest(run: Run) -> str:
    """Return the current value of the first logged metric, which is usually the most important one."""
    name = next(iter(common_metrics([run])), None)
    if name is None:
        return ""
    return f"{plain(name, 40)} {format_value(run.metrics.get(name), 20)}"
