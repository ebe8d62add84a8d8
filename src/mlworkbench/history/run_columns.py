"""Values of many runs by column, without decoding the runs."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, NamedTuple

import apsw

from ..model import Run
from .query_sql import Check, SqlBuilder
from .rows import fetch
from .run_query import Query
from .run_values import METRIC, PARAMETER, numbers_from_keys
from .value_index import Name, Tree, find_names, verify

# Run fields to group by, as SQL.
FIELDS = {
    "status": "status",
    "target": "target",
    "script_name": "script",
    "script": "script",
    "parent_run_id": "nullif(parent, '')",
    **{
        name: f"json_extract(facts, '$.{key}')"
        for name, key in {
            "run_configuration": "runconfig",
            "project": "project",
            "name": "name",
            "user_id": "user",
            "ending": "ending",
            "exit_code": "exit_code",
            "gpu": "gpu",
            "CommitId": "commit",
        }.items()
    },
    "tags": "NULL",  # the tags themselves
}
# Finds the few runs that may state a goal, to decode only these.
_MAY_STATE_GOAL = "instr(facts, '\"goal') OR instr(facts, '\"direction')"
_RATIO = 20  # look up the values of single runs if fewer than one in 20 runs match

Value = float | int | str | bool | None


class ListedRun(NamedTuple):  # a dataclass takes three times as long to create
    """A run, the requested field, and its tags."""

    seq: int
    id: str
    field: Value
    tags: tuple[str, ...]
    may_state_goal: bool


class RunColumns:
    """The matching runs except parents of sweeps, which log no metrics, and their values by name."""

    def __init__(self, connection: apsw.Connection, check: Check, query: Query, field: str | None) -> None:
        self._connection = connection
        self._check = check
        sql = SqlBuilder(connection)
        listed = f"seq, id, {FIELDS.get(field or '', 'NULL')}, json_extract(facts, '$.tags'), {_MAY_STATE_GOAL}"
        source = f"{sql.source(query)} AND json_extract(facts, '$.sweep') IS NULL"
        self.runs = [
            ListedRun(seq, run_id, value, tuple(json.loads(tags)) if tags else (), bool(goal))
            for seq, run_id, value, tags, goal in sql.run(check, f"SELECT {listed} {source}")
        ]
        self._seqs = json.dumps(sorted(run.seq for run in self.runs))
        self._last_runs: tuple[str, list[int]] = "", []  # as JSON, and decoded

    def runs_with_goals(self) -> dict[int, Run]:
        """Return the runs whose tags may state the goal of a metric."""
        seqs = [run.seq for run in self.runs if run.may_state_goal]
        return dict(zip(seqs, fetch(self._connection, seqs), strict=True))

    def parameter(self, name: str) -> dict[int, Value]:
        """Return a parameter by row number: a number if it is one, and "yes" for a flag."""
        values: dict[int, Value] = {}
        for row in reversed(find_names(self._connection, PARAMETER, name)):
            numbers, texts = dict(zip(*self.numbers(row), strict=True)), self._texts(row)
            values |= {seq: _parameter(numbers.get(seq), texts.get(seq)) for seq in {**numbers, **texts}}
        return values

    def metric(self, name: str) -> dict[int, Value]:
        values: dict[int, Value] = {}
        for row in self.names(METRIC):
            if row.name == name:
                values = {**dict(zip(*self.numbers(row), strict=True)), **self._texts(row)}
        return values

    def names(self, kind: str) -> list[Name]:
        return find_names(self._connection, kind)

    def numbers(self, name: Name) -> tuple[list[int], list[float]]:
        """Return row numbers in ascending order, and numbers. Runs that do not match may be included.

        Names that the same runs have share one list of row numbers.
        """
        self._verify(name, Tree.NUMBERS)
        is_lookup = len(self.runs) * _RATIO < name.numbers
        source = (
            f"json_each(?) CROSS JOIN run_numbers ON run = value AND name = {name.id}"
            if is_lookup
            # ``least`` is not in the index by value, so that SQLite reads the table, which is ordered by run.
            else f"run_numbers WHERE ? IS NOT NULL AND name = {name.id} AND coalesce(least, 0) IS NOT NULL"
        )
        # As JSON, because creating 100,000 rows takes twice as long.
        columns = "json_group_array(run), json_group_array(number)"
        select = f"SELECT {columns} FROM {source} AND number IS NOT NULL"
        rows: list[Any] = self._connection.execute(select, (self._seqs,)).fetchall()
        runs, keys = rows[0]
        if runs != self._last_runs[0]:
            self._last_runs = runs, json.loads(runs)
        return self._last_runs[1], list(numbers_from_keys(json.loads(keys)))

    def _texts(self, name: Name) -> dict[int, str]:
        self._verify(name, Tree.TEXTS)
        rows: Any = self._connection.execute("SELECT run, text FROM run_texts WHERE name = ?", (name.id,))
        return dict(rows)

    def _verify(self, name: Name, tree: Tree) -> None:
        self._check(f"{tree.value}-{name.id}", partial(verify, name=name, tree=tree))


def _parameter(number: float | None, text: str | None) -> Value:
    if text is None:
        return "yes"
    if number is None:
        return text
    return text == "True" if text in ("True", "False") else number
