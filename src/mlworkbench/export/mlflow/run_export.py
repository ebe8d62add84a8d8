"""Export runs to an MLflow server. Repeated exports update the same run, identified by a tag."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from ...errors import UsageError
from ...model import JsonDict
from ...remote.shared.untrusted_json import parse_json
from ..run_data import Item
from . import run_mapping
from .artifacts import ArtifactUploader, Report, Warn
from .batches import MAX_OTHERS, pair_batches
from .entity_upload import EntityUploader, excluded_files, read_entities
from .metric_upload import log_points
from .name_mapping import NameMapper
from .remote_run import RemoteRun, get_object, parse_run
from .rest_client import RequestRejected, Server
from .server_limits import limits_of

_MAX_PARALLEL = 4  # the default number of workers of an MLflow server
_MAX_NAMES = 5  # names in a warning
_INTERNAL_TAGS = (run_mapping.TAG_NAMES, run_mapping.POINTS, run_mapping.FILES, run_mapping.ENTITIES)


@dataclass(frozen=True)
class ExportResult:
    """The result of exporting one run. ``id`` is empty if the server rejected the run."""

    run: str  # ID in mlw
    id: str  # ID on the server
    address: str  # URL for a browser
    state: str  # created, updated, or rejected
    is_complete: bool  # everything was uploaded


class Exporter:
    """An exporter of runs to one server, several at a time.

    If ``experiment`` is None, the experiment is named after the run's project.
    """

    def __init__(
        self, server: Server, experiment: str | None, files: ArtifactUploader, report: Report, warn: Warn
    ) -> None:
        self._server = server
        self._limits = limits_of(server.version())
        self._experiment = experiment
        self._files = files
        self._entities = EntityUploader(server, self._limits, warn)
        self._report = report
        self._warn = warn
        self._experiments: dict[str, str] = {}
        self._ids: dict[tuple[str, str], str] = {}  # (experiment, run) → ID on the server

    def send(self, items: Sequence[Item]) -> Iterator[ExportResult]:
        """Export the runs, with parents before their children. Yield the results in the order of completion."""
        for item in items:
            self._experiment_id(item)
        pool = ThreadPoolExecutor(_MAX_PARALLEL)
        try:
            for generation in _generations(items):
                for done in as_completed([pool.submit(self._send, item) for item in generation]):
                    yield done.result()
            self._entities.warn_unsupported()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self._server.abort()
            raise
        finally:
            pool.shutdown()

    def _send(self, item: Item) -> ExportResult:
        try:
            return self._send_run(item)
        except RequestRejected as error:
            self._warn(f"run {item.run.id} was not exported completely: {error.message}")
            return ExportResult(item.run.id, "", "", "rejected", False)

    def _send_run(self, item: Item) -> ExportResult:
        experiment_id = self._experiment_id(item)
        params, tags, metrics = (NameMapper(colon=self._limits.has_colon) for _ in range(3))
        tag_values = run_mapping.tags_of(item, tags, self._limits.tag_length)
        parent = self._parent_id(experiment_id, item)
        if parent:
            tag_values[run_mapping.PARENT] = parent
        remote = self._find_run(experiment_id, item.run.id)
        state = "updated" if remote else "created"
        if remote is None:
            # A new run is created with its ID tag, so that the next export finds it even after an interruption.
            remote = self._create_run(experiment_id, item, tag_values)
        self._ids[experiment_id, item.run.id] = remote.id
        self._log_params_and_tags(remote, item, run_mapping.params_of(item, params), tag_values)
        log_points(self._server, remote, item, metrics, self._report)
        self._log_datasets(remote, item)
        renamed = {"params": params.changed(), "tags": tags.changed(), "metrics": metrics.changed()}
        self._warn_renamed(item, renamed)
        entities = self._entities.supported(remote, read_entities(item))
        has_all_entities = self._entities.send(remote, item, entities)
        is_complete = self._send_files(remote, item, renamed, excluded_files(entities)) and has_all_entities
        self._finish(remote, item)
        address = f"{self._server.uri}/#/experiments/{experiment_id}/runs/{remote.id}"
        return ExportResult(item.run.id, remote.id, address, state, is_complete)

    # -- the experiment and the run ----------------------------------------------------------------

    def _experiment_id(self, item: Item) -> str:
        """Return the ID of the run's experiment, creating the experiment if it does not exist."""
        name = self._experiment or item.run.spec.project_name or "mlw"
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
        experiment = get_object(response, "experiment")
        if experiment.get("lifecycle_stage") == "deleted":
            raise UsageError(
                f"experiment {name!r} was deleted on the server", "restore it there, or choose another --experiment"
            )
        return experiment

    def _find_run(self, experiment_id: str, run_id: str) -> RemoteRun | None:
        query = {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{run_mapping.RUN_ID}` = '{run_id}'",
            "run_view_type": "ACTIVE_ONLY",
            "max_results": 2,
        }
        runs = self._server.post("runs/search", query).get("runs") or []
        return parse_run(runs[0]) if runs else None

    def _create_run(self, experiment_id: str, item: Item, tags: dict[str, str]) -> RemoteRun:
        first = (run_mapping.RUN_ID, "mlflow.runName", "mlflow.user", run_mapping.PARENT)
        body = {
            "experiment_id": experiment_id,
            "run_name": tags["mlflow.runName"],
            "start_time": run_mapping.start_of(item),
            "tags": [{"key": name, "value": tags[name]} for name in first if name in tags],
        }
        if "mlflow.user" in tags:
            body["user_id"] = tags["mlflow.user"]
        return parse_run(self._server.post("runs/create", body, retry=False).get("run"))

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

    def _finish(self, remote: RemoteRun, item: Item) -> None:
        body: JsonDict = {
            "run_id": remote.id,
            "status": run_mapping.status_of(item),
            "run_name": run_mapping.name_of(item),
        }
        if item.run.status.final and item.run.ended is not None:
            body["end_time"] = run_mapping.milliseconds(item.run.ended)
        self._server.post("runs/update", body)

    # -- contents of the run -----------------------------------------------------------------------

    def _log_params_and_tags(self, remote: RemoteRun, item: Item, params: dict[str, str], tags: dict[str, str]) -> None:
        """Send what differs. Delete tags of an earlier export that the run no longer has."""
        fixed = [name for name, value in params.items() if remote.params.get(name, value) != value]
        if fixed:
            names = ", ".join(fixed[:_MAX_NAMES])
            self._warn(f"run {item.run.id}: MLflow cannot change parameters; old values are kept: {names}")
        tag_names = sorted(name for name in tags if not name.startswith("mlflow."))
        old_names = _parse_names(remote.tags.get(run_mapping.TAG_NAMES))
        all_tags = {**tags, run_mapping.TAG_NAMES: json.dumps(tag_names)} if len(json.dumps(tag_names)) < 4000 else tags
        for name in old_names:
            if name not in tags and name in remote.tags and name not in _INTERNAL_TAGS:
                self._server.post("runs/delete-tag", {"run_id": remote.id, "key": name})
        new_params = [{"key": name, "value": value} for name, value in params.items() if name not in remote.params]
        new_tags = [{"key": name, "value": value} for name, value in all_tags.items() if remote.tags.get(name) != value]
        for body in pair_batches(new_params, new_tags):
            self._server.post("runs/log-batch", {"run_id": remote.id, **body})

    def _set_tag(self, remote: RemoteRun, name: str, value: str) -> None:
        self._server.post("runs/set-tag", {"run_id": remote.id, "key": name, "value": value})

    def _log_datasets(self, remote: RemoteRun, item: Item) -> None:
        datasets = run_mapping.datasets_of(item)
        for first in range(0, len(datasets), MAX_OTHERS):
            body = {"run_id": remote.id, "datasets": datasets[first : first + MAX_OTHERS]}
            self._server.post("runs/log-inputs", body)

    def _warn_renamed(self, item: Item, renamed: JsonDict) -> None:
        changes = [f"{name!r} → {mapped!r}" for names in renamed.values() for name, mapped in names.items()]
        if changes:
            more = f", and {len(changes) - _MAX_NAMES} more" if len(changes) > _MAX_NAMES else ""
            names = ", ".join(changes[:_MAX_NAMES])
            self._warn(f"run {item.run.id}: the server does not accept some names: {names}{more}")

    def _send_files(self, remote: RemoteRun, item: Item, renamed: JsonDict, excluded: tuple[str, ...]) -> bool:
        state = self._files.state(item)
        if item.run.status.final and remote.tags.get(run_mapping.FILES) == state:
            return True
        is_complete = self._files.send(self._server, remote, item, renamed, excluded)
        if is_complete and item.run.status.final:
            self._set_tag(remote, run_mapping.FILES, state)
        return is_complete


def _generations(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the runs without a parent among the items, then their children, and so on. Ignore cycles."""
    parents = {item.run.id: item.run.spec.parent for item in items}
    left = list(items)
    while left:
        pending = {item.run.id for item in left}
        generation = [item for item in left if parents[item.run.id] not in pending] or left
        yield generation
        chosen = {item.run.id for item in generation}
        left = [item for item in left if item.run.id not in chosen]


def _parse_names(text: str | None) -> list[str]:
    try:
        names = parse_json(text or "[]")
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
