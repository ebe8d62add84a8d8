"""Export runs to an MLflow server. Repeated exports update the same run, identified by a tag."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...errors import HostError, UsageError
from ...history.series.series_store import Series
from ...model import JsonDict
from ...remote.shared.failpoint import failpoint
from ...remote.shared.untrusted_json import parse_json
from ..run_data import Item, points_of
from . import run_mapping
from .artifacts import ArtifactUploader
from .name_mapping import NameMapper
from .rest_client import RequestRejected, Server

_MAX_METRICS = 1000  # maximum entries per request in MLflow
_MAX_OTHERS = 100
_MAX_BATCH_BYTES = 500_000
_PAGE_SIZE = 20_000
_INTERNAL_TAGS = (run_mapping.TAG_NAMES, run_mapping.POINTS, run_mapping.FILES)

Report = Callable[[str, int, int], None]  # what is being sent, amount done, and total
Warn = Callable[[str], None]


@dataclass(frozen=True)
class ExportResult:
    """The result of exporting one run."""

    run: str  # ID in mlw
    id: str  # ID on the server
    address: str  # URL for a browser
    new: bool
    is_complete: bool  # everything was uploaded


@dataclass(frozen=True)
class _RemoteRun:
    """The state of a run on the server."""

    id: str
    artifacts: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: frozenset[str]


class Exporter:
    """An exporter of runs to one server.

    If ``experiment`` is None, the experiment is named after the run's project.
    """

    def __init__(
        self, server: Server, experiment: str | None, files: ArtifactUploader, report: Report, warn: Warn
    ) -> None:
        self._server = server
        self._experiment = experiment
        self._files = files
        self._report = report
        self._warn = warn
        self._experiments: dict[str, str] = {}
        self._ids: dict[tuple[str, str], str] = {}  # (experiment, run) → ID on the server

    def send(self, items: Sequence[Item]) -> Iterator[ExportResult]:
        """Export the runs one by one, with parents before their children."""
        for item in _parents_first(items):
            yield self._send(item)

    def _send(self, item: Item) -> ExportResult:
        experiment_id = self._experiment_id(self._experiment or item.run.spec.project_name or "mlw")
        params, tags = NameMapper(), NameMapper()
        tag_values = run_mapping.tags_of(item, tags)
        remote = self._find_run(experiment_id, item.run.id)
        if remote is None:
            # A new run is created with its ID tag, so that the next export finds it even after an interruption.
            remote, new = self._create_run(experiment_id, item, tag_values), True
        else:
            new = False
        self._ids[experiment_id, item.run.id] = remote.id
        parent = self._parent_id(experiment_id, item)
        if parent:
            tag_values[run_mapping.PARENT] = parent
        self._log_params(remote, item, run_mapping.params_of(item, params))
        self._set_tags(remote, tag_values)
        metrics = self._log_points(remote, item)
        self._log_datasets(remote, item)
        renamed = {"params": params.changed(), "tags": tags.changed(), "metrics": metrics.changed()}
        is_complete = self._send_files(remote, item, renamed)
        self._finish(remote, item)
        return ExportResult(
            item.run.id,
            remote.id,
            f"{self._server.uri}/#/experiments/{experiment_id}/runs/{remote.id}",
            new,
            is_complete,
        )

    # -- the experiment and the run ----------------------------------------------------------------

    def _experiment_id(self, name: str) -> str:
        """Return the ID of the experiment, creating the experiment if it does not exist."""
        if name in self._experiments:
            return self._experiments[name]
        experiment = self._find_experiment(name)
        if experiment is None:
            try:
                experiment = self._server.post("experiments/create", {"name": name}, retry=False)
            except RequestRejected as error:
                experiment = self._find_experiment(name) if error.error_code == "RESOURCE_ALREADY_EXISTS" else None
                if experiment is None:
                    raise
        self._experiments[name] = str(experiment.get("experiment_id") or "0")
        return self._experiments[name]

    def _find_experiment(self, name: str) -> JsonDict | None:
        try:
            response = self._server.get("experiments/get-by-name", experiment_name=name)
        except RequestRejected as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        experiment = _get_object(response, "experiment")
        if experiment.get("lifecycle_stage") == "deleted":
            raise UsageError(
                f"experiment {name!r} was deleted on the server", "restore it there, or choose another --experiment"
            )
        return experiment

    def _find_run(self, experiment_id: str, run_id: str) -> _RemoteRun | None:
        query = {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{run_mapping.RUN_ID}` = '{run_id}'",
            "run_view_type": "ACTIVE_ONLY",
            "max_results": 2,
        }
        runs = self._server.post("runs/search", query).get("runs") or []
        return _parse_run(runs[0]) if runs else None

    def _create_run(self, experiment_id: str, item: Item, tags: dict[str, str]) -> _RemoteRun:
        body = {
            "experiment_id": experiment_id,
            "run_name": tags["mlflow.runName"],
            "start_time": run_mapping.start_of(item),
            "tags": [
                {"key": name, "value": tags[name]}
                for name in (run_mapping.RUN_ID, "mlflow.runName", "mlflow.user")
                if name in tags
            ],
        }
        if "mlflow.user" in tags:
            body["user_id"] = tags["mlflow.user"]
        return _parse_run(self._server.post("runs/create", body, retry=False).get("run"))

    def _parent_id(self, experiment_id: str, item: Item) -> str | None:
        """Return the server's ID for the parent run, if the server has that run."""
        parent_id = item.run.spec.parent
        if parent_id is None:
            return None
        if (experiment_id, parent_id) not in self._ids:
            parent = self._find_run(experiment_id, parent_id)
            if parent is None:
                return None
            self._ids[experiment_id, parent_id] = parent.id
        return self._ids[experiment_id, parent_id]

    def _finish(self, remote: _RemoteRun, item: Item) -> None:
        body: JsonDict = {
            "run_id": remote.id,
            "status": run_mapping.status_of(item),
            "run_name": run_mapping.name_of(item),
        }
        if item.run.status.final and item.run.ended is not None:
            body["end_time"] = run_mapping.milliseconds(item.run.ended)
        self._server.post("runs/update", body)

    # -- contents of the run -----------------------------------------------------------------------

    def _log_params(self, remote: _RemoteRun, item: Item, params: dict[str, str]) -> None:
        fixed = [name for name, value in params.items() if remote.params.get(name, value) != value]
        if fixed:
            self._warn(
                f"run {item.run.id}: MLflow cannot change parameters; old values are kept: {', '.join(fixed[:5])}"
            )
        new = [{"key": name, "value": value} for name, value in params.items() if name not in remote.params]
        for batch in _batches(new, _MAX_OTHERS):
            self._server.post("runs/log-batch", {"run_id": remote.id, "params": batch})

    def _set_tags(self, remote: _RemoteRun, tags: dict[str, str]) -> None:
        """Set the tags that differ. Delete those of an earlier export that the run no longer has."""
        tag_names = sorted(name for name in tags if not name.startswith("mlflow."))
        old_names = _parse_names(remote.tags.get(run_mapping.TAG_NAMES))
        all_tags = {**tags, run_mapping.TAG_NAMES: json.dumps(tag_names)} if len(json.dumps(tag_names)) < 4000 else tags
        new = [{"key": name, "value": value} for name, value in all_tags.items() if remote.tags.get(name) != value]
        for name in old_names:
            if name not in tags and name in remote.tags and name not in _INTERNAL_TAGS:
                self._server.post("runs/delete-tag", {"run_id": remote.id, "key": name})
        for batch in _batches(new, _MAX_OTHERS):
            self._server.post("runs/log-batch", {"run_id": remote.id, "tags": batch})

    def _set_tag(self, remote: _RemoteRun, name: str, value: str) -> None:
        self._server.post("runs/set-tag", {"run_id": remote.id, "key": name, "value": value})

    def _log_points(self, remote: _RemoteRun, item: Item) -> NameMapper:
        names = NameMapper()
        with points_of(item) as series:
            metrics = series.names(item.child)
            state = _digest([metric.name, metric.kind, metric.count] for metric in metrics)
            for metric in metrics:
                if metric.kind == "number":
                    names(metric.name)  # assign all names, whether or not points are new
            if remote.tags.get(run_mapping.POINTS) == state:
                return names
            total, done = sum(metric.count for metric in metrics), 0
            for batch in _chunks(self._new_points(remote, item, series, names), _MAX_METRICS):
                self._server.post("runs/log-batch", {"run_id": remote.id, "metrics": batch})
                failpoint("points sent")
                done += len(batch)
                self._report(f"points of {item.run.id}", done, total)
        self._set_tag(remote, run_mapping.POINTS, state)
        return names

    def _new_points(self, remote: _RemoteRun, item: Item, series: Series, names: NameMapper) -> Iterator[JsonDict]:
        """Yield the points that the server does not have. The server stores identical points only once."""
        for metric, points in _numeric_series(item, series):
            name = names(metric)
            existing = set(self._history(remote.id, name)) if name in remote.metrics else set()
            for point in points:
                if point.identity not in existing:
                    existing.add(point.identity)
                    yield point.to_json(name)

    def _history(self, run_id: str, name: str) -> Iterator[tuple[int, int, float | None]]:
        token = ""
        while True:
            query: dict[str, Any] = {"run_id": run_id, "metric_key": name, "max_results": _PAGE_SIZE}
            page = self._server.get("metrics/get-history", **query, **({"page_token": token} if token else {}))
            for point in page.get("metrics") or []:
                yield run_mapping.Point(
                    int(point.get("step") or 0), int(point["timestamp"]), float(point["value"])
                ).identity
            token = str(page.get("next_page_token") or "")
            if not token:
                return

    def _log_datasets(self, remote: _RemoteRun, item: Item) -> None:
        for dataset in run_mapping.datasets_of(item):
            self._server.post("runs/log-inputs", {"run_id": remote.id, "datasets": [dataset]})

    def _send_files(self, remote: _RemoteRun, item: Item, renamed: JsonDict) -> bool:
        state = self._files.state(item)
        if item.run.status.final and remote.tags.get(run_mapping.FILES) == state:
            return True
        is_complete = self._files.send(self._server, remote.id, remote.artifacts, item, renamed)
        if is_complete and item.run.status.final:
            self._set_tag(remote, run_mapping.FILES, state)
        return is_complete


def _numeric_series(item: Item, series: Series) -> Iterator[tuple[str, Iterable[run_mapping.Point]]]:
    """Yield all numeric series of a run under their original names."""
    for metric in series.names(item.child):
        if metric.kind == "row":
            yield from run_mapping.table_columns(item, series, metric.name).items()
        else:
            read = run_mapping.numeric_points if metric.kind == "number" else run_mapping.boolean_points
            yield metric.name, read(series, metric.name, item.child)


def _parents_first(items: Sequence[Item]) -> list[Item]:
    by_id = {item.run.id: item for item in items}
    done: dict[str, Item] = {}
    for item in items:
        chain: dict[str, Item] = {}
        current: Item | None = item
        while current is not None and current.run.id not in done and current.run.id not in chain:
            chain[current.run.id] = current
            current = by_id.get(current.run.spec.parent or "")
        done.update(reversed(chain.items()))
    return list(done.values())


def _batches(entries: Iterable[JsonDict], most: int) -> Iterator[list[JsonDict]]:
    """Split entries into batches within the limits for count and size."""
    batch: list[JsonDict] = []
    size = 0
    for entry in entries:
        length = len(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace"))
        if batch and (len(batch) >= most or size + length > _MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += length
    if batch:
        yield batch


def _chunks(entries: Iterator[JsonDict], most: int) -> Iterator[list[JsonDict]]:
    while chunk := list(islice(entries, most)):
        yield chunk


def _digest(entries: Iterable[Any]) -> str:
    return hashlib.sha256(json.dumps(list(entries)).encode()).hexdigest()[:32]


def _parse_names(text: str | None) -> list[str]:
    try:
        names = parse_json(text or "[]")
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _get_object(response: Any, name: str) -> JsonDict:
    value = response.get(name) if isinstance(response, dict) else None
    if not isinstance(value, dict):
        raise HostError(f"the response of the server has no {name}", "check that it is an MLflow server")
    return value


def _parse_run(run: Any) -> _RemoteRun:
    response = {"run": run}
    info, data = _get_object(_get_object(response, "run"), "info"), run.get("data") or {}

    def pairs(name: str) -> dict[str, str]:
        return {str(pair.get("key")): str(pair.get("value", "")) for pair in data.get(name) or []}

    return _RemoteRun(
        str(info.get("run_id") or info.get("run_uuid")),
        str(info.get("artifact_uri") or ""),
        pairs("params"),
        pairs("tags"),
        frozenset(pairs("metrics")),
    )
