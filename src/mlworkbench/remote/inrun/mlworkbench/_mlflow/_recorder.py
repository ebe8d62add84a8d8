"""Record MLflow's writes for the history of this run.

The first MLflow run of a script represents this run while it is the only top-level one. Nested runs are children. If
the script creates another top-level run, all of them are children. The first one also shares the data of this run.
All processes of a script use two files to determine which run was first and whether there are several.
"""

import json
import os
import time

from mlflow.utils.file_utils import local_file_uri_to_path

from .._log import flush, log_point, record
from ._location import relative_to_outputs

_STATUS = {
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "cancelled",
    "RUNNING": "running",
    "SCHEDULED": "queued",
}
_FIRST_TIMEOUT = 20  # seconds that other ranks wait until rank 0 has created its run
_FINAL = ("FINISHED", "FAILED", "KILLED")
_DATASET_FIELDS = ("source_type", "source", "schema", "profile")
_MAX_FIELD = 60000  # maximum number of characters
_PARENT = "mlflow.parentRunId"
_TABLES, _MODELS = "mlflow.loggedArtifacts", "mlflow.log-model.history"


class Recorder(object):
    """Recorder of MLflow's writes. ``find`` returns the fields of an MLflow run, or None if it is not written yet."""

    def __init__(self, folder, find):
        self._first_file = os.path.join(folder, "first")
        self._several_file = os.path.join(folder, "several")
        self._find = find
        self._first = None  # ID of the first MLflow run
        self._noted_several = False  # this process has recorded that there are several top-level runs
        self._pid = os.getpid()

    def complete(self):
        """End a call. A forked child may end with os._exit, so it writes at once, as MLflow's stores do."""
        if os.getpid() != self._pid:
            flush()

    # -- runs ----------------------------------------------------------------------------------------------

    def claim_first(self, run_id):
        """Try to claim that this is the first top-level run of all processes. Return whether it succeeded."""
        try:
            handle = os.open(self._first_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            file.write(run_id)
        self._first = run_id
        return True

    def wait_for_first(self):
        """Return the ID of the run that rank 0 creates, or None if it does not create one soon."""
        deadline = time.monotonic() + _FIRST_TIMEOUT
        while time.monotonic() < deadline:
            try:
                with open(self._first_file) as file:
                    run_id = file.read()
            except OSError:
                run_id = ""
            if run_id and self._find(run_id):
                self._first = run_id
                return run_id
            time.sleep(0.02)
        return None

    def release_first(self):
        """Undo the claim, because the run could not be created."""
        os.unlink(self._first_file)
        self._first = None

    def owner(self, run_id):
        """Return the part of a record that identifies its run; empty for this run."""
        if not self._first:
            try:
                with open(self._first_file) as file:
                    self._first = file.read()
            except OSError:
                pass
        return {} if run_id == self._first else {"run": run_id}

    def created(self, facts, tags):
        run_id, parent = facts["run_id"], tags.get(_PARENT)
        owner = self.owner(run_id)
        if owner:
            if parent is None:
                self._record_several()
            record("child", dict(_child(facts), parent=parent))
        elif self._has_several():  # another process created its run while this one claimed to be the first
            self._record_first()
        for name, value in tags.items():
            self.tag(facts, name, value)

    def changed(self, facts):
        """Record the name, the status, and the end of a run."""
        if self.owner(facts["run_id"]):
            record("child", _child(facts))
            return
        if facts["status"] in _FINAL:
            record("ended", {"status": _STATUS[facts["status"]]})
        if self._has_several():
            self._record_first()

    def deleted(self, facts, deleted):
        """Record that a run was deleted or restored. The first run then becomes a child: this run is never deleted."""
        if self.owner(facts["run_id"]):
            record("child", {"run": facts["run_id"], "deleted": deleted})
        else:
            self._record_first(deleted=deleted)

    def _has_several(self):
        return os.path.exists(self._several_file)

    def _record_several(self):
        if not self._noted_several:
            self._noted_several = True
            open(self._several_file, "a").close()
            self._record_first()

    def _record_first(self, **more):
        """Record the first run as one of several children. It has the same data as this run."""
        facts = self._find(self._first) if self._first else None
        if facts:
            record("child", dict(_child(facts), parent=None, same=True, **more))

    # -- data ----------------------------------------------------------------------------------------------

    def metric(self, run_id, metric):
        data, when = self.owner(run_id), metric.timestamp / 1000.0
        if data:
            data.update(name=metric.key, value=metric.value, step=metric.step)
            record("metric", data, when)
        else:
            log_point(metric.key, metric.value, when, metric.step)

    def param(self, run_id, name, value):
        record("param", dict(self.owner(run_id), name=name, value=value))

    def tag(self, facts, name, value):
        """Record a tag. ``value`` is None if it was deleted."""
        if name == _TABLES:
            self._tables(facts, value)
        elif name not in (_MODELS, _PARENT):
            record("tag", dict(self.owner(facts["run_id"]), name=name, value=value))

    def dataset(self, run_id, dataset, tags):
        data = dict(self.owner(run_id), name=dataset.name, digest=dataset.digest)
        for name in _DATASET_FIELDS:  # not in the index of the history, which contains only the name
            value = getattr(dataset, name, None)
            if value:
                data[name] = str(value)[:_MAX_FIELD]
        data["context"] = next((tag.value for tag in tags or () if tag.key == "mlflow.data.context"), None)
        record("dataset", data)

    def model(self, model):
        """Record a logged model of MLflow 3, which may have metrics of its own."""
        data = self.owner(model.source_run_id) if model.source_run_id else {}
        data.update(id=model.model_id, name=model.name, path=_output_path(model.artifact_location, ""))
        data.update(type=model.model_type, status=model.status.value, source_run=model.source_run_id)
        data.update(params=model.params, tags=model.tags)
        record("model", data)

    def model_metric(self, run_id, metric):
        data = dict(self.owner(run_id), model=metric.model_id, name=metric.key, value=metric.value, step=metric.step)
        data.update(time=metric.timestamp, dataset=metric.dataset_name, digest=metric.dataset_digest)
        record("model_metric", data)

    def file(self, run_id, uri, name, kind, title):
        path = _output_path(uri, name)
        if path is not None:
            record("file", dict(self.owner(run_id) if run_id else {}, path=path, name=title, **{"as": kind}))

    def _tables(self, facts, value):
        """Record the files that log_table created and listed in a tag."""
        try:
            tables = [entry["path"] for entry in json.loads(value) if entry["type"] == "table"]
        except (ValueError, KeyError, TypeError):
            return
        for name in tables:
            self.file(facts["run_id"], facts["artifact_uri"], name, "table", name)


def _output_path(uri, name):
    """Return the path of a file below outputs/, or None if it is elsewhere."""
    return relative_to_outputs(os.path.join(local_file_uri_to_path(uri), name)) if uri.startswith("file:") else None


def _child(facts):
    data = {"run": facts["run_id"], "name": facts["run_name"], "status": _STATUS.get(facts["status"])}
    if facts["start_time"]:
        data["started"] = facts["start_time"] / 1000.0
    if facts["status"] in _FINAL and facts.get("end_time"):
        data["ended"] = facts["end_time"] / 1000.0
    return data
