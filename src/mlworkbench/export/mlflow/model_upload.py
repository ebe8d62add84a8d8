"""Send the logged models of a run (MLflow 3): files, parameters, tags, and metrics.

The server assigns its own IDs. A tag contains the original ID, so that a repeated export finds the model again.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from ...history.journal_parsing import strict_json
from ...model import JsonDict
from ...remote.shared.layout import RunFolder
from ...runfiles.mlflow_sqlite import integer_of, text_of
from ...runfiles.output_manifest import Output
from ...runfiles.script_records import read_records
from ..run_data import Item, files_of, open_output
from .batches import chunks
from .name_mapping import MAX_NAME_LENGTH, MAX_PARAM_LENGTH, NameMapper, truncate
from .remote_run import RemoteRun, get_object
from .rest_client import Server
from .server_limits import ServerLimits

MODEL_ID = "mlw.model_id"
_ID = re.compile(r"m-[0-9a-f]{32}")
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_MAX_MODELS = 1000
_MAX_POINTS = 100_000
_MAX_FILE_TO_EDIT = 1 << 20
_SPECIAL_VALUES = ("NaN", "Infinity", "-Infinity")
_STATUS = {"READY": "LOGGED_MODEL_READY", "FAILED": "LOGGED_MODEL_UPLOAD_FAILED"}


@dataclass(frozen=True)
class ModelRecord:
    """A logged model as the script recorded it."""

    id: str
    name: str
    path: str  # below outputs/, or empty
    type: str
    status: str
    run: str  # the MLflow run of the script
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    points: tuple[JsonDict, ...] = ()


def read_models(folder: RunFolder, child: str | None) -> list[ModelRecord]:
    """Return the logged models of a run or of a nested run in it, in the order of their creation."""
    models: dict[str, ModelRecord] = {}
    points: dict[str, list[JsonDict]] = {}
    for kind, data in read_records(folder, "model", "model_metric"):
        if kind == "model" and data.get("run") == child:
            model = _model(data)
            if _ID.fullmatch(model.id) and (len(models) < _MAX_MODELS or model.id in models):
                models[model.id] = model
        elif kind == "model_metric":
            logged = points.setdefault(_name(data.get("model")), [])
            if len(logged) < _MAX_POINTS:
                logged += _point(data)
    return [replace(model, points=tuple(points.get(model.id, ()))) for model in models.values()]


def _model(data: JsonDict) -> ModelRecord:
    return ModelRecord(
        id=_name(data.get("id")),
        name=_name(data.get("name")),
        path=text_of(data.get("path")),
        type=_name(data.get("type")),
        status=_name(data.get("status")),
        run=_name(data.get("source_run")),
        params=_pairs(data.get("params")),
        tags=_pairs(data.get("tags")),
    )


def _point(data: JsonDict) -> Iterator[JsonDict]:
    """Yield the point if it is valid. Records of earlier versions have no time."""
    value, step, time = data.get("value"), integer_of(data.get("step")), integer_of(data.get("time"))
    is_number = value in _SPECIAL_VALUES or (isinstance(value, (int, float)) and not isinstance(value, bool))
    if is_number and time is not None and time >= 0:
        point = {"key": _name(data.get("name")), "value": strict_json(value), "timestamp": time, "step": step or 0}
        dataset = {"dataset_name": _name(data.get("dataset")), "dataset_digest": _name(data.get("digest"))}
        yield {**point, **{name: text for name, text in dataset.items() if text}}


def _name(value: Any) -> str:
    return text_of(value)[:500]


def _pairs(value: Any) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: text_of(text) for name, text in pairs if isinstance(name, str)}


class ModelUploader:
    """An uploader for the logged models of one run. ``send_file`` uploads a file below an artifact URI."""

    def __init__(self, server: Server, limits: ServerLimits, send_file: Callable[[str, str, BinaryIO], None]) -> None:
        self._server = server
        self._limits = limits
        self._send_file = send_file

    def send(self, remote: RemoteRun, item: Item, model: ModelRecord) -> str:
        """Create the model on the server, or complete it. Return its ID. Raise OSError if a file is missing."""
        info = self._find(remote.experiment_id, model.id) or self._create(remote, model)
        model_id, is_pending = text_of(info.get("model_id")), info.get("status") != _STATUS["READY"]
        if is_pending:
            ids = {model.id: model_id, **({model.run: remote.id} if _RUN_ID.fullmatch(model.run) else {})}
            self._send_files(item, model, text_of(info.get("artifact_uri")), ids)
            self._send_points(remote, model, model_id)
            self._server.post("runs/outputs", {"run_id": remote.id, "models": [{"model_id": model_id, "step": 0}]})
            status = _STATUS.get(model.status, _STATUS["READY"])
            self._server.patch(f"logged-models/{model_id}", {"model_id": model_id, "status": status})
        return model_id

    def _find(self, experiment_id: str, model_id: str) -> JsonDict | None:
        query = {
            "experiment_ids": [experiment_id],
            "filter": f"tags.`{MODEL_ID}` = '{model_id}'",
            "max_results": 1,
        }
        found = self._server.post("logged-models/search", query).get("models") or []
        return get_object(found[0], "info") if found else None

    def _create(self, remote: RemoteRun, model: ModelRecord) -> JsonDict:
        names = NameMapper(colon=self._limits.has_colon)
        tags = {**{names(name): value for name, value in model.tags.items()}, MODEL_ID: model.id}
        length = self._limits.tag_length
        body = {
            "experiment_id": remote.experiment_id,
            "name": _model_name(model.name),
            "model_type": model.type,
            "source_run_id": remote.id,
            "params": [
                {"key": names(name), "value": truncate(value, MAX_PARAM_LENGTH)} for name, value in model.params.items()
            ],
            "tags": [{"key": name, "value": truncate(value, length)} for name, value in tags.items()],
        }
        response = self._server.post("logged-models", body, retry=False)
        return get_object(get_object(response, "model"), "info")

    def _send_files(self, item: Item, model: ModelRecord, uri: str, ids: Mapping[str, str]) -> None:
        names = NameMapper(for_files=True)
        folder = f"{model.path}/"
        for _, output in files_of(item) if model.path else ():
            if output.path.startswith(folder):
                name = output.path[len(folder) :]
                with open_output(item, output) as file:
                    self._send_file(uri, names(name), _with_new_ids(name, output, file, ids))

    def _send_points(self, remote: RemoteRun, model: ModelRecord, model_id: str) -> None:
        names = NameMapper(colon=self._limits.has_colon)
        points = ({**point, "key": names(point["key"]), "model_id": model_id} for point in model.points)
        for batch in chunks(points):
            self._server.post("runs/log-batch", {"run_id": remote.id, "metrics": batch})


def _with_new_ids(name: str, output: Output, file: BinaryIO, ids: Mapping[str, str]) -> BinaryIO:
    """Replace IDs in the description of the model, which the server's clients read."""
    if name != "MLmodel" or output.size > _MAX_FILE_TO_EDIT:
        return file
    data = file.read()
    for old, new in ids.items():
        data = data.replace(old.encode(), new.encode())
    return io.BytesIO(data)


def _model_name(name: str) -> str:
    """Replace the characters that MLflow does not accept in names of models."""
    for character in "/:.%\"'":
        name = name.replace(character, "_")
    return name[:MAX_NAME_LENGTH] or "model"
