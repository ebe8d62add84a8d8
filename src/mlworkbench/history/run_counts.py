"""What is said of many runs at once, without reading them: counts, values, the newest ones."""

from __future__ import annotations

import apsw

from ..remote.shared.layout import is_outside
from . import database, rows
from .query import Query, each_value, how_many
from .store import History, Runs


def count(history: History, query: Query) -> int:
    """How many runs fit, whatever the limit."""
    return history.look(lambda connection: how_many(connection, query))


def values(history: History, query: Query, name: str) -> dict[str, int]:
    """How many of the runs that fit have each value of a column, or each tag."""
    return history.look(lambda connection: each_value(connection, query, name))


def generation(history: History) -> int:
    """Grows with every write of anybody to the index."""
    return history.look(database.generation, all_of_them=False)


def newest_generation(history: History) -> int:
    """As it is once what scripts have recorded by themselves was taken in, too."""
    return history.look(database.generation)


def last_runs(history: History, most: int) -> Runs:
    """The newest run of each project: as quick with many runs as with few."""

    def last(connection: apsw.Connection) -> Runs:
        found: list[rows.Stored] = []
        project = ""
        for _ in range(most):
            next_one = connection.execute("SELECT min(project) FROM runs WHERE project > ?", (project,))
            project = next(iter(next_one))[0]
            if project is None:
                break
            found += rows.select(connection, "project = ? AND parent = '' ORDER BY number DESC LIMIT 1", (project,))
        return [one.run for one in found]

    return history.look(last, all_of_them=False)


def project_folders(history: History, digits: str) -> list[str]:
    """Folders that runs of a project were submitted from, newest first; ``digits``: how its id begins."""

    def folders(connection: apsw.Connection) -> list[str]:
        asked = "project >= ? AND project < ? AND parent = '' ORDER BY created DESC LIMIT 200"
        found = [one.run for one in rows.select(connection, asked, (digits, digits + "g"))]
        return list(dict.fromkeys(run.spec.project_path for run in found if not is_outside(run.id)))

    return history.look(folders, all_of_them=False)
