"""Aggregates over many runs without loading them: counts, values, and newest runs."""

from __future__ import annotations

import apsw

from ..remote.shared.layout import is_untracked
from . import database, rows
from .run_query import Query
from .run_search import count_runs, count_values
from .run_search import exists as run_exists
from .store import History, Runs, query_index


def count(history: History, query: Query) -> int:
    """Return the number of matching runs, regardless of the query's limit."""
    return query_index(history, lambda connection, check: count_runs(connection, query, check))


def exists(history: History, query: Query) -> bool:
    """Return whether a run matches."""
    return query_index(history, lambda connection, check: run_exists(connection, query, check))


def values(history: History, query: Query, name: str) -> dict[str, int]:
    """Return each value of a column, or each tag, with the number of matching runs."""
    return query_index(history, lambda connection, check: count_values(connection, query, name, check))


def generation(history: History) -> int:
    """Return a number that grows with every write to the index."""
    return history.read(database.generation)


def newest_generation(history: History) -> int:
    """Ingest runs that were recorded without a submission, then return the generation."""
    return query_index(history, lambda connection, _: database.generation(connection))


def last_runs(history: History, limit: int) -> Runs:
    """Return the newest run of up to ``limit`` projects. The time does not depend on the number of runs."""

    def select(connection: apsw.Connection) -> Runs:
        matches: list[rows.Stored] = []
        project = ""
        for _ in range(limit):
            result = connection.execute("SELECT min(project) FROM runs WHERE project > ?", (project,))
            project = next(iter(result))[0]
            if project is None:
                break
            matches += rows.select(connection, "project = ? AND parent = '' ORDER BY number DESC LIMIT 1", (project,))
        return [row.run for row in matches]

    return history.read(select)


def project_folders(history: History, prefix: str) -> list[str]:
    """Return the folders from which a project was submitted, newest first.

    ``prefix`` is the start of the project ID.
    """

    def folders(connection: apsw.Connection) -> list[str]:
        where = "project >= ? AND project < ? AND parent = '' ORDER BY created DESC LIMIT 200"
        runs = [row.run for row in rows.select(connection, where, (prefix, prefix + "g"))]
        return list(dict.fromkeys(run.spec.project_path for run in runs if not is_untracked(run.id)))

    return history.read(folders)
