"""MLflow's tracking store in the run folder, which also records its writes for the history.

Experiments, runs, and logged models are journals (``_journal.py``): metric names are data in them, never file names.
Everything else of MLflow, such as traces, is delegated to MLflow's SQLite store (``_delegate.py``).
"""

import json
import os
import uuid

from mlflow.entities import LifecycleStage, Param, RunStatus, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, RESOURCE_DOES_NOT_EXIST
from mlflow.store.entities.paged_list import PagedList
from mlflow.store.tracking import SEARCH_MAX_RESULTS_THRESHOLD
from mlflow.store.tracking.abstract_store import AbstractStore
from mlflow.utils import validation
from mlflow.utils.file_utils import path_to_local_file_uri
from mlflow.utils.name_utils import _generate_random_name
from mlflow.utils.search_utils import SearchUtils
from mlflow.utils.time import get_current_time_millis
from mlflow.utils.uri import append_to_uri_path

from .._launch.ranks import read_rank
from .._run import run as current_run
from ._delegate import Delegate, add_delegated_methods, tracking_database
from ._experiments import DEFAULT_ID, ExperimentsMixin, check_active, check_max_results, text
from ._journal import locked
from ._location import artifact_root, create_root, database_path
from ._logged_models import LoggedModelsMixin, log_model_metric
from ._recorder import Recorder
from ._run_journal import RunJournal, metric_line

_PARENT, _NAME = "mlflow.parentRunId", "mlflow.runName"
_MODELS = "mlflow.log-model.history"


class Store(ExperimentsMixin, LoggedModelsMixin, AbstractStore):
    DEFAULT_EXPERIMENT_ID = DEFAULT_ID

    def __init__(self, folder, artifacts):
        super(Store, self).__init__()
        self._folder = os.path.join(folder, "runs")
        os.makedirs(self._folder, exist_ok=True)
        self.artifact_root_uri = path_to_local_file_uri(artifacts)
        self._runs = {}
        self._joined = set()  # runs of rank 0 that this process, another rank, uses
        self._recorder = Recorder(folder, self._find_facts)
        self._delegate = Delegate(self)
        self._open_experiments(folder)
        self._open_models(folder)

    # -- runs ----------------------------------------------------------------------------------------------

    def _run(self, run_id):
        """Return a run with everything that any process has written. Call it with the lock held."""
        run = self._find_run(run_id)
        if run is None:
            raise MlflowException("Run with id=%s not found" % run_id, RESOURCE_DOES_NOT_EXIST)
        return run

    def _find_run(self, run_id):
        run = self._runs.get(run_id)
        if run is None:
            validation._validate_run_id(run_id)
            run = RunJournal(os.path.join(self._folder, run_id + ".jsonl"))
            if not run.refresh().facts:
                return None
            self._runs[run_id] = run
        return run.refresh()

    def _find_facts(self, run_id):
        with locked():
            run = self._find_run(run_id)
            return run and run.facts

    def _active_run(self, run_id):
        run = self._run(run_id)
        check_active("run", run_id, run.facts["lifecycle_stage"])
        return run

    def _runs_of(self, experiment_ids):
        names = [name[: -len(".jsonl")] for name in os.listdir(self._folder) if name.endswith(".jsonl")]
        runs = [run for run in map(self._find_run, names) if run]
        return [run for run in runs if run.facts["experiment_id"] in experiment_ids]

    def create_run(self, experiment_id, user_id, start_time, tags, run_name):
        experiment = self._active_experiment(experiment_id)
        values = {tag.key: text(tag.value) for tag in tags or ()}
        if run_name and values.get(_NAME) and run_name != values[_NAME]:
            message = "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values"
            message += " (run_name='%s', mlflow.runName='%s')." % (run_name, values[_NAME])
            raise MlflowException(message, INVALID_PARAMETER_VALUE)
        if values.get(_PARENT) is None and read_rank(os.environ):
            first = self._recorder.wait_for_first()
            if first:
                self._joined.add(first)
                return self.get_run(first)
        run_id = uuid.uuid4().hex
        is_first = values.get(_PARENT) is None and self._recorder.claim_first(run_id)
        default_name = (is_first and current_run.id) or _generate_random_name()
        values[_NAME] = run_name or values.get(_NAME) or default_name
        facts = {
            "run_id": run_id,
            "run_name": values[_NAME],
            "experiment_id": experiment.experiment_id,
            "artifact_uri": self._run_location(experiment, run_id, is_first),
            "user_id": user_id,
            "status": RunStatus.to_string(RunStatus.RUNNING),
            "start_time": start_time,
            "end_time": None,
            "lifecycle_stage": LifecycleStage.ACTIVE,
        }
        lines = [["info", facts]] + [["tag", name, value] for name, value in values.items()]
        try:
            RunJournal(os.path.join(self._folder, run_id + ".jsonl")).journal.append(*lines)
        except BaseException:
            if is_first:
                self._recorder.release_first()
            raise
        self._recorder.created(facts, values)
        self._recorder.complete()
        return self.get_run(run_id)

    def _run_location(self, experiment, run_id, is_first):
        """Return the artifact folder of a run: outputs/ for the first one, unless the script set another location."""
        if not self._is_default_location(experiment.artifact_location):
            return append_to_uri_path(experiment.artifact_location, run_id, "artifacts")
        folder = current_run.outputs if is_first else os.path.join(artifact_root(), run_id)
        return path_to_local_file_uri(folder)

    def _is_default_location(self, uri):
        return bool(current_run.outputs) and uri.startswith(self.artifact_root_uri + "/")

    def get_run(self, run_id):
        with locked():
            return self._run(run_id).entity()

    def update_run_info(self, run_id, run_status, end_time, run_name):
        changes = {"status": RunStatus.to_string(run_status)} if run_status else {}
        if end_time:
            changes["end_time"] = end_time
        if run_name:
            changes["run_name"] = run_name
        with locked():
            run = self._active_run(run_id)
            if run_id in self._joined:
                return run.info()  # rank 0 ends and names the run
            self._change_run(run, changes, [["tag", _NAME, run_name]] if run_name else [])
            if run_name:
                self._recorder.tag(run.facts, _NAME, run_name)
            return run.info()

    def _change_run(self, run, changes, lines):
        run.journal.append(["info", changes], *lines)
        self._recorder.changed(run.refresh().facts)
        self._recorder.complete()

    def delete_run(self, run_id):
        with locked():
            self._set_lifecycle_stage(self._run(run_id), LifecycleStage.DELETED)

    def restore_run(self, run_id):
        with locked():
            self._set_lifecycle_stage(self._run(run_id), LifecycleStage.ACTIVE)

    def _set_lifecycle_stage(self, run, stage):
        is_deleted = stage == LifecycleStage.DELETED
        time = get_current_time_millis() if is_deleted else None
        run.journal.append(["info", {"lifecycle_stage": stage, "deleted_time": time}])
        self._recorder.deleted(run.refresh().facts, is_deleted)

    def _search_runs(self, experiment_ids, filter_string, run_view_type, max_results, order_by, page_token):
        max_results = SEARCH_MAX_RESULTS_THRESHOLD if max_results is None else max_results
        check_max_results(max_results)
        stages = LifecycleStage.view_type_to_stages(ViewType.ALL if run_view_type is None else run_view_type)
        with locked():
            runs = self._runs_of([str(experiment) for experiment in experiment_ids])
            runs = [run.entity() for run in runs if run.facts["lifecycle_stage"] in stages]
        runs = SearchUtils.sort(SearchUtils.filter(runs, filter_string), order_by)
        return SearchUtils.paginate(runs, page_token, max_results)

    # -- metrics, parameters, tags -------------------------------------------------------------------------

    def log_metric(self, run_id, metric):
        validation._validate_metric(metric.key, metric.value, metric.timestamp, metric.step)
        with locked():
            self._write(self._active_run(run_id), [metric], (), ())

    def log_param(self, run_id, param):
        param = validation._validate_param(param.key, param.value) or param
        with locked():
            self._write(self._active_run(run_id), (), [param], ())

    def set_tag(self, run_id, tag):
        tag = validation._validate_tag(tag.key, tag.value) or tag
        with locked():
            self._write(self._active_run(run_id), (), (), [tag])

    def log_batch(self, run_id, metrics, params, tags):
        checked = validation._validate_batch_log_data(metrics, params, tags)
        metrics, params, tags = checked or (metrics, params, tags)
        validation._validate_batch_log_limits(metrics, params, tags)
        validation._validate_param_keys_unique(params)
        with locked():
            self._write(self._active_run(run_id), metrics, params, tags)

    def _write(self, run, metrics, params, tags):
        """Write everything with one call, and record it for the history. If anything is invalid, nothing is written."""
        run_id = run.facts["run_id"]
        params = [Param(param.key, text(param.value)) for param in params]
        tags = [RunTag(tag.key, text(tag.value)) for tag in tags]
        if run_id in self._joined:  # MLflow has no ranks: it gets what rank 0 logs, and the history records all
            self._record(run, metrics, params, tags)
            self._recorder.complete()
            return
        for param in params:
            _check_unchanged(run, param)
        model_ids = {_model_id(metric) for metric in metrics} - {None, ""}
        models = {model_id: self._model(model_id, allow_deleted=True) for model_id in model_ids}
        # log_model repeats points to link them with the model (MLflow 3).
        points = metrics
        if models:
            points = [metric for metric in metrics if not (_model_id(metric) and run.has_point_without(metric))]
        lines = [["param", param.key, param.value] for param in params]
        lines += [metric_line(metric) for metric in points]
        lines += [["tag", tag.key, tag.value] for tag in tags]
        names = [tag.value for tag in tags if tag.key == _NAME]
        if names:
            lines.append(["info", {"run_name": names[-1]}])
        if lines:
            run.journal.append(*lines)
        for metric in metrics if models else ():
            if _model_id(metric):
                log_model_metric(models[metric.model_id], run_id, metric)
                self._recorder.model_metric(run_id, metric)
        self._record(run, points, params, tags)
        if names:
            self._recorder.changed(run.refresh().facts)
        self._recorder.complete()

    def _record(self, run, metrics, params, tags):
        """Record data for the history."""
        run_id = run.facts["run_id"]
        for metric in metrics:
            self._recorder.metric(run_id, metric)
        for param in params:
            self._recorder.param(run_id, param.key, param.value)
        for tag in tags:
            self._recorder.tag(run.facts, tag.key, tag.value)

    def delete_tag(self, run_id, key):
        with locked():
            run = self._active_run(run_id)
            if key not in run.tags:
                raise MlflowException("No tag with name: %s in run with id %s" % (key, run_id), RESOURCE_DOES_NOT_EXIST)
            run.journal.append(["untag", key])
            self._recorder.tag(run.facts, key, None)

    def get_metric_history(self, run_id, metric_key, max_results=None, page_token=None):
        validation._validate_metric_name(metric_key)
        with locked():
            metrics = self._run(run_id).history(metric_key)
        # Points with the same time and step stay in the order in which they were logged.
        metrics.sort(key=lambda metric: (metric.timestamp, metric.step))
        if max_results is None:
            return PagedList(metrics[SearchUtils.parse_start_offset_from_page_token(page_token) :], None)
        return PagedList(*SearchUtils.paginate(metrics, page_token, max_results))

    # -- inputs, outputs, models ---------------------------------------------------------------------------

    def log_inputs(self, run_id, datasets=None, models=None):
        if datasets is not None:
            if not isinstance(datasets, list):
                raise TypeError("Argument 'datasets' should be a list, got '%s'" % type(datasets))
            validation._validate_dataset_inputs(datasets)
        with locked():
            run = self._active_run(run_id)
            lines = [
                ["dataset", dict(item.dataset), [[tag.key, tag.value] for tag in item.tags or ()]]
                for item in datasets or ()
            ]
            lines += [["model_input", model.model_id] for model in models or ()]
            if lines:
                run.journal.append(*lines)
            for item in datasets or ():
                self._recorder.dataset(run_id, item.dataset, item.tags)

    def log_outputs(self, run_id, models):
        with locked():
            run = self._active_run(run_id)
            if models:
                run.journal.append(*[["output", model.model_id, model.step] for model in models])

    def record_logged_model(self, run_id, mlflow_model, *args, **kwargs):
        """Add a model to the tag that lists them, for MLflow before version 3 and for its user interface."""
        from mlflow.models import Model  # noqa: PLC0415 - slow, and loaded already if there is a model

        if not isinstance(mlflow_model, Model):
            raise TypeError("Argument 'mlflow_model' should be mlflow.models.Model, got '%s'" % type(mlflow_model))
        describe = getattr(mlflow_model, "get_tags_dict", mlflow_model.to_dict)
        with locked():
            run = self._active_run(run_id)
            models = json.loads(run.tags.get(_MODELS, "[]")) + [describe()]
            run.journal.append(["tag", _MODELS, json.dumps(models)])
            name = getattr(mlflow_model, "artifact_path", None)
            if name and not getattr(mlflow_model, "model_id", None):  # models with an ID are recorded when finalized
                self._recorder.file(run_id, run.facts["artifact_uri"], name, "model", name)


def _model_id(metric):
    return getattr(metric, "model_id", None)  # new in MLflow 3


def _check_unchanged(run, param):
    before = run.params.get(param.key, param.value)
    if before != param.value:
        message = "Changing param values is not allowed. Param with key='%s' was already logged with value='%s'"
        message += " for run ID='%s'. Attempted logging new value '%s'."
        message %= (param.key, before, run.facts["run_id"], param.value)
        raise MlflowException(message, INVALID_PARAMETER_VALUE)


add_delegated_methods(Store)


def open_store():
    if current_run.folder is None:
        # Nothing is recorded, so the script gets MLflow's own store in its folder.
        address = "sqlite:///" + database_path()
        return tracking_database(address, path_to_local_file_uri(artifact_root()))
    return Store(create_root(), artifact_root())
