"""MLflow experiments, kept in one journal."""

import os
import uuid

from mlflow.entities import Experiment, ExperimentTag, LifecycleStage, ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import (
    INVALID_PARAMETER_VALUE,
    INVALID_STATE,
    RESOURCE_ALREADY_EXISTS,
    RESOURCE_DOES_NOT_EXIST,
)
from mlflow.store.entities.paged_list import PagedList
from mlflow.store.tracking import SEARCH_MAX_RESULTS_DEFAULT, SEARCH_MAX_RESULTS_THRESHOLD
from mlflow.utils import validation
from mlflow.utils.search_utils import SearchExperimentsUtils, SearchUtils
from mlflow.utils.time import get_current_time_millis
from mlflow.utils.uri import append_to_uri_path, resolve_uri_if_local

from ._journal import Journal, locked

DEFAULT_ID = "0"
_DEFAULT_NAME = "Default"
_DEFAULT_ORDER = ["creation_time DESC", "experiment_id ASC"]


def text(value):
    """Return a parameter or tag value as MLflow's stores keep it."""
    return "" if value is None else value if isinstance(value, str) else str(value)


class _ExperimentJournal(object):
    """All experiments. If two processes create the same name, the first line wins."""

    def __init__(self, path):
        self.journal = Journal(path, self._apply)
        self.facts = {}  # ID -> fields of Experiment
        self.tags = {}

    def refresh(self):
        self.journal.refresh()
        return self

    def _apply(self, line):
        kind, experiment, values = line[0], line[1], line[2:]
        if kind == "create":
            taken = experiment in self.facts or self.find(values[0]["name"])
            if not taken:
                self.facts[experiment] = dict(values[0], experiment_id=experiment)
                self.tags[experiment] = dict(values[1])
        elif experiment not in self.facts:
            pass
        elif kind == "update":
            self.facts[experiment].update(values[0])
        elif kind == "tag":
            self.tags[experiment][values[0]] = values[1]
        elif kind == "untag":
            self.tags[experiment].pop(values[0], None)

    def find(self, name):
        return next((facts for facts in self.facts.values() if facts["name"] == name), None)

    def next_id(self):
        return str(1 + max(map(int, self.facts)))

    def entity(self, experiment):
        tags = [ExperimentTag(*item) for item in self.tags[experiment].items()]
        return Experiment.from_dictionary(dict(self.facts[experiment], tags=tags))


class ExperimentsMixin(object):
    """The methods of a tracking store for experiments."""

    def _open_experiments(self, folder):
        self._experiments = _ExperimentJournal(os.path.join(folder, "experiments.jsonl"))
        if not self._experiments.journal.exists():
            self._append_experiment(DEFAULT_ID, _DEFAULT_NAME, None, ())

    def _append_experiment(self, experiment_id, name, location, tags):
        now = get_current_time_millis()
        location = resolve_uri_if_local(location) if location else self._default_location(experiment_id)
        facts = {"name": name, "artifact_location": location, "lifecycle_stage": LifecycleStage.ACTIVE}
        facts.update(creation_time=now, last_update_time=now, token=uuid.uuid4().hex)
        tag_values = {tag.key: text(tag.value) for tag in tags}
        self._experiments.journal.append(["create", experiment_id, facts, tag_values])
        return facts["token"]

    def _default_location(self, experiment_id):
        return append_to_uri_path(self.artifact_root_uri, experiment_id)

    def create_experiment(self, name, artifact_location=None, tags=None):
        validation._validate_experiment_name(name)
        if artifact_location and hasattr(validation, "_validate_experiment_artifact_location_length"):
            validation._validate_experiment_artifact_location_length(artifact_location)
        for tag in tags or ():
            validation._validate_experiment_tag(tag.key, tag.value)
        with locked():
            while True:
                self._require_new_name(name)
                experiment_id = self._experiments.next_id()
                token = self._append_experiment(experiment_id, name, artifact_location, tags or ())
                if self._experiments.refresh().facts.get(experiment_id, {}).get("token") == token:
                    return experiment_id
                # Another process has created an experiment with this ID at the same time: use the next one.

    def _require_new_name(self, name):
        facts = self._experiments.refresh().find(name)
        if facts is None:
            return
        state = " in deleted state" if facts["lifecycle_stage"] == LifecycleStage.DELETED else ""
        raise MlflowException("Experiment(name=%s) already exists%s." % (name, state), RESOURCE_ALREADY_EXISTS)

    def get_experiment(self, experiment_id):
        experiment_id = _checked_id(experiment_id)
        with locked():
            if experiment_id not in self._experiments.refresh().facts:
                raise MlflowException("No Experiment with id=%s exists" % experiment_id, RESOURCE_DOES_NOT_EXIST)
            return self._experiments.entity(experiment_id)

    def get_experiment_by_name(self, experiment_name):
        with locked():
            facts = self._experiments.refresh().find(experiment_name)
            return self._experiments.entity(facts["experiment_id"]) if facts else None

    def _active_experiment(self, experiment_id):
        experiment = self.get_experiment(experiment_id)
        check_active("experiment", experiment.experiment_id, experiment.lifecycle_stage)
        return experiment

    def search_experiments(
        self,
        view_type=ViewType.ACTIVE_ONLY,
        max_results=SEARCH_MAX_RESULTS_DEFAULT,
        filter_string=None,
        order_by=None,
        page_token=None,
    ):
        check_max_results(max_results)
        with locked():
            experiments = [self._experiments.entity(experiment) for experiment in self._experiments.refresh().facts]
        stages = LifecycleStage.view_type_to_stages(view_type)
        experiments = [experiment for experiment in experiments if experiment.lifecycle_stage in stages]
        experiments = SearchExperimentsUtils.filter(experiments, filter_string)
        experiments = SearchExperimentsUtils.sort(experiments, order_by or _DEFAULT_ORDER)
        return PagedList(*SearchUtils.paginate(experiments, page_token, max_results))

    def rename_experiment(self, experiment_id, new_name):
        validation._validate_experiment_name(new_name)
        with locked():
            experiment = self.get_experiment(experiment_id)
            if experiment.lifecycle_stage != LifecycleStage.ACTIVE:
                raise MlflowException("Cannot rename a non-active experiment.", INVALID_STATE)
            if new_name != experiment.name:
                self._require_new_name(new_name)
            self._update_experiment(experiment_id, name=new_name)

    def delete_experiment(self, experiment_id):
        self._move_experiment(experiment_id, LifecycleStage.ACTIVE, LifecycleStage.DELETED)

    def restore_experiment(self, experiment_id):
        self._move_experiment(experiment_id, LifecycleStage.DELETED, LifecycleStage.ACTIVE)

    def _move_experiment(self, experiment_id, before, after):
        with locked():
            experiment = self.get_experiment(experiment_id)
            if experiment.lifecycle_stage != before:
                message = "No %s experiment with id=%s exists"
                raise MlflowException(message % (before, experiment_id), RESOURCE_DOES_NOT_EXIST)
            self._update_experiment(experiment_id, lifecycle_stage=after)
            for run in self._runs_of([experiment.experiment_id]):
                if run.facts["lifecycle_stage"] == before:
                    self._set_lifecycle_stage(run, after)

    def _update_experiment(self, experiment_id, **changes):
        changes["last_update_time"] = get_current_time_millis()
        self._experiments.journal.append(["update", _checked_id(experiment_id), changes])

    def set_experiment_tag(self, experiment_id, tag):
        validation._validate_experiment_tag(tag.key, tag.value)
        tag = validation._validate_tag(tag.key, tag.value) or tag
        with locked():
            experiment = self._active_experiment(experiment_id)
            self._experiments.journal.append(["tag", experiment.experiment_id, tag.key, text(tag.value)])

    def delete_experiment_tag(self, experiment_id, key):
        with locked():
            experiment = self._active_experiment(experiment_id)
            if key not in experiment.tags:
                message = "No tag with name: %s in experiment with id %s"
                raise MlflowException(message % (key, experiment_id), RESOURCE_DOES_NOT_EXIST)
            self._experiments.journal.append(["untag", experiment.experiment_id, key])


def _checked_id(experiment_id):
    """Return an experiment ID as text. As in MLflow's databases, only numbers are IDs."""
    try:
        return str(int(experiment_id or DEFAULT_ID))
    except (ValueError, TypeError):
        message = "Invalid experiment ID '%s'. Experiment ID must be a valid integer."
        raise MlflowException(message % (experiment_id,), INVALID_PARAMETER_VALUE)


def check_active(kind, name, stage):
    """Raise MLflow's error if a script changes a run or an experiment that is deleted."""
    if stage != LifecycleStage.ACTIVE:
        message = "The %s %s must be in the 'active' state. Current state is %s."
        raise MlflowException(message % (kind, name, stage), INVALID_PARAMETER_VALUE)


def check_max_results(max_results):
    """Raise MLflow's error if a search asks for too many results, or for none."""
    expected = None
    if not isinstance(max_results, int) or max_results < 1:
        expected = "a positive integer"
    elif max_results > SEARCH_MAX_RESULTS_THRESHOLD:
        expected = "at most %d" % SEARCH_MAX_RESULTS_THRESHOLD
    if expected:
        message = "Invalid value %s for parameter 'max_results' supplied. It must be %s"
        raise MlflowException(message % (max_results, expected), INVALID_PARAMETER_VALUE)
