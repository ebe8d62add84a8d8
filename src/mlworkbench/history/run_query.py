"""Select and sort runs by translating queries to SQL on the narrow ``runs`` table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from .expression import Compare, Condition, Join, Not
from .rows import HIDDEN_UNTRACKED, MICRO, sqlite_text

# Names of run fields. Any other name is a parameter or a metric. Sorting by ``tags`` uses the first tag.
_RUN_COLUMNS = {
    "run_id": "id",
    "run_number": "number",
    "status": "status COLLATE NOCASE",
    "script_name": "script",
    "script": "script",
    "target": "target",
    "experiment_id": "project",
    "created": f"created * 1.0 / {MICRO}",
    "created_utc": f"strftime('%Y-%m-%dT%H:%M:%f', created / {MICRO}.0, 'unixepoch')",
    "start_time_utc": "strftime('%Y-%m-%dT%H:%M:%f', json_extract(facts, '$.started'), 'unixepoch')",
    "end_time_utc": "strftime('%Y-%m-%dT%H:%M:%f', json_extract(facts, '$.ended'), 'unixepoch')",
    "name": "json_extract(facts, '$.name')",
    "ending": "json_extract(facts, '$.ending')",
    "exit_code": "json_extract(facts, '$.exit_code')",
    "duration": "json_extract(facts, '$.duration')",
    "gpu": "json_extract(facts, '$.gpu')",
    "parent_run_id": "nullif(parent, '')",
    "tags": "json_extract(facts, '$.tags[0]')",
}
# Run fields that apply only if the script has no metric or parameter with that name.
_FALLBACK_COLUMNS = {"note": "json_extract(facts, '$.note')", "children": "json_extract(facts, '$.children')"}
RUN_FIELDS = frozenset({*_RUN_COLUMNS, *_FALLBACK_COLUMNS, "tags"})
_METRICS, _PARAMETERS, _TAGS = "metrics.", "params.", "tags."
_SPAN_INDEX = {"min.": 0, "max.": 1}  # index of the minimum and maximum in a stored span
_COLUMNS = {"script": "script", "target": "target", "status": "status", "project": "project"}
_ALL_TAGS = "json_each(facts, '$.tags')"


@dataclass(frozen=True)
class Query:
    """The filters and order for a list of runs; newest first by default."""

    project: str | None = None
    hidden: bool = False  # include archived and untracked runs
    archived: bool = False  # include archived runs
    children: bool = True  # include runs of sweeps and nested runs
    inside: bool = True  # include nested runs, which have no folder of their own
    parent: str | None = None
    texts: Sequence[str] = ()  # each must occur in ID, name, script, arguments, tags, or note
    statuses: Sequence[str] = ()
    targets: Sequence[str] = ()
    scripts: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: float | None = None
    where: Condition | None = None
    sort: str | None = None
    descending: bool = False
    oldest: bool = False  # oldest runs first; with ``sort``, only among equal values
    limit: int | None = None
    offset: int = 0  # number of matching runs to skip


class _SqlBuilder:
    """A builder for SQL expressions and their bound values."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def bind(self, value: Any) -> str:
        self.values.append(sqlite_text(value) if isinstance(value, str) else value)
        return f"?{len(self.values)}"

    # -- filters -----------------------------------------------------------------------------------

    def where_clause(self, query: Query) -> str:
        visible = f"hidden & {HIDDEN_UNTRACKED} = 0" if query.archived else "hidden = 0"
        parts = [] if query.hidden else [visible]
        parts += [] if query.children else ["parent = ''"]
        parts += [] if query.inside else ["instr(id, '.') = 0"]
        if query.parent is not None:
            parts.append(f"parent = {self.bind(query.parent)}")
        for text in query.texts:
            parts.append(f"instr(json_extract(facts, '$.words'), {self.bind(text.casefold())})")
        if query.project is not None:
            parts.append(f"project = {self.bind(query.project)}")
        if query.since is not None:
            parts.append(f"created >= {self.bind(int(query.since * MICRO))}")
        for column, values in (("status", query.statuses), ("target", query.targets)):
            if values:
                parts.append(f"{column} IN ({', '.join(self.bind(value) for value in values)})")
        if query.scripts:
            parts.append("(" + " OR ".join(self._script(value) for value in query.scripts) + ")")
        for tag in query.tags:
            key = self.bind(tag)  # ``team`` also matches ``team=vision``
            matches = f"value = {key} OR substr(value, 1, length({key}) + 1) = {key} || '='"
            parts.append(f"EXISTS (SELECT 1 FROM {_ALL_TAGS} WHERE {matches})")
        if query.where is not None:
            parts.append(self.condition(query.where))
        return " AND ".join(f"({part})" for part in parts) or "1"

    def _script(self, script: str) -> str:
        """Match this path, or a script with this name in any folder."""
        end = self.bind("/" + script)
        return f"script = {self.bind(script)} OR substr(script, -length({end})) = {end}"

    # -- conditions --------------------------------------------------------------------------------

    def condition(self, node: Condition, negated: bool = False) -> str:
        """Return the SQL for a condition. If ``negated``, unknown values stay null instead of false."""
        if isinstance(node, Compare):
            return self._compare_tags(node) if node.name == "tags" else self._compare(node, negated)
        if isinstance(node, Not):
            return f"NOT ({self.condition(node.inner, True)})"
        assert isinstance(node, Join)
        return "(" + f" {node.word.upper()} ".join(self.condition(part, negated) for part in node.parts) + ")"

    def _compare(self, node: Compare, negated: bool) -> str:
        """Return the SQL for a comparison. A run without a value of this type does not match, even if negated."""
        is_text = isinstance(node.value, str)
        value = self.value_expression(node.name, is_text)
        # A collation inside parentheses has no effect, so repeat it outside.
        collation = " COLLATE NOCASE" if node.name == "status" else ""
        operand = self.bind(node.value)
        is_substring = node.sign == "~"  # case-insensitive substring match
        compared = (
            f"instr(lower({value}), lower({operand})) > 0"
            if is_substring
            else f"({value}){collation} {node.sign} {operand}"
        )
        kinds = "('text')" if is_text else "('integer', 'real')"
        has_kind = f"typeof({value}) IN {kinds}"
        # Extracting from JSON is slow. If null is not needed, rows that do not match extract the value only once.
        return f"CASE WHEN {has_kind} THEN {compared} END" if negated else f"({compared} AND {has_kind})"

    def _compare_tags(self, node: Compare) -> str:
        """Match tags: ``=`` if any is equal, ``!=`` if none is, and ``~`` if any contains the string."""
        if node.sign == "~":
            operand = self.bind(str(node.value))
            return f"EXISTS (SELECT 1 FROM {_ALL_TAGS} WHERE instr(lower(value), lower({operand})))"
        sign, operand = ("=", "NOT EXISTS") if node.sign == "!=" else (node.sign, "EXISTS")
        return f"{operand} (SELECT 1 FROM {_ALL_TAGS} WHERE value {sign} {self.bind(str(node.value))})"

    def value_expression(self, name: str, text: bool) -> str:
        """Return the SQL for a name: a run field, a metric, a parameter, or a tag."""
        if name in _RUN_COLUMNS:
            return _RUN_COLUMNS[name]
        if name.startswith(_METRICS):
            return self._metric(name[len(_METRICS) :])
        if name.startswith(_PARAMETERS):
            return self._parameter(name[len(_PARAMETERS) :], text)
        if name.startswith(_TAGS):
            return self._tag(name[len(_TAGS) :], text)
        if name[:4] in _SPAN_INDEX:
            return self._span(name[4:], _SPAN_INDEX[name[:4]])
        fallback = f", {_FALLBACK_COLUMNS[name]}" if name in _FALLBACK_COLUMNS else ""
        # The parameter takes precedence: for a name such as ``lr``, users rarely mean the metric.
        return f"coalesce({self._parameter(name, text)}, {self._metric(name)}{fallback})"

    def sort_expression(self, name: str) -> str:
        """Return the SQL expression to sort by: the number if there is one, otherwise the text."""
        number, text = self.value_expression(name, False), self.value_expression(name, True)
        return number if number == text else f"coalesce({number}, {text})"

    def _metric(self, name: str) -> str:
        if _is_json_path_safe(name):
            return f"json_extract(metrics, {self.bind(_json_path('$', name))})"
        return f"(SELECT value FROM json_each(metrics) WHERE key = {self.bind(name)})"

    def _span(self, name: str, nth: int) -> str:
        """Return SQL for the minimum or maximum of a series, or for a single value itself."""
        if _is_json_path_safe(name):
            expression = f"json_extract(facts, {self.bind(_json_path('$.spans', name) + f'[{nth}]')})"
        else:
            select = f"SELECT json_extract(value, '$[{nth}]') FROM json_each(facts, '$.spans')"
            expression = f"({select} WHERE key = {self.bind(name)})"
        return f"coalesce({expression}, {self._metric(name)})"

    def _parameter(self, name: str, text: bool) -> str:
        """Return SQL for a parameter, spelled with ``-`` or ``_``.

        ``batch_size`` also matches ``--batch-size``, and vice versa.
        """
        item = f"[{int(text)}]"
        select = f"SELECT json_extract(value, '${item}') FROM json_each(facts, '$.params')"
        if not _is_json_path_safe(name):
            return f"({select} WHERE key = {self.bind(name)})"
        spellings = dict.fromkeys((name, name.replace("-", "_"), name.replace("_", "-")))
        expressions = [
            f"json_extract(facts, {self.bind(_json_path('$.params', spelling) + item)})" for spelling in spellings
        ]
        normalized = name.replace("-", "_")
        if normalized.count("_") > 1:  # a name may contain both "-" and "_"
            expressions.append(f"({select} WHERE replace(key, '-', '_') = {self.bind(normalized)})")
        return f"coalesce({', '.join(expressions)})" if len(expressions) > 1 else expressions[0]

    def _tag(self, name: str, text: bool) -> str:
        """Return SQL for the value of a tag: ``vision`` in ``team=vision`` or ``team:vision``.

        A tag without a value is true.
        """
        key = self.bind(name)
        rest = f"substr(value, length({key}) + 2)"
        begins = f"substr(value, 1, length({key}) + 1) IN ({key} || '=', {key} || ':')"
        if text:
            return f"(SELECT {rest} FROM {_ALL_TAGS} WHERE {begins})"
        is_number = f"json_type(CASE WHEN json_valid({rest}) THEN {rest} END) IN ('integer', 'real')"
        number = f"CASE WHEN value = {key} THEN 1 WHEN {is_number} THEN CAST({rest} AS NUMERIC) END"
        return f"(SELECT {number} FROM {_ALL_TAGS} WHERE value = {key} OR {begins})"


def _is_json_path_safe(name: str) -> bool:
    return bool(name) and name.isprintable() and '"' not in name and "\\" not in name


def _json_path(start: str, name: str) -> str:
    return f'{start}."{name}"'


def find_runs(connection: apsw.Connection, query: Query) -> list[int]:
    """Return the row numbers of matching runs, in order. The caller must have verified all rows."""
    sql = _SqlBuilder()
    direction = "ASC" if query.oldest else "DESC"
    where, order = sql.where_clause(query), f"created {direction}, number {direction}, seq {direction}"
    if query.sort is not None:
        value = sql.sort_expression(query.sort)
        order = f"{value} {'DESC' if query.descending else 'ASC'} NULLS LAST, {order}"
    limit = sql.bind(-1 if query.limit is None else query.limit)
    statement = (
        f"SELECT seq FROM runs NOT INDEXED WHERE {where} ORDER BY {order} LIMIT {limit} OFFSET {sql.bind(query.offset)}"
    )
    return [seq for (seq,) in connection.execute(statement, sql.values)]


def count_runs(connection: apsw.Connection, query: Query) -> int:
    """Return the number of matching runs."""
    sql = _SqlBuilder()
    statement = f"SELECT count(*) FROM runs NOT INDEXED WHERE {sql.where_clause(query)}"
    return int(next(iter(connection.execute(statement, sql.values)))[0])


def count_values(connection: apsw.Connection, query: Query, name: str) -> dict[str, int]:
    """Count matching runs by ``script``, ``target``, ``status``, ``project``, or ``tags``."""
    sql = _SqlBuilder()
    where = sql.where_clause(query)
    statement = (
        f"SELECT value, count(*) FROM (SELECT * FROM runs NOT INDEXED WHERE {where}), {_ALL_TAGS} GROUP BY value"
        if name == "tags"
        else f"SELECT {_COLUMNS[name]}, count(*) FROM runs NOT INDEXED WHERE {where} GROUP BY 1"
    )
    return {str(value): count for value, count in connection.execute(statement, sql.values)}
