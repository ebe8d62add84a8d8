"""Convert saved views, which contain options of ``mlw history list``, to views of the runs page and back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from ...errors import UnknownName, UsageError
from ...history.expression import parse_sort
from ...report.run_filters import includes_children, parse_status
from ...saved_views import View as SavedView
from ..queries.runs import SORT_KEYS
from .run_filter import RUN_COLUMNS, UNSORTED, View

Names = Mapping[str, Sequence[str]]  # names of the metrics and parameters, by the keys "metrics" and "params"

_SORT_COLUMNS = {sort: column for column, sort in SORT_KEYS.items()} | {
    "script": "script",
    "created_utc": "created",
    "children": "children",
}
_RECORD_KEYS = {  # column of the page → key of the record, which is the column of the command
    **{key: key for key in RUN_COLUMNS},
    "id": "run_id",
    "number": "run_number",
    "script": "script_name",
    "created": "created_utc",
    "started": "start_time_utc",
    "note": "description",
}
_VALUE_PREFIXES = ("metrics.", "params.")
# Settings of the page and the saved settings that they become. Child runs depend on several settings.
_SAVED_NAMES = {
    **{name: name for name in ("text", "where", "status", "target", "script", "tag", "since", "parent", "archived")},
    "sort": "sort",
    "column": "columns",
    "chart": "chart",
}


def to_page_view(saved: SavedView, names: Names) -> View:
    """Return the view of the page that shows the same runs. Settings that the page lacks are left out."""
    sort = _sort_column(saved.sort, names)
    key = sort.removeprefix("-")
    column = tuple(dict.fromkeys(found for _, found in _columns(saved.columns, names) if found not in (None, "id")))
    column = (*column, key) if column and key not in ("", "id", *column) else column  # the grid sorts by its columns
    is_implied = includes_children(asdict(saved)) and not saved.parent and not saved.top_level
    return View(
        text=" ".join(saved.text),
        where=saved.where[0] if len(saved.where) == 1 else " and ".join(f"({text})" for text in saved.where),
        status=tuple(map(_status, saved.status)),
        target=saved.target,
        script=saved.script,
        tag=saved.tag,
        since=saved.since or "",
        parent=saved.parent or "",
        children=saved.children or is_implied,
        archived=saved.archived,
        sort=sort,
        column=column,
        chart=saved.chart or View.chart,
    )


def to_saved_view(view: View, existing: SavedView, names: Names) -> SavedView:
    """Return the settings to save. What has not changed, and what the page lacks, remains as in ``existing``."""
    before = to_page_view(existing, names)
    converted = _convert(view, existing, names)
    unchanged = {
        saved: getattr(existing, saved)
        for name, saved in _SAVED_NAMES.items()
        if getattr(view, name) == getattr(before, name)
    }
    # The command has either groups or columns.
    group = existing.group if "columns" in unchanged or converted.columns is None else None
    merged = replace(converted, limit=existing.limit, group=group, **unchanged)
    is_excluded = not view.children and not merged.parent and includes_children(asdict(merged))
    return replace(merged, top_level=is_excluded)


def command_line_only(saved: SavedView, names: Names) -> str:
    """Return the options of a view that the page does not apply."""
    columns = ",".join(name for name, column in _columns(saved.columns, names) if column is None)
    sort = saved.sort if not _sort_column(saved.sort, names) else None
    return shlex.join(SavedView(sort=sort, group=saved.group, columns=columns or None, limit=saved.limit).arguments())


def _convert(view: View, existing: SavedView, names: Names) -> SavedView:
    sign, key = ("-" if view.sort.startswith("-") else ""), view.sort.removeprefix("-")
    lacking = [name for name, column in _columns(existing.columns, names) if column is None]
    columns = [_RECORD_KEYS.get(name, name.removeprefix("metrics.")) for name in view.column if "," not in name]
    return SavedView(
        text=tuple(view.text.split()),
        where=(view.where,) if view.where.strip() else (),
        status=view.status,
        target=view.target,
        script=view.script,
        tag=view.tag,
        since=view.since.strip() or None,
        parent=view.parent.strip() or None,
        children=view.children,
        archived=view.archived,
        sort=f"{sign}{SORT_KEYS.get(key, key)}" if key else None,
        columns=",".join(dict.fromkeys(("run_id", *columns, *lacking))) if view.column else None,
        chart=view.chart if view.chart != View.chart else None,
    )


def _status(name: str) -> str:
    try:
        return parse_status(name)
    except UnknownName:
        return name  # the page reports it


def _sort_column(sort: str | None, names: Names) -> str:
    """Return the column of the page, with a leading ``-`` for descending order, or "" if there is none."""
    try:
        name, is_descending = parse_sort(sort or "")
    except UsageError:
        return ""
    key = _SORT_COLUMNS.get(name) or _value_column(name, names)
    return f"{'-' if is_descending else ''}{key}" if key and key not in UNSORTED else ""


def _columns(columns: str | None, names: Names) -> Iterator[tuple[str, str | None]]:
    """Iterate over the columns of the command and those of the page, or None."""
    pages = {_normalize(label): key for key, (label, _, _) in RUN_COLUMNS.items()}
    pages |= {_normalize(record): key for key, record in _RECORD_KEYS.items()}
    for name in filter(None, (part.strip() for part in (columns or "").split(","))):
        yield name, pages.get(_normalize(name)) or _value_column(name, names)


def _value_column(name: str, names: Names) -> str | None:
    """Return the column of a metric or parameter: by its exact name, or else by its normalized name."""
    kind, _, rest = name.partition(".")
    kinds = (kind,) if f"{kind}." in _VALUE_PREFIXES else ("metrics", "params")
    wanted = rest if len(kinds) == 1 else name
    for normalize in (str, _normalize):
        for kind in kinds:
            for known in names[kind]:
                if normalize(known) == normalize(wanted):
                    return f"{kind}.{known}"
    return name if len(kinds) == 1 and rest else None


def _normalize(name: str) -> str:
    return name.lower().replace("_", " ").replace("-", " ")
