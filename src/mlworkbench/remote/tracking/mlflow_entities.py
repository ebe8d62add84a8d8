"""Data of an MLflow database besides runs: datasets, logged models, and what only a copy of the file can keep."""

from __future__ import annotations

from .mlflow_database import RUN_TABLES
from .mlflow_run import MAX_ENTRIES
from .script_runs import encode_float

TYPE_CHECKING = False  # like typing.TYPE_CHECKING; importing typing costs memory and start-up time
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, Optional, Set, Tuple

    from .mlflow_database import MlflowDatabase

_MAX_MODELS = 1000
_MAX_FIELD = 60000  # characters of a text, as in the in-run library
_MAX_TABLES = 500
_DATASETS = {
    "inputs": ("input_uuid", "source_type", "source_id", "destination_type", "destination_id"),
    "input_tags": ("input_uuid", "name", "value"),
    "datasets": (
        *("dataset_uuid", "name", "digest"),
        *("dataset_source_type", "dataset_source", "dataset_schema", "dataset_profile"),
    ),
}
_MODELS = {
    "logged_models": (
        *("model_id", "name", "artifact_location", "creation_timestamp_ms", "status"),
        *("lifecycle_stage", "model_type", "source_run_id"),
    ),
    "logged_model_params": ("model_id", "param_key", "param_value"),
    "logged_model_tags": ("model_id", "tag_key", "tag_value"),
    "logged_model_metrics": (
        *("model_id", "metric_name", "metric_timestamp_ms", "metric_step", "metric_value"),
        *("run_id", "dataset_name", "dataset_digest"),
    ),
}
_STATUS = {1: "PENDING", 2: "READY", 3: "FAILED"}
# Tables that are recorded, or whose rows are not data of a user.
_KNOWN_TABLES = frozenset((*RUN_TABLES, "latest_metrics", "experiments", "experiment_tags", "alembic_version"))
_INTERNAL_TABLES = frozenset(("workspaces", "job_locks", "jobs", "scheduler_leases", "sqlite_sequence"))
_TIME_COLUMNS = frozenset(
    ("timestamp_ms", "creation_time", "creation_timestamp_ms", "created_time", "created_timestamp", "created_at")
)

_SELECT_DATASETS = """
SELECT {0}, (SELECT substr(CAST(t.value AS TEXT), 1, 500) FROM input_tags t WHERE t.input_uuid = i.input_uuid
AND t.name = 'mlflow.data.context') FROM inputs i JOIN datasets d ON d.dataset_uuid = i.source_id
WHERE i.source_type = 'DATASET' AND i.destination_type = 'RUN' AND i.destination_id = ? LIMIT ?
"""
_DATASET_FIELDS = {
    "name": "name",
    "digest": "digest",
    "source_type": "dataset_source_type",
    "source": "dataset_source",
    "schema": "dataset_schema",
    "profile": "dataset_profile",
}


class MlflowEntities:
    """The datasets and logged models of a database. The methods raise UnreadableStore."""

    def __init__(self, database: MlflowDatabase) -> None:
        self._database = database
        self._has_datasets = database.has_columns(_DATASETS)
        self._has_models = database.has_columns(_MODELS)

    def datasets(self, run_id: str) -> Iterator[Dict[str, Any]]:
        """Yield the inputs of a run, as the in-run library records them."""
        if self._has_datasets:
            query = _SELECT_DATASETS.format(", ".join(_cut("d." + column) for column in _DATASET_FIELDS.values()))
            for row in self._database.select(query, run_id, MAX_ENTRIES):
                fields = {name: value for name, value in zip(_DATASET_FIELDS, row) if value}
                if "name" in fields and "digest" in fields:
                    yield dict(fields, context=row[-1])

    def models(self, since: int) -> Iterator[Tuple[Dict[str, Any], str]]:
        """Yield the models that were logged since this time, in milliseconds, and the URIs of their folders."""
        if not self._has_models:
            return
        columns = "model_id name artifact_location model_type source_run_id".split()
        query = (
            "SELECT %s, status FROM logged_models WHERE creation_timestamp_ms >= ? AND lifecycle_stage != 'deleted'"
            " ORDER BY creation_timestamp_ms LIMIT ?" % ", ".join(map(_cut, columns))
        )
        for row in list(self._database.select(query, since, _MAX_MODELS)):
            model_id, name, location, model_type, run_id = row[:-1]
            fields = {"id": model_id, "name": name, "type": model_type, "source_run": run_id}
            fields.update(status=_STATUS.get(row[-1]), params=self._pairs("param", model_id))
            yield dict(fields, tags=self._pairs("tag", model_id)), location or ""

    def _pairs(self, kind: str, model_id: str) -> Dict[str, str]:
        query = "SELECT {0}, {1} FROM logged_model_{2}s WHERE model_id = ? LIMIT ?"
        query = query.format(_cut(kind + "_key"), _cut(kind + "_value"), kind)
        return {key: value or "" for key, value in self._database.select(query, model_id, MAX_ENTRIES) if key}

    def model_metrics(self, model_id: str) -> Iterator[Dict[str, Any]]:
        names = ("name", "step", "time", "value", "source_run", "dataset", "digest")
        query = (
            "SELECT %s, CAST(metric_step AS INTEGER), CAST(metric_timestamp_ms AS INTEGER), metric_value, %s, %s, %s"
            " FROM logged_model_metrics WHERE model_id = ? ORDER BY rowid LIMIT ?"
        ) % (_cut("metric_name", 1000), *(_cut(name, 500) for name in ("run_id", "dataset_name", "dataset_digest")))
        for row in self._database.select(query, model_id, MAX_ENTRIES):
            point = dict(zip(names, row))
            if point["name"] and isinstance(point["value"], (int, float)):
                yield dict(point, value=encode_float(point["value"]))

    def has_more(self, since: Optional[int]) -> bool:
        """Return whether other tables have data, such as traces and registered models.

        ``since``: count only rows that were created at this time, in milliseconds, or later.
        """
        return any(self._has_rows(table, since) for table in self._other_tables())

    def _other_tables(self) -> Set[str]:
        query = (
            "SELECT CAST(name AS TEXT) FROM sqlite_master"
            " WHERE type = 'table' AND name IS NOT NULL AND sql LIKE 'CREATE TABLE%' LIMIT ?"
        )
        recorded = {*_KNOWN_TABLES, *_INTERNAL_TABLES}
        recorded.update(*([_DATASETS] if self._has_datasets else []), *([_MODELS] if self._has_models else []))
        return {name for (name,) in self._database.select(query, _MAX_TABLES)} - recorded

    def _has_rows(self, table: str, since: Optional[int]) -> bool:
        quoted = '"%s"' % table.replace('"', '""')
        condition = ""
        if since is not None:
            columns = {row[1] for row in self._database.select("PRAGMA table_info(%s)" % quoted)}
            times = sorted(_TIME_COLUMNS & columns)
            if not times:
                return False
            condition = " WHERE typeof({0}) = 'integer' AND {0} >= {1}".format(times[0], since)
        return bool(next(self._database.select("SELECT EXISTS (SELECT 1 FROM %s%s)" % (quoted, condition)))[0])


def _cut(column: str, length: int = _MAX_FIELD) -> str:
    """Return an SQL expression for a text. SQLite stores values of any type, such as binary data, in any column."""
    return "substr(CAST(%s AS TEXT), 1, %d)" % (column, length)
