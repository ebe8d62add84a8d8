"""MLflow's file store in the run folder, which also records its writes for the history.

The first MLflow run of a script represents this run. Nested and later runs are its children. One
file determines which run was first, for all processes of a script.
"""

import json
import os
import shutil
import threading

from mlflow.store.tracking.file_store import FileStore
from mlflow.utils.file_utils import local_file_uri_to_path, path_to_local_file_uri

from .._log import log_point, record
from .._run import run, warn_once
from ._location import artifact_root, file_store_allowed, relative_to_outputs, store_root

_STATUS = {
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "cancelled",
    "RUNNING": "running",
    "SCHEDULED": "queued",
}
_FINAL = ("FINISHED", "FAILED", "KILLED")
_MAX_REMEMBERED = 1000  # maximum number of points with the same timestamp, per series
_DATASET_FIELDS = ("source_type", "source", "schema", "profile")
_MAX_FIELD = 60000  # maximum number of characters
_PARENT, _NAME = "mlflow.parentRunId", "mlflow.runName"
_TABLES, _MODELS = "mlflow.loggedArtifacts", "mlflow.log-model.history"


class Store(FileStore):
    def __init__(self, folder, artifacts):
        self._first_file = os.path.join(folder, "first")
        self._first = None  # ID of the first MLflow run, which represents this run
        self._has_several = False  # another top-level run was started
        self._current = threading.local()  # the run or model that this thread is creating
        self._infos = {}
        self._last_points = {}  # (run, metric name) -> time and last points
        super(Store, self).__init__(folder, path_to_local_file_uri(artifacts))

    # -- runs ----------------------------------------------------------------------------------------------

    def create_run(self, experiment_id, user_id, start_time, tags, run_name):
        tags_by_name = {tag.key: tag.value for tag in tags or ()}
        parent = tags_by_name.get(_PARENT)
        is_first = parent is None and self._claim_first()
        if is_first and not run_name and not tags_by_name.get(_NAME):
            run_name = run.id
        self._current.creating_run, self._current.is_first = True, is_first
        try:
            created = super(Store, self).create_run(experiment_id, user_id, start_time, tags, run_name)
        except BaseException:
            if is_first:
                os.unlink(self._first_file)
            raise
        finally:
            self._current.creating_run = False
        if is_first:
            self._save_first(created.info.run_id)
        else:
            self._record_child(created.info, parent)
        for name, value in created.data.tags.items():
            self._record_tag(created.info.run_id, name, value)
        return created

    def update_run_info(self, run_id, run_status, end_time, run_name):
        info = super(Store, self).update_run_info(run_id, run_status, end_time, run_name)
        if getattr(self._current, "creating_run", False):
            return info
        if self._owner(run_id):
            changed = {"run": run_id, "name": info.run_name, "status": _STATUS.get(info.status)}
            if info.status in _FINAL and info.end_time:
                changed["ended"] = info.end_time / 1000.0
            record("child", changed)
        elif info.status in _FINAL:
            record("ended", {"status": _STATUS[info.status]})
        return info

    def _claim_first(self):
        try:
            os.close(os.open(self._first_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def _save_first(self, run_id):
        with open(self._first_file, "w") as file:
            file.write(run_id)
        self._first = run_id

    def _owner(self, run_id):
        """Return the part of a record that identifies its run; empty for this run."""
        if not self._first:
            try:
                with open(self._first_file) as file:
                    self._first = file.read()
            except OSError:
                pass
        return {} if run_id == self._first else {"run": run_id}

    def _record_child(self, info, parent):
        data = self._owner(info.run_id)
        if parent is None and self._first and not self._has_several:
            self._has_several = True
            self._record_first_as_child()
        data.update(
            parent=parent if parent != self._first else None,
            name=info.run_name,
            status=_STATUS.get(info.status),
            started=info.start_time / 1000.0 if info.start_time else None,
        )
        record("child", data)

    def _record_first_as_child(self):
        """Record the first run as one of several children. It has the same data as this run."""
        info = self._get_run_info(self._first)
        started = info.start_time / 1000.0 if info.start_time else None
        record("child", {"run": self._first, "parent": None, "name": info.run_name, "started": started, "same": True})

    # -- metrics, parameters, tags -------------------------------------------------------------------------

    def _log_run_metric(self, run_info, metric):
        if getattr(metric, "model_id", None) and self._is_duplicate(run_info, metric):
            return
        _write_entity(super(Store, self)._log_run_metric, run_info, metric)
        last = self._last_points.get((run_info.run_id, metric.key))
        if last is None or last[0] != metric.timestamp or len(last[1]) >= _MAX_REMEMBERED:
            last = self._last_points[run_info.run_id, metric.key] = (metric.timestamp, set())
        last[1].add((metric.step, repr(metric.value)))
        data, when = self._owner(run_info.run_id), metric.timestamp / 1000.0
        if data:
            data.update(name=metric.key, value=metric.value, step=metric.step)
            record("metric", data, when)
        else:
            log_point(metric.key, metric.value, when, metric.step)

    def _is_duplicate(self, run_info, metric):
        """Return whether log_model only repeats this point to link it with a model (MLflow 3).

        MLflow's databases also drop such points.
        """
        last = self._last_points.get((run_info.run_id, metric.key))
        if last is not None and metric.timestamp >= last[0]:
            return metric.timestamp == last[0] and (metric.step, repr(metric.value)) in last[1]
        same = [str(metric.timestamp), str(metric.value), str(metric.step)]
        try:
            with open(self._get_metric_path(run_info.experiment_id, run_info.run_id, metric.key)) as file:
                return any(line.split()[:3] == same for line in file)
        except OSError:
            return False

    def _log_run_param(self, run_info, param):
        _write_entity(super(Store, self)._log_run_param, run_info, param)
        record("param", dict(self._owner(run_info.run_id), name=param.key, value=self._writeable_value(param.value)))

    def _set_run_tag(self, run_info, tag):
        _write_entity(super(Store, self)._set_run_tag, run_info, tag)
        if not getattr(self._current, "creating_run", False):
            self._record_tag(run_info.run_id, tag.key, self._writeable_value(tag.value))

    def delete_tag(self, run_id, key):
        super(Store, self).delete_tag(run_id, key)
        record("tag", dict(self._owner(run_id), name=key, value=None))

    def _record_tag(self, run_id, name, value):
        if name == _TABLES:
            self._record_tables(run_id, value)
        elif name not in (_MODELS, _PARENT):
            record("tag", dict(self._owner(run_id), name=name, value=value))

    def log_inputs(self, run_id, datasets=None, *args, **kwargs):
        super(Store, self).log_inputs(run_id, datasets, *args, **kwargs)
        for dataset_input in datasets or ():
            data = dict(self._owner(run_id), name=dataset_input.dataset.name, digest=dataset_input.dataset.digest)
            for name in _DATASET_FIELDS:  # only for exports: the history shows just the name
                value = getattr(dataset_input.dataset, name, None)
                if value:
                    data[name] = str(value)[:_MAX_FIELD]
            data["context"] = next(
                (tag.value for tag in dataset_input.tags or () if tag.key == "mlflow.data.context"), None
            )
            record("dataset", data)

    # -- files ---------------------------------------------------------------------------------------------

    def _get_artifact_dir(self, experiment_id, run_uuid):
        default = super(Store, self)._get_artifact_dir(experiment_id, run_uuid)
        if not self._is_default_location(default):
            return default  # the script set this experiment's artifact location
        if getattr(self._current, "is_first", False):
            return path_to_local_file_uri(run.outputs)
        return path_to_local_file_uri(os.path.join(artifact_root(), run_uuid))

    def _is_default_location(self, uri):
        return bool(run.outputs) and uri.startswith(self.artifact_root_uri + "/")

    def _record_tables(self, run_id, value):
        """Record the files that log_table created and listed in a tag."""
        try:
            tables = [entry["path"] for entry in json.loads(value) if entry["type"] == "table"]
        except (ValueError, KeyError, TypeError):
            return
        for name in tables:
            self._record_file(run_id, self._get_run_info(run_id).artifact_uri, name, "table", name)

    def _record_file(self, run_id, uri, name, kind, title):
        path = relative_to_outputs(os.path.join(local_file_uri_to_path(uri), name))
        if path is not None:
            record("file", dict(self._owner(run_id) if run_id else {}, path=path, name=title, **{"as": kind}))

    def record_logged_model(self, run_id, mlflow_model, *args, **kwargs):
        super(Store, self).record_logged_model(run_id, mlflow_model, *args, **kwargs)
        name = getattr(mlflow_model, "artifact_path", None)
        if name and not getattr(mlflow_model, "model_id", None):  # models with an ID are recorded when finalized
            self._record_file(run_id, self._get_run_info(run_id).artifact_uri, name, "model", name)

    def create_logged_model(self, experiment_id="0", name=None, source_run_id=None, *args, **kwargs):
        self._current.model = (name, source_run_id)
        return super(Store, self).create_logged_model(experiment_id, name, source_run_id, *args, **kwargs)

    def finalize_logged_model(self, model_id, status, *args, **kwargs):
        model = super(Store, self).finalize_logged_model(model_id, status, *args, **kwargs)
        if model.artifact_location.startswith("file:"):
            self._record_file(model.source_run_id, model.artifact_location, "", "model", model.name)
        return model

    def _get_model_artifact_dir(self, experiment_id, model_id):
        """Return the folder of a model: ``models/<name>`` below the artifacts of its run.

        MLflow 3 would place it next to the artifacts.
        """
        default = super(Store, self)._get_model_artifact_dir(experiment_id, model_id)
        if not self._is_default_location(default):
            return default
        name, source = self._current.model
        is_top_level = source is None or not self._owner(source)
        folder = os.path.join(run.outputs if is_top_level else os.path.join(artifact_root(), source), "models")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name or model_id)
        try:
            os.mkdir(path)
        except FileExistsError:
            path = os.path.join(folder, "%s-%s" % (name, model_id))
        return path_to_local_file_uri(path)

    # -- cache ----------------------------------------------------------------------------------------------

    def _get_run_info(self, run_uuid):
        """Return cached run information, and read it again only if its file has changed.

        It is cached because every call needs it.
        """
        cached = self._infos.get(run_uuid)
        if cached is not None and cached[1] == _file_version(cached[0]):
            return cached[2]
        folder = self._find_run_root(run_uuid)[1]
        path = folder and os.path.join(folder, self.META_DATA_FILE_NAME)
        stamp = path and _file_version(path)
        info = super(Store, self)._get_run_info(run_uuid)
        self._infos[run_uuid] = (path, stamp, info)
        return info


def _write_entity(write, run_info, entity):
    """Write to the file store. Warn about conflicting names: unlike databases, it cannot store "a" and "a/b"."""
    try:
        write(run_info, entity)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        message = "%r is recorded in this run, but MLflow cannot read it back: its name conflicts with another name"
        warn_once("clash", message % entity.key)


def _file_version(path):
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ino, status.st_size)


def create_root():
    """Create the store's folder atomically, because several processes may start at the same time."""
    folder = store_root()
    if not os.path.exists(folder):
        part = "%s.%d-%s" % (folder, os.getpid(), os.urandom(4).hex())
        try:
            with file_store_allowed():
                FileStore(part, path_to_local_file_uri(artifact_root()))
            os.rename(part, folder)
        except OSError:
            if not os.path.exists(folder):
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)


def open_store():
    create_root()
    with file_store_allowed():
        return Store(store_root(), artifact_root()) if run.folder else FileStore(store_root())
