"""Send what a run recorded beyond runs and files: logged models, versions of registered models, and traces."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ...errors import HistoryError
from ...remote.shared.layout import MLFLOW_DATABASE
from ...runfiles.mlflow_models import has_models
from ..run_data import Item
from .artifacts import Warn, file_size
from .model_upload import ModelRecord, ModelUploader, read_models
from .registry_upload import Version, VersionUploader, read_versions
from .remote_run import RemoteRun
from .rest_client import RequestRejected, Server
from .run_mapping import ENTITIES
from .server_limits import ServerLimits
from .trace_upload import Trace, TraceUploader, read_traces


@dataclass(frozen=True)
class Entities:
    """The entities of a run. ``problem`` is why some could not be read."""

    models: list[ModelRecord]
    versions: list[Version]
    traces: list[Trace]
    problem: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((self.models, self.versions, self.traces)).encode("utf-8", "replace")).hexdigest()[
            :32
        ]

    def __bool__(self) -> bool:
        return bool(self.models or self.versions or self.traces)


def read_entities(item: Item) -> Entities:
    if item.is_same:
        return Entities([], [], [])  # they are sent with the run that contains this one
    models = read_models(item.folder, item.child) if has_models(item.run) else []
    try:
        versions = [version for version in read_versions(item.folder) if _belongs(version.run, item)]
        traces = [trace for trace in read_traces(item.folder) if _belongs(trace.run, item)]
    except HistoryError as error:
        return Entities(models, [], [], error.message)
    return Entities(models, versions, traces)


def _belongs(mlflow_run: str, item: Item) -> bool:
    """Return whether this MLflow run is the item. Everything that is not of a nested run belongs to the run itself."""
    return mlflow_run == item.child if item.child is not None else mlflow_run not in item.children


class EntityUploader:
    """An uploader for the entities of runs, as far as the server supports them."""

    def __init__(self, server: Server, limits: ServerLimits, warn: Warn) -> None:
        self._server = server
        self._limits = limits
        self._warn = warn
        self._unsupported: Counter[str] = Counter()

    def supported(self, remote: RemoteRun, entities: Entities) -> Entities:
        """Return what the server accepts, and count the rest."""
        accepts_files = self._server.accepts_uploads(remote.artifacts)
        models = entities.models if self._limits.has_models and accepts_files else []
        traces = entities.traces if self._limits.has_traces and accepts_files else []
        self._unsupported["logged model"] += len(entities.models) - len(models)
        self._unsupported["trace"] += len(entities.traces) - len(traces)
        return Entities(models, entities.versions, traces, entities.problem)

    def send(self, remote: RemoteRun, item: Item, entities: Entities) -> bool:
        """Send the entities. Return whether all of them are now on the server."""
        problems = [entities.problem] if entities.problem else []
        if entities and remote.tags.get(ENTITIES) != entities.digest:
            problems += self._send(remote, item, entities)
            if not problems:
                body = {"run_id": remote.id, "key": ENTITIES, "value": entities.digest}
                self._server.post("runs/set-tag", body)
        for problem in problems:
            self._warn(f"run {item.run.id}: {problem}")
        return not problems

    def _send(self, remote: RemoteRun, item: Item, entities: Entities) -> Iterator[str]:
        models, ids = ModelUploader(self._server, self._limits, self._send_file), {}
        for model in entities.models:
            try:
                ids[model.id] = models.send(remote, item, model)
            except OSError:
                yield f"files of the logged model {model.name} are not on this machine"
            except RequestRejected as error:
                yield f"logged model {model.name}: {error.message}"
        yield from VersionUploader(self._server, item, remote, ids).send(entities.versions)
        yield from TraceUploader(self._server, remote, ids, self._send_file).send(item.folder, entities.traces)

    def _send_file(self, root: str, name: str, file: BinaryIO) -> None:
        self._server.put(root, name, file, file_size(file))

    def warn_unsupported(self) -> None:
        """Print one line about everything that the server does not support."""
        counts = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in self._unsupported.items() if count]
        if counts:
            version = f"MLflow {self._limits.version}" if self._limits.version else "of an unknown version"
            self._warn(f"not sent, because the server ({version}) does not accept them: {' and '.join(counts)}")


def excluded_files(entities: Entities) -> tuple[str, ...]:
    """Return the beginnings of output paths that were sent with entities and not as artifacts of the run."""
    models = (f"{model.path}/" for model in entities.models if model.path)
    traces = (f"mlflow/{trace.experiment}/traces/{trace.id}/" for trace in entities.traces)
    return (*models, *traces, MLFLOW_DATABASE)
