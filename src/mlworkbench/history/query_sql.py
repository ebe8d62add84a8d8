"""Translate queries to SQL on the narrow ``runs`` table and the tables of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import apsw

from .expression import Compare, Condition, Join, Not
from .index_schema import Step
from .rows import HIDDEN_UNTRACKED, MICRO
from .run_query import Query
from .run_values import METRIC, PARAMETER, sort_key
from .sqlite_values import sqlite_text
from .value_index import BY_VALUE, Name, Tree, find_names, verify

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
ALL_TAGS = "json_each(facts, '$.tags')"
_METRICS, _PARAMETERS, _TAGS = "metrics.", "params.", "tags."
_SPANS = {"min.": "least", "max.": "greatest"}
_RANGE_SIGNS = ("=", "<", "<=", ">", ">=")
_FEW = 2000  # a comparison that so few runs match is evaluated first

Check = Callable[[str, Step], None]  # calls the function unless this part of the index is known to be sound


@dataclass(frozen=True)
class _Operand:
    """The values with a name, in order of precedence, and the run field that applies if there is none."""

    names: tuple[Name, ...]
    span: str = ""  # column with the minimum or maximum
    fallback: str | None = None


class SqlBuilder:
    """A builder for SQL expressions and their bound values, and the parts of the index that they read."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._values: list[Any] = []
        self._used: dict[tuple[int, Tree], Name] = {}

    def bind(self, value: Any) -> str:
        self._values.append(sqlite_text(value) if isinstance(value, str) else value)
        return f"?{len(self._values)}"

    def run(self, check: Check, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement after the values that it reads have been verified."""
        for (_, tree), name in self._used.items():
            check(f"{tree.value}-{name.id}", partial(verify, name=name, tree=tree))
        return self._connection.execute(statement, self._values).fetchall()

    # -- sources -----------------------------------------------------------------------------------

    def source(self, query: Query) -> str:
        """Return ``FROM runs WHERE …`` for the matching runs."""
        conditions = _conjuncts(query.where)
        first = self._selective_comparison(conditions)
        selected = ""
        if first is not None:
            conditions.remove(first[0])
            selected = f"seq IN ({self._select_range(*first)}) AND "
        return f"FROM runs NOT INDEXED WHERE {selected}{self._where(query, conditions)}"

    def is_selective(self, query: Query) -> bool:
        """Return whether ``source`` begins with a comparison that few runs match."""
        return self._selective_comparison(_conjuncts(query.where)) is not None

    def source_by_number(self, query: Query, name: Name) -> str:
        """Return a source of the matching runs that have a number with this name, as ``sorted_number``."""
        self._used[name.id, Tree.BY_VALUE] = name
        numbers = "SELECT run AS sorted_run, number AS sorted_number FROM run_numbers"
        where = f"{BY_VALUE} WHERE name = {name.id} AND number IS NOT NULL"
        return (
            f"FROM ({numbers} {where}) CROSS JOIN runs NOT INDEXED ON seq = sorted_run"
            f" WHERE {self._where(query, _conjuncts(query.where))}"
        )

    def _selective_comparison(self, conditions: list[Condition]) -> tuple[Compare, Name] | None:
        """Return the comparison that the fewest runs match, unless these are many."""
        best: tuple[Compare, Name] | None = None
        fewest = _FEW + 1
        for node in conditions:
            if isinstance(node, Compare) and node.sign in _RANGE_SIGNS and not isinstance(node.value, str):
                name = self.only_number(node.name)
                if name is not None:
                    count = self._count(f"{_range(node, name)} LIMIT {fewest}", sort_key(float(node.value)))
                    if count < fewest:
                        best, fewest = (node, name), count
        return best

    def _count(self, select: str, value: int) -> int:
        rows: list[Any] = self._connection.execute(f"SELECT count(*) FROM ({select})", (value,)).fetchall()
        return int(rows[0][0])

    def only_number(self, name: str) -> Name | None:
        """Return the only metric or parameter with this name, if it has numbers."""
        if name in _RUN_COLUMNS or name.startswith(_TAGS):
            return None
        operand = self._operand(name)
        is_only = len(operand.names) == 1 and not operand.span and not operand.fallback
        return operand.names[0] if is_only and operand.names[0].numbers else None

    def _select_range(self, node: Compare, name: Name) -> str:
        self._used[name.id, Tree.BY_VALUE] = name
        return _range(node, name).replace("?", self.bind(sort_key(float(node.value))))

    # -- filters -----------------------------------------------------------------------------------

    def _where(self, query: Query, conditions: Iterable[Condition]) -> str:
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
            parts.append(f"EXISTS (SELECT 1 FROM {ALL_TAGS} WHERE {matches})")
        parts += [self.condition(part) for part in conditions]
        return " AND ".join(f"({part})" for part in parts) or "1"

    def _script(self, script: str) -> str:
        """Match this path, or a script with this name in any folder."""
        end = self.bind("/" + script)
        return f"script = {self.bind(script)} OR substr(script, -length({end})) = {end}"

    # -- conditions --------------------------------------------------------------------------------

    def condition(self, node: Condition, negated: bool = False) -> str:
        """Return the SQL for a condition. If ``negated``, unknown values stay null instead of false."""
        if isinstance(node, Compare):
            if node.name == "tags":
                return self._compare_tags(node)
            is_field = node.name in _RUN_COLUMNS or node.name.startswith(_TAGS)
            return self._compare_field(node, negated) if is_field else self._compare_values(node)
        if isinstance(node, Not):
            return f"NOT ({self.condition(node.inner, True)})"
        assert isinstance(node, Join)
        return "(" + f" {node.word.upper()} ".join(self.condition(part, negated) for part in node.parts) + ")"

    def _compare_field(self, node: Compare, negated: bool) -> str:
        """Compare a field or tag. A run without a value of this type does not match, even if negated."""
        value = self._field(node.name, isinstance(node.value, str))
        # A collation inside parentheses has no effect, so repeat it outside.
        compared = self._compared(value, node, " COLLATE NOCASE" if node.name == "status" else "")
        # Extracting from JSON is slow. If null is not needed, rows that do not match extract the value only once.
        has_type = _has_type(value, node)
        return f"CASE WHEN {has_type} THEN {compared} END" if negated else f"({compared} AND {has_type})"

    def _compare_values(self, node: Compare) -> str:
        """Compare the text or number with a name, which is null for a run without one."""
        operand = self._operand(node.name)
        numbers, texts = self._numbers(operand), self._texts(operand)
        values, others = (texts, numbers) if isinstance(node.value, str) else (numbers, texts)
        value = _coalesce(values)
        if isinstance(node.value, str):
            compared = self._compared(value, node)
        else:
            compared = f"{value} {node.sign} {self.bind(sort_key(float(node.value)))}"
        if operand.fallback is None:
            return f"({compared})"
        field = self._compared(operand.fallback, node)
        has_none = f"{_coalesce([*values, *others])} IS NULL AND {_has_type(operand.fallback, node)}"
        return f"(CASE WHEN {has_none} THEN {field} ELSE {compared} END)"

    def _compared(self, value: str, node: Compare, collation: str = "") -> str:
        operand = self.bind(node.value)
        if node.sign == "~":  # case-insensitive substring match
            return f"instr(lower({value}), lower({operand})) > 0"
        return f"({value}){collation} {node.sign} {operand}"

    def _compare_tags(self, node: Compare) -> str:
        """Match tags: ``=`` if any is equal, ``!=`` if none is, and ``~`` if any contains the string."""
        if node.sign == "~":
            operand = self.bind(str(node.value))
            return f"EXISTS (SELECT 1 FROM {ALL_TAGS} WHERE instr(lower(value), lower({operand})))"
        sign, operand = ("=", "NOT EXISTS") if node.sign == "!=" else (node.sign, "EXISTS")
        return f"{operand} (SELECT 1 FROM {ALL_TAGS} WHERE value {sign} {self.bind(str(node.value))})"

    # -- values ------------------------------------------------------------------------------------

    def sort_expression(self, name: str) -> str:
        """Return the SQL expression to sort by: the number if there is one, otherwise the text."""
        if name in _RUN_COLUMNS:
            return _RUN_COLUMNS[name]
        if name.startswith(_TAGS):
            return f"coalesce({self._field(name, False)}, {self._field(name, True)})"
        operand = self._operand(name)
        fallback = [operand.fallback] if operand.fallback else []
        metrics = [metric for metric in operand.names if metric.kind == METRIC]
        metric_texts = self._texts(_Operand(tuple(metrics)))
        return _coalesce([*self._numbers(operand), *metric_texts, *fallback, *self._texts(operand)])

    def _field(self, name: str, text: bool) -> str:
        return _RUN_COLUMNS[name] if name in _RUN_COLUMNS else self._tag(name[len(_TAGS) :], text)

    def _operand(self, name: str) -> _Operand:
        if name.startswith(_METRICS):
            return _Operand(self._find_metrics(name[len(_METRICS) :]))
        if name.startswith(_PARAMETERS):
            return _Operand(self._find_parameters(name[len(_PARAMETERS) :]))
        if name[:4] in _SPANS:
            return _Operand(self._find_metrics(name[4:]), span=_SPANS[name[:4]])
        # The parameter takes precedence: for a name such as ``lr``, users rarely mean the metric.
        names = self._find_parameters(name) + self._find_metrics(name)
        return _Operand(names, fallback=_FALLBACK_COLUMNS.get(name))

    def _find_metrics(self, name: str) -> tuple[Name, ...]:
        stored = sqlite_text(name)
        return tuple(row for row in find_names(self._connection, METRIC, stored) if row.name == stored)

    def _find_parameters(self, name: str) -> tuple[Name, ...]:
        """Find a parameter, spelled with ``-`` or ``_``: ``batch_size`` is also ``--batch-size``, and vice versa."""
        return tuple(find_names(self._connection, PARAMETER, sqlite_text(name)))

    def _numbers(self, operand: _Operand) -> list[str]:
        column = f"coalesce({operand.span}, number)" if operand.span else "number"
        names = [name for name in operand.names if name.numbers]
        self._used |= {(name.id, Tree.NUMBERS): name for name in names}
        return [f"(SELECT {column} FROM run_numbers WHERE name = {name.id} AND run = seq)" for name in names]

    def _texts(self, operand: _Operand) -> list[str]:
        names = [name for name in operand.names if name.texts]
        self._used |= {(name.id, Tree.TEXTS): name for name in names}
        return [f"(SELECT text FROM run_texts WHERE name = {name.id} AND run = seq)" for name in names]

    def _tag(self, name: str, text: bool) -> str:
        """Return SQL for the value of a tag: ``vision`` in ``team=vision`` or ``team:vision``.

        A tag without a value is true.
        """
        key = self.bind(name)
        rest = f"substr(value, length({key}) + 2)"
        begins = f"substr(value, 1, length({key}) + 1) IN ({key} || '=', {key} || ':')"
        if text:
            return f"(SELECT {rest} FROM {ALL_TAGS} WHERE {begins})"
        is_number = f"json_type(CASE WHEN json_valid({rest}) THEN {rest} END) IN ('integer', 'real')"
        number = f"CASE WHEN value = {key} THEN 1 WHEN {is_number} THEN CAST({rest} AS NUMERIC) END"
        return f"(SELECT {number} FROM {ALL_TAGS} WHERE value = {key} OR {begins})"


def _conjuncts(node: Condition | None) -> list[Condition]:
    """Return the conditions that must all be true."""
    if isinstance(node, Join) and node.word == "and":
        return [inner for part in node.parts for inner in _conjuncts(part)]
    return [] if node is None else [node]


def _range(node: Compare, name: Name) -> str:
    return f"SELECT run FROM run_numbers {BY_VALUE} WHERE name = {name.id} AND number {node.sign} ?"


def _has_type(value: str, node: Compare) -> str:
    types = "('text')" if isinstance(node.value, str) else "('integer', 'real')"
    return f"typeof({value}) IN {types}"


def _coalesce(expressions: list[str]) -> str:
    return f"coalesce({', '.join(expressions)})" if len(expressions) > 1 else (expressions or ["NULL"])[0]
