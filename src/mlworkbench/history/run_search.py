"""Select, sort, and count the runs that match a query."""

from __future__ import annotations

import apsw

from .query_sql import ALL_TAGS, Check, SqlBuilder
from .run_query import Query

_COLUMNS = {"script": "script", "target": "target", "status": "status", "project": "project"}


def find_runs(connection: apsw.Connection, query: Query, check: Check) -> list[int]:
    """Return the row numbers of matching runs, in order. The caller must have verified all rows."""
    if query.sort is not None and query.limit is not None:
        fast = _walk_sorted(connection, query, check)
        if fast is not None:
            return fast
    sql = SqlBuilder(connection)
    source = sql.source(query)
    order = _default_order(query)
    if query.sort is not None:
        order = f"{sql.sort_expression(query.sort)} {'DESC' if query.descending else 'ASC'} NULLS LAST, {order}"
    return [seq for (seq,) in sql.run(check, f"SELECT seq {source} ORDER BY {order} {_limit(sql, query)}")]


def _walk_sorted(connection: apsw.Connection, query: Query, check: Check) -> list[int] | None:
    """Return the first runs in the order of a metric by reading its numbers in that order.

    Return None if other runs follow, if the order depends on other values, or if few runs match anyway.
    """
    sql = SqlBuilder(connection)
    name = sql.only_number(query.sort or "")
    if name is None or name.texts or sql.is_selective(query):
        return None
    order = f"sorted_number {'DESC' if query.descending else 'ASC'}, {_default_order(query)}"
    source = sql.source_by_number(query, name)
    seqs = sql.run(check, f"SELECT seq {source} ORDER BY {order} {_limit(sql, query)}")
    return [seq for (seq,) in seqs] if len(seqs) == query.limit else None


def _default_order(query: Query) -> str:
    direction = "ASC" if query.oldest else "DESC"
    return f"created {direction}, runs.number {direction}, seq {direction}"


def _limit(sql: SqlBuilder, query: Query) -> str:
    return f"LIMIT {sql.bind(-1 if query.limit is None else query.limit)} OFFSET {sql.bind(query.offset)}"


def exists(connection: apsw.Connection, query: Query, check: Check) -> bool:
    """Return whether a run matches."""
    sql = SqlBuilder(connection)
    return bool(sql.run(check, f"SELECT 1 {sql.source(query)} LIMIT 1"))


def count_runs(connection: apsw.Connection, query: Query, check: Check) -> int:
    """Return the number of matching runs."""
    sql = SqlBuilder(connection)
    return int(sql.run(check, f"SELECT count(*) {sql.source(query)}")[0][0])


def count_values(connection: apsw.Connection, query: Query, name: str, check: Check) -> dict[str, int]:
    """Count matching runs by ``script``, ``target``, ``status``, ``project``, or ``tags``."""
    sql = SqlBuilder(connection)
    source = sql.source(query)
    statement = (
        f"SELECT value, count(*) FROM (SELECT facts {source}), {ALL_TAGS} GROUP BY value"
        if name == "tags"
        else f"SELECT {_COLUMNS[name]}, count(*) {source} GROUP BY 1"
    )
    return {str(value): count for value, count in sql.run(check, statement)}
