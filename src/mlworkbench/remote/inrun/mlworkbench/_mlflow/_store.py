"""MLflow's own file store in the run's folder; what it writes is recorded for the history too.

The first run that a script starts is this run. Those inside it, and those after it, are its children. Which one
was first is decided by one file, so that it holds for all processes of a script.
"""

import json
import os
import shutil
import threading

from mlflow.store.tracking.file_store import FileStore
from mlflow.utils.file_utils import local_file_uri_to_path, path_to_local_file_uri

from .._log import point, record
from .._run import run, tell_once
from ._place import artifact_root, below_outputs, file_store_allowed, root

_STATUS = {
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "cancelled",
    "RUNNING": "running",
    "SCHEDULED": "queued",
}
_FINAL = ("FINISHED", "FAILED", "KILLED")
_MOST_AT_ONCE = 1000  # points of a series in one millisecond that are remembered
_OF_DATASET = ("source_type", "source", "schema", "profile")
_LONGEST = 60000  # characters of one of them
_PARENT, _NAME = "mlflow.parentRunId", "mlflow.runName"
_TABLES, _MODELS = "mlflow.loggedArtifacts", "mlflow.log-model.history"


class Store(FileStore):
    def __init__(self, folder, artifacts):
        self._first_file = os.path.join(folder, "first")
        self._first = None  # id of the run that is this run
        self._several = False  # another one, not inside it, was started
        self._now = threading.local()  # what this thread is making
        self._infos = {}
        self._last = {}  # run and name of a metric -> time of the last points, and these
        super(Store, self).__init__(folder, path_to_local_file_uri(artifacts))

    # -- runs ----------------------------------------------------------------------------------------------

    def create_run(self, experiment_id, user_id, start_time, tags, run_name):
        given = {tag.key: tag.value for tag in tags or ()}
        parent = given.get(_PARENT)
        first = parent is None and self._claim()
        if first and not run_name and not given.get(_NAME):
            run_name = run.id
        self._now.making, self._now.first = True, first
        try:
            made = super(Store, self).create_run(experiment_id, user_id, start_time, tags, run_name)
        except BaseException:
            if first:
                os.unlink(self._first_file)
            raise
        finally:
            self._now.making = False
        if first:
            self._name_first(made.info.run_id)
        else:
            self._tell_child(made.info, parent)
        for name, value in made.data.tags.items():
            self._tell_tag(made.info.run_id, name, value)
        return made

    def update_run_info(self, run_id, run_status, end_time, run_name):
        info = super(Store, self).update_run_info(run_id, run_status, end_time, run_name)
        if getattr(self._now, "making", False):
            return info
        if self._belongs(run_id):
            changed = {"run": run_id, "name": info.run_name, "status": _STATUS.get(info.status)}
            if info.status in _FINAL and info.end_time:
                changed["ended"] = info.end_time / 1000.0
            record("child", changed)
        elif info.status in _FINAL:
            record("ended", {"status": _STATUS[info.status]})
        return info

    def _claim(self):
        try:
            os.close(os.open(self._first_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def _name_first(self, run_id):
        with open(self._first_file, "w") as file:
            file.write(run_id)
        self._first = run_id

    def _belongs(self, run_id):
        """The part of a record that says whose it is: nothing for this run."""
        if not self._first:
            try:
                with open(self._first_file) as file:
                    self._first = file.read()
            except OSError:
                pass
        return {} if run_id == self._first else {"run": run_id}

    def _tell_child(self, info, parent):
        belongs = self._belongs(info.run_id)
        if parent is None and self._first and not self._several:
            self._several = True
            self._tell_first_too()
        belongs.update(
            parent=parent if parent != self._first else None,
            name=info.run_name,
            status=_STATUS.get(info.status),
            started=info.start_time / 1000.0 if info.start_time else None,
        )
        record("child", belongs)

    def _tell_first_too(self):
        """One of several runs: what this run recorded is that of one of its children."""
        info = self._get_run_info(self._first)
        started = info.start_time / 1000.0 if info.start_time else None
        record("child", {"run": self._first, "parent": None, "name": info.run_name, "started": started, "same": True})

    # -- what is logged ------------------------------------------------------------------------------------

    def _log_run_metric(self, run_info, metric):
        if getattr(metric, "model_id", None) and self._is_known(run_info, metric):
            return
        _keep(super(Store, self)._log_run_metric, run_info, metric)
        last = self._last.get((run_info.run_id, metric.key))
        if last is None or last[0] != metric.timestamp or len(last[1]) >= _MOST_AT_ONCE:
            last = self._last[run_info.run_id, metric.key] = (metric.timestamp, set())
        last[1].add((metric.step, repr(metric.value)))
        belongs, when = self._belongs(run_info.run_id), metric.timestamp / 1000.0
        if belongs:
            belongs.update(name=metric.key, value=metric.value, step=metric.step)
            record("metric", belongs, when)
        else:
            point(metric.key, metric.value, when, metric.step)

    def _is_known(self, run_info, metric):
        """Since MLflow 3, log_model logs points again to link them with the model. Its databases drop those too."""
        last = self._last.get((run_info.run_id, metric.key))
        if last is not None and metric.timestamp >= last[0]:
            return metric.timestamp == last[0] and (metric.step, repr(metric.value)) in last[1]
        same = [str(metric.timestamp), str(metric.value), str(metric.step)]
        try:
            with open(self._get_metric_path(run_info.experiment_id, run_info.run_id, metric.key)) as file:
                return any(line.split()[:3] == same for line in file)
        except OSError:
            return False

    def _log_run_param(self, run_info, param):
        _keep(super(Store, self)._log_run_param, run_info, param)
        record("param", dict(self._belongs(run_info.run_id), name=param.key, value=self._writeable_value(param.value)))

    def _set_run_tag(self, run_info, tag):
        _keep(super(Store, self)._set_run_tag, run_info, tag)
        if not getattr(self._now, "making", False):
            self._tell_tag(run_info.run_id, tag.key, self._writeable_value(tag.value))

    def delete_tag(self, run_id, key):
        super(Store, self).delete_tag(run_id, key)
        record("tag", dict(self._belongs(run_id), name=key, value=None))

    def _tell_tag(self, run_id, name, value):
        if name == _TABLES:
            self._tell_tables(run_id, value)
        elif name not in (_MODELS, _PARENT):
            record("tag", dict(self._belongs(run_id), name=name, value=value))

    def log_inputs(self, run_id, datasets=None, *args, **kwargs):
        super(Store, self).log_inputs(run_id, datasets, *args, **kwargs)
        for given in datasets or ():
            data = dict(self._belongs(run_id), name=given.dataset.name, digest=given.dataset.digest)
            for name in _OF_DATASET:  # for an export; the history shows the name
                value = getattr(given.dataset, name, None)
                if value:
                    data[name] = str(value)[:_LONGEST]
            data["context"] = next((tag.value for tag in given.tags or () if tag.key == "mlflow.data.context"), None)
            record("dataset", data)

    # -- files ---------------------------------------------------------------------------------------------

    def _get_artifact_dir(self, experiment_id, run_uuid):
        usual = super(Store, self)._get_artifact_dir(experiment_id, run_uuid)
        if not self._is_ours(usual):
            return usual  # the script told this experiment where its artifacts go
        if getattr(self._now, "first", False):
            return path_to_local_file_uri(run.outputs)
        return path_to_local_file_uri(os.path.join(artifact_root(), run_uuid))

    def _is_ours(self, uri):
        return bool(run.outputs) and uri.startswith(self.artifact_root_uri + "/")

    def _tell_tables(self, run_id, value):
        """log_table keeps a list of its files in a tag."""
        try:
            tables = [one["path"] for one in json.loads(value) if one["type"] == "table"]
        except (ValueError, KeyError, TypeError):
            return
        for name in tables:
            self._tell_file(run_id, self._get_run_info(run_id).artifact_uri, name, "table", name)

    def _tell_file(self, run_id, uri, name, kind, title):
        path = below_outputs(os.path.join(local_file_uri_to_path(uri), name))
        if path is not None:
            record("file", dict(self._belongs(run_id) if run_id else {}, path=path, name=title, **{"as": kind}))

    def record_logged_model(self, run_id, mlflow_model, *args, **kwargs):
        super(Store, self).record_logged_model(run_id, mlflow_model, *args, **kwargs)
        name = getattr(mlflow_model, "artifact_path", None)
        if name and not getattr(mlflow_model, "model_id", None):  # the others are told when they are whole
            self._tell_file(run_id, self._get_run_info(run_id).artifact_uri, name, "model", name)

    def create_logged_model(self, experiment_id="0", name=None, source_run_id=None, *args, **kwargs):
        self._now.model = (name, source_run_id)
        return super(Store, self).create_logged_model(experiment_id, name, source_run_id, *args, **kwargs)

    def finalize_logged_model(self, model_id, status, *args, **kwargs):
        model = super(Store, self).finalize_logged_model(model_id, status, *args, **kwargs)
        if model.artifact_location.startswith("file:"):
            self._tell_file(model.source_run_id, model.artifact_location, "", "model", model.name)
        return model

    def _get_model_artifact_dir(self, experiment_id, model_id):
        """Since MLflow 3 a model is beside its run's artifacts: here it is below them, by its name."""
        usual = super(Store, self)._get_model_artifact_dir(experiment_id, model_id)
        if not self._is_ours(usual):
            return usual
        name, source = self._now.model
        outside = source is None or not self._belongs(source)
        folder = os.path.join(run.outputs if outside else os.path.join(artifact_root(), source), "models")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name or model_id)
        try:
            os.mkdir(path)
        except FileExistsError:
            path = os.path.join(folder, "%s-%s" % (name, model_id))
        return path_to_local_file_uri(path)

    # -- speed ---------------------------------------------------------------------------------------------

    def _get_run_info(self, run_uuid):
        """Every call asks for it; read again only when its file has changed."""
        known = self._infos.get(run_uuid)
        if known is not None and known[1] == _stamp(known[0]):
            return known[2]
        folder = self._find_run_root(run_uuid)[1]
        path = folder and os.path.join(folder, self.META_DATA_FILE_NAME)
        stamp = path and _stamp(path)
        info = super(Store, self)._get_run_info(run_uuid)
        self._infos[run_uuid] = (path, stamp, info)
        return info


def _keep(write, run_info, one):
    """Let the file store write it. It cannot keep both "a" and "a/b", which MLflow's databases can."""
    try:
        write(run_info, one)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        message = "%r is recorded in this run, but MLflow cannot read it back: its name conflicts with another name"
        tell_once("clash", message % one.key)


def _stamp(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def make_root():
    """The store's folder, whole or not at all: several processes may begin at the same moment."""
    folder = root()
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
    make_root()
    with file_store_allowed():
        return Store(root(), artifact_root()) if run.folder else FileStore(root())
