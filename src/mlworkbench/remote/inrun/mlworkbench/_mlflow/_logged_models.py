"""Logged models of MLflow 3, each in its own journal."""

import os
import re
import uuid

from mlflow.entities import LifecycleStage
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities.paged_list import PagedList
from mlflow.utils import validation
from mlflow.utils.file_utils import path_to_local_file_uri
from mlflow.utils.name_utils import _generate_random_name
from mlflow.utils.time import get_current_time_millis
from mlflow.utils.uri import append_to_uri_path

from .._run import run as current_run
from ._experiments import text
from ._journal import Journal, locked
from ._location import artifact_root
from ._run_journal import make_metric, point_order

_ID = re.compile(r"m-[0-9a-f]{32}\Z")
_MAX_RESULTS = 100  # MLflow's default


class _ModelJournal(object):
    """A logged model, with the latest point of each metric and dataset."""

    def __init__(self, path):
        self.journal = Journal(path, self._apply)
        self.facts = {}
        self.tags = {}
        self.params = {}
        self._latest = {}  # name, dataset name, and dataset digest -> point and run ID

    def refresh(self):
        self.journal.refresh()
        return self

    def _apply(self, line):
        kind, values = line[0], line[1:]
        if kind == "info":
            self.facts.update(values[0])
        elif kind == "tag":
            self.tags[values[0]] = values[1]
        elif kind == "untag":
            self.tags.pop(values[0], None)
        elif kind == "param":
            self.params[values[0]] = values[1]
        elif kind == "metric":
            name, dataset, digest, run_id = values[:4]
            before = self._latest.get((name, dataset, digest))
            if before is None or point_order(values[4:]) >= point_order(before[1:]):
                self._latest[name, dataset, digest] = values[3:]

    def entity(self):
        """Return the model with all points, as MLflow's databases do, but each of them only once."""
        points = {tuple(line[1:]): None for line in self.journal.read_all("metric")}
        return self._entity(list(points) or None)

    def searchable(self):
        """Return the model with the latest points only, which searches compare. Without any, they need a list."""
        return self._entity([key + tuple(point) for key, point in self._latest.items()])

    def _entity(self, points):
        from mlflow.entities import LoggedModel, LoggedModelStatus  # noqa: PLC0415 - new in MLflow 3

        model_id = self.facts["model_id"]
        metrics = points and [
            make_metric(run_id, name, value, timestamp, step, model_id, dataset, digest)
            for name, dataset, digest, run_id, value, timestamp, step in points
        ]
        facts = {name: value for name, value in self.facts.items() if name != "lifecycle_stage"}
        facts["status"] = LoggedModelStatus(facts["status"])
        return LoggedModel(tags=dict(self.tags), params=dict(self.params), metrics=metrics, **facts)


class LoggedModelsMixin(object):
    """The methods of a tracking store for logged models."""

    def _open_models(self, folder):
        self._model_folder = os.path.join(folder, "models")
        os.makedirs(self._model_folder, exist_ok=True)
        self._models = {}

    def _model(self, model_id, allow_deleted=False):
        model = self._models.get(model_id)
        if model is None and _ID.match(str(model_id)):
            model = _ModelJournal(os.path.join(self._model_folder, model_id + ".jsonl"))
        facts = model.refresh().facts if model else {}
        if not facts or (facts["lifecycle_stage"] == LifecycleStage.DELETED and not allow_deleted):
            message = "Logged model with ID '%s' not found." % model_id
            raise MlflowException(message, RESOURCE_DOES_NOT_EXIST)
        self._models[model_id] = model
        return model

    def create_logged_model(
        self, experiment_id="0", name=None, source_run_id=None, tags=None, params=None, model_type=None
    ):
        from mlflow.entities import LoggedModelStatus  # noqa: PLC0415 - new in MLflow 3

        _check_name(name)
        experiment = self._active_experiment(experiment_id)
        lines = _param_lines(params) + _tag_lines(tags)
        model_id, now = "m-" + uuid.uuid4().hex, get_current_time_millis()
        name = name or _generate_random_name()
        facts = {
            "experiment_id": experiment.experiment_id,
            "model_id": model_id,
            "name": name,
            "artifact_location": self._model_location(experiment, name, model_id, source_run_id),
            "creation_timestamp": now,
            "last_updated_timestamp": now,
            "source_run_id": source_run_id,
            "status": LoggedModelStatus.PENDING.value,
            "model_type": model_type,
            "lifecycle_stage": LifecycleStage.ACTIVE,
        }
        with locked():
            _ModelJournal(os.path.join(self._model_folder, model_id + ".jsonl")).journal.append(["info", facts], *lines)
            model = self._model(model_id).entity()
            self._recorder.model(model)  # a script may never finalize it
            return model

    def _model_location(self, experiment, name, model_id, source_run_id):
        """Return the folder of a model: ``models/<name>`` below the artifacts of its run.

        MLflow 3 would place it next to the artifacts.
        """
        if not self._is_default_location(experiment.artifact_location):
            return append_to_uri_path(experiment.artifact_location, "models", model_id, "artifacts")
        is_top_level = source_run_id is None or not self._recorder.owner(source_run_id)
        parent = current_run.outputs if is_top_level else os.path.join(artifact_root(), source_run_id)
        folder = os.path.join(parent, "models")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name)
        try:
            os.mkdir(path)
        except FileExistsError:
            path = os.path.join(folder, "%s-%s" % (name, model_id))
        return path_to_local_file_uri(path)

    def get_logged_model(self, model_id, allow_deleted=False):
        with locked():
            return self._model(model_id, allow_deleted).entity()

    def finalize_logged_model(self, model_id, status):
        with locked():
            self._change_model(model_id, status=status.value)
            model = self._model(model_id, allow_deleted=True).entity()
        self._recorder.file(model.source_run_id, model.artifact_location, "", "model", model.name)
        self._recorder.model(model)
        return model

    def delete_logged_model(self, model_id):
        with locked():
            self._change_model(model_id, lifecycle_stage=LifecycleStage.DELETED)

    def _change_model(self, model_id, *lines, **changes):
        changes["last_updated_timestamp"] = get_current_time_millis()
        self._model(model_id, allow_deleted=True).journal.append(["info", changes], *lines)

    def set_logged_model_tags(self, model_id, tags):
        self._change_and_record_model(model_id, *_tag_lines(tags))

    def delete_logged_model_tag(self, model_id, key):
        with locked():
            if key not in self._model(model_id, allow_deleted=True).tags:
                message = "No tag with key %r found for model with ID %r." % (key, model_id)
                raise MlflowException(message, RESOURCE_DOES_NOT_EXIST)
            self._change_and_record_model(model_id, ["untag", key])

    def log_logged_model_params(self, model_id, params):
        self._change_and_record_model(model_id, *_param_lines(params))

    def _change_and_record_model(self, model_id, *lines):
        with locked():
            self._change_model(model_id, *lines)
            self._recorder.model(self._model(model_id, allow_deleted=True).entity())

    def search_logged_models(
        self, experiment_ids, filter_string=None, datasets=None, max_results=None, order_by=None, page_token=None
    ):
        from mlflow.utils.search_utils import SearchLoggedModelsUtils as Search  # noqa: PLC0415 - new in MLflow 3

        if datasets and not all(dataset.get("dataset_name") for dataset in datasets):
            message = "`dataset_name` in the `datasets` clause must be specified."
            raise MlflowException(message, INVALID_PARAMETER_VALUE)
        with locked():
            models = self._models_of([str(experiment) for experiment in experiment_ids])
        conditions = [filter_string, datasets] if datasets else [filter_string]  # MLflow 3.0 has no datasets here
        models = Search.sort(Search.filter_logged_models(models, *conditions), order_by)
        page, token = Search.paginate(models, page_token, max_results or _MAX_RESULTS)
        with locked():
            return PagedList([self._model(model.model_id, allow_deleted=True).entity() for model in page], token)

    def _models_of(self, experiment_ids):
        models = []
        for name in os.listdir(self._model_folder):
            try:
                model = self._model(name[: -len(".jsonl")])
            except MlflowException:
                continue  # deleted
            if model.facts["experiment_id"] in experiment_ids:
                models.append(model.searchable())
        return models


def log_model_metric(model, run_id, metric):
    point = [float(metric.value), int(metric.timestamp), int(metric.step)]
    model.journal.append(["metric", metric.key, metric.dataset_name, metric.dataset_digest, run_id] + point)


def _check_name(name):
    """Check a model name, with MLflow's check if this version has one. A slash could escape the models folder."""
    if hasattr(validation, "_validate_logged_model_name"):
        validation._validate_logged_model_name(name)
    elif name is not None and (not name or os.path.basename(name) != name or name.startswith(".")):
        raise MlflowException("Invalid model name (%r) provided." % name, INVALID_PARAMETER_VALUE)


# As MLflow's databases do, both keep names and values as they are. Models have longer parameters than runs may have.


def _param_lines(params):
    return [["param", param.key, text(param.value)] for param in params or ()]


def _tag_lines(tags):
    return [["tag", tag.key, text(tag.value)] for tag in tags or ()]
