"""Which runs, in which order: conditions become SQL over the narrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from .expression import Compare, Condition, Join, Not
from .rows import MICRO, UNTRACKED, clean

# Names that are the run's own; every other one is a metric, else a parameter. ``tags`` is the first of them in a sort.
_OWN = {
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
# The run's own where the script has none of that name.
_SOFT = {"note": "json_extract(facts, '$.note')", "children": "json_extract(facts, '$.children')"}
OWN = frozenset({*_OWN, *_SOFT, "tags"})
_METRICS, _PARAMETERS, _TAGS = "metrics.", "params.", "tags."
_SPANS = {"min.": 0, "max.": 1}  # of a series: where its least and its greatest value stand
_COLUMNS = {"script": "script", "target": "target", "status": "status", "project": "project"}
_ALL_TAGS = "json_each(facts, '$.tags')"


@dataclass(frozen=True)
class Query:
    """What a list is narrowed to; newest first unless it is sorted."""

    project: str | None = None
    hidden: bool = False  # with those that are archived or not tracked
    archived: bool = False  # with those that are archived
    children: bool = True  # with those of sweeps, and with those inside other runs
    inside: bool = True  # with those inside other runs, which have no folder of their own
    parent: str | None = None
    texts: Sequence[str] = ()  # each somewhere in id, name, script, arguments, tags, note
    statuses: Sequence[str] = ()
    targets: Sequence[str] = ()
    scripts: Sequence[str] = ()
    tags: Sequence[str] = ()
    since: float | None = None
    where: Condition | None = None
    sort: str | None = None
    descending: bool = False
    oldest: bool = False  # of those that are alike the oldest first
    limit: int | None = None
    offset: int = 0  # as many of those that fit are passed over


class _Sql:
    """An expression of SQL and the values that it needs, in order."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def bind(self, value: Any) -> str:
        self.values.append(clean(value) if isinstance(value, str) else value)
        return f"?{len(self.values)}"

    # -- the narrowing -----------------------------------------------------------------------------

    def narrowed(self, query: Query) -> str:
        shown = f"hidden & {UNTRACKED} = 0" if query.archived else "hidden = 0"
        parts = [] if query.hidden else [shown]
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
        for column, wanted in (("status", query.statuses), ("target", query.targets)):
            if wanted:
                parts.append(f"{column} IN ({', '.join(self.bind(one) for one in wanted)})")
        if query.scripts:
            parts.append("(" + " OR ".join(self._script(one) for one in query.scripts) + ")")
        for tag in query.tags:
            key = self.bind(tag)  # of team=vision the name alone is enough
            fits = f"value = {key} OR substr(value, 1, length({key}) + 1) = {key} || '='"
            parts.append(f"EXISTS (SELECT 1 FROM {_ALL_TAGS} WHERE {fits})")
        if query.where is not None:
            parts.append(self.condition(query.where))
        return " AND ".join(f"({part})" for part in parts) or "1"

    def _script(self, script: str) -> str:
        """The script itself, or one of that name in a folder."""
        end = self.bind("/" + script)
        return f"script = {self.bind(script)} OR substr(script, -length({end})) = {end}"

    # -- conditions --------------------------------------------------------------------------------

    def condition(self, node: Condition, negated: bool = False) -> str:
        """``negated``: whether it matters that what is not known is neither true nor false."""
        if isinstance(node, Compare):
            return self._tagged(node) if node.name == "tags" else self._compare(node, negated)
        if isinstance(node, Not):
            return f"NOT ({self.condition(node.inner, True)})"
        assert isinstance(node, Join)
        return "(" + f" {node.word.upper()} ".join(self.condition(part, negated) for part in node.parts) + ")"

    def _compare(self, node: Compare, negated: bool) -> str:
        """Null, which is neither true nor false, where there is no value of this kind."""
        text = isinstance(node.value, str)
        value = self.value_of(node.name, text)
        # A collation counts only where it is not within brackets.
        folded = " COLLATE NOCASE" if node.name == "status" else ""
        wanted = self.bind(node.value)
        has = node.sign == "~"  # a text that has it in it, whatever the case of its letters
        compared = f"instr(lower({value}), lower({wanted})) > 0" if has else f"({value}){folded} {node.sign} {wanted}"
        kinds = "('text')" if text else "('integer', 'real')"
        fits = f"typeof({value}) IN {kinds}"
        # The value is dug out of JSON: where nothing else depends on it, once for all the rows that do not fit.
        return f"CASE WHEN {fits} THEN {compared} END" if negated else f"({compared} AND {fits})"

    def _tagged(self, node: Compare) -> str:
        """``tags = "best"``: one of them is; ``!=``: none is; ``~``: one has it in it."""
        if node.sign == "~":
            wanted = self.bind(str(node.value))
            return f"EXISTS (SELECT 1 FROM {_ALL_TAGS} WHERE instr(lower(value), lower({wanted})))"
        sign, wanted = ("=", "NOT EXISTS") if node.sign == "!=" else (node.sign, "EXISTS")
        return f"{wanted} (SELECT 1 FROM {_ALL_TAGS} WHERE value {sign} {self.bind(str(node.value))})"

    def value_of(self, name: str, text: bool) -> str:
        """The value behind a name: of the run itself, of a metric, of a parameter, of a tag."""
        if name in _OWN:
            return _OWN[name]
        if name.startswith(_METRICS):
            return self._metric(name[len(_METRICS) :])
        if name.startswith(_PARAMETERS):
            return self._parameter(name[len(_PARAMETERS) :], text)
        if name.startswith(_TAGS):
            return self._tag(name[len(_TAGS) :], text)
        if name[:4] in _SPANS:
            return self._span(name[4:], _SPANS[name[:4]])
        own = f", {_SOFT[name]}" if name in _SOFT else ""
        # What a run was given is meant more often than what it measured under the same name, such as a learning rate.
        return f"coalesce({self._parameter(name, text)}, {self._metric(name)}{own})"

    def either_kind(self, name: str) -> str:
        """A value to sort by: the number where there is one, else the text."""
        number, text = self.value_of(name, False), self.value_of(name, True)
        return number if number == text else f"coalesce({number}, {text})"

    def _metric(self, name: str) -> str:
        if _fits_path(name):
            return f"json_extract(metrics, {self.bind(_path('$', name))})"
        return f"(SELECT value FROM json_each(metrics) WHERE key = {self.bind(name)})"

    def _span(self, name: str, nth: int) -> str:
        """The least or the greatest of a series; of one value, this."""
        if _fits_path(name):
            found = f"json_extract(facts, {self.bind(_path('$.spans', name) + f'[{nth}]')})"
        else:
            every = f"SELECT json_extract(value, '$[{nth}]') FROM json_each(facts, '$.spans')"
            found = f"({every} WHERE key = {self.bind(name)})"
        return f"coalesce({found}, {self._metric(name)})"

    def _parameter(self, name: str, text: bool) -> str:
        """As it was typed; else, as argparse has it, ``batch_size`` for ``--batch-size``, or the other way round."""
        item = f"[{int(text)}]"
        inner = f"SELECT json_extract(value, '${item}') FROM json_each(facts, '$.params')"
        if not _fits_path(name):
            return f"({inner} WHERE key = {self.bind(name)})"
        spellings = dict.fromkeys((name, name.replace("-", "_"), name.replace("_", "-")))
        found = [f"json_extract(facts, {self.bind(_path('$.params', one) + item)})" for one in spellings]
        joined = name.replace("-", "_")
        if joined.count("_") > 1:  # both may stand in one name
            found.append(f"({inner} WHERE replace(key, '-', '_') = {self.bind(joined)})")
        return f"coalesce({', '.join(found)})" if len(found) > 1 else found[0]

    def _tag(self, name: str, text: bool) -> str:
        """Of ``team=vision`` or ``team:vision`` what stands behind; a tag that is only a name is true."""
        key = self.bind(name)
        rest = f"substr(value, length({key}) + 2)"
        begins = f"substr(value, 1, length({key}) + 1) IN ({key} || '=', {key} || ':')"
        if text:
            return f"(SELECT {rest} FROM {_ALL_TAGS} WHERE {begins})"
        is_number = f"json_type(CASE WHEN json_valid({rest}) THEN {rest} END) IN ('integer', 'real')"
        number = f"CASE WHEN value = {key} THEN 1 WHEN {is_number} THEN CAST({rest} AS NUMERIC) END"
        return f"(SELECT {number} FROM {_ALL_TAGS} WHERE value = {key} OR {begins})"


def _fits_path(name: str) -> bool:
    return bool(name) and name.isprintable() and '"' not in name and "\\" not in name


def _path(start: str, name: str) -> str:
    return f'{start}."{name}"'


def find(connection: apsw.Connection, query: Query) -> list[int]:
    """The numbers of the runs, in order. The caller has made sure that every row is sound."""
    sql = _Sql()
    way = "ASC" if query.oldest else "DESC"
    fits, order = sql.narrowed(query), f"created {way}, number {way}, seq {way}"
    if query.sort is not None:
        value = sql.either_kind(query.sort)
        order = f"{value} {'DESC' if query.descending else 'ASC'} NULLS LAST, {order}"
    limit = sql.bind(-1 if query.limit is None else query.limit)
    asked = (
        f"SELECT seq FROM runs NOT INDEXED WHERE {fits} ORDER BY {order} LIMIT {limit} OFFSET {sql.bind(query.offset)}"
    )
    return [seq for (seq,) in connection.execute(asked, sql.values)]


def how_many(connection: apsw.Connection, query: Query) -> int:
    """Of all that fit, without looking at their order."""
    sql = _Sql()
    asked = f"SELECT count(*) FROM runs NOT INDEXED WHERE {sql.narrowed(query)}"
    return int(next(iter(connection.execute(asked, sql.values)))[0])


def each_value(connection: apsw.Connection, query: Query, name: str) -> dict[str, int]:
    """How many of the runs that fit have each value of ``script``, ``target``, ``status``, ``project`` or ``tags``."""
    sql = _Sql()
    fits = sql.narrowed(query)
    found = (
        f"SELECT value, count(*) FROM (SELECT * FROM runs NOT INDEXED WHERE {fits}), {_ALL_TAGS} GROUP BY value"
        if name == "tags"
        else f"SELECT {_COLUMNS[name]}, count(*) FROM runs NOT INDEXED WHERE {fits} GROUP BY 1"
    )
    return {str(value): count for value, count in connection.execute(found, sql.values)}
