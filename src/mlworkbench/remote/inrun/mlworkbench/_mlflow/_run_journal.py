"""One MLflow run, read from its journal, which every process of the script can extend."""

import inspect
import math

from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    Metric,
    Param,
    Run,
    RunData,
    RunInfo,
    RunInputs,
    RunTag,
)

from ._journal import Journal

_MAX_REMEMBERED = 1000  # maximum number of points with the same timestamp, per series
_METRIC_FIELDS = set(inspect.signature(Metric.__init__).parameters)
_HAS_MODELS = "run_outputs" in inspect.signature(Run.__init__).parameters  # MLflow 3


class RunJournal(object):
    """A run. The latest point of each metric is kept in memory; the series stays in the file."""

    def __init__(self, path):
        self.journal = Journal(path, self._apply)
        self.facts = {}  # the fields of RunInfo
        self.params = {}
        self.tags = {}
        self._latest = {}  # name -> point
        self._recent = {}  # name -> last timestamp and the points with this timestamp, with their model IDs
        self._datasets = {}  # (name, digest) -> dataset and its tags
        self._model_inputs = {}
        self._outputs = {}  # model ID -> step

    def refresh(self):
        """Read what was written since the last call, also by other processes."""
        self.journal.refresh()
        return self

    def _apply(self, line):
        kind, values = line[0], line[1:]
        if kind == "metric":
            self._apply_metric(*values)
        elif kind == "info":
            self.facts.update(values[0])
        elif kind == "param":
            self.params.setdefault(*values)  # a parameter never changes
        elif kind == "tag":
            self.tags[values[0]] = values[1]
        elif kind == "untag":
            self.tags.pop(values[0], None)
        elif kind == "dataset":
            self._datasets.setdefault((values[0]["name"], values[0]["digest"]), values)
        elif kind == "model_input":
            self._model_inputs[values[0]] = None
        elif kind == "output":
            self._outputs[values[0]] = values[1]

    def _apply_metric(self, name, value, timestamp, step, *more):
        point = (value, timestamp, step) + more
        latest = self._latest.get(name)
        if latest is None or point_order(point) >= point_order(latest):
            self._latest[name] = point
        recent = self._recent.get(name)
        if recent is None or recent[0] != timestamp or len(recent[1]) >= _MAX_REMEMBERED:
            recent = self._recent[name] = (timestamp, {})
        recent[1].setdefault((step, repr(value)), more[0] if more else None)

    def has_point_without(self, metric):
        """Return whether the run already has this point, but without this model."""
        recent = self._recent.get(metric.key)
        if recent is None or metric.timestamp > recent[0]:
            return False
        point = (metric.step, repr(float(metric.value)))
        if metric.timestamp == recent[0] and point in recent[1]:
            return recent[1][point] != metric.model_id
        earlier = [m for m in self.history(metric.key) if m.timestamp == metric.timestamp]
        return any((m.step, repr(m.value)) == point and m.model_id != metric.model_id for m in earlier)

    # -- entities ------------------------------------------------------------------------------------------

    def info(self):
        return RunInfo.from_dictionary(dict(self.facts, run_uuid=self.facts["run_id"]))

    def entity(self):
        metrics = [self._metric(name, *point) for name, point in self._latest.items()]
        params = [Param(*item) for item in self.params.items()]
        data = RunData(metrics, params, [RunTag(*item) for item in self.tags.items()])
        datasets = [
            DatasetInput(Dataset.from_dictionary(dataset), [InputTag(*tag) for tag in tags])
            for dataset, tags in self._datasets.values()
        ]
        if not _HAS_MODELS:
            return Run(self.info(), data, RunInputs(datasets))
        from mlflow.entities import LoggedModelInput, LoggedModelOutput, RunOutputs  # noqa: PLC0415 - new in MLflow 3

        inputs = RunInputs(datasets, [LoggedModelInput(model) for model in self._model_inputs])
        outputs = RunOutputs([LoggedModelOutput(model, step) for model, step in self._outputs.items()])
        return Run(self.info(), data, inputs, outputs)

    def history(self, name):
        """Return all points of a metric, in the order in which they were logged."""
        return [self._metric(*line[1:]) for line in self.journal.read_all("metric", name)]

    def _metric(self, name, *point):
        return make_metric(self.facts["run_id"], name, *point)


def metric_line(metric):
    """Return the journal line of a point. The last fields exist only in MLflow 3 and are mostly empty."""
    line = ["metric", metric.key, float(metric.value), int(metric.timestamp), int(metric.step)]
    extra = [getattr(metric, name, None) for name in ("model_id", "dataset_name", "dataset_digest")]
    return line + extra if any(extra) else line


def make_metric(run_id, name, value, timestamp, step, *more):
    """Return a point of a run. ``more`` are the model ID, the name of the dataset, and its digest (MLflow 3)."""
    fields = dict(zip(("model_id", "dataset_name", "dataset_digest"), more), run_id=run_id)
    known = {field: content for field, content in fields.items() if field in _METRIC_FIELDS}
    return Metric(name, value, timestamp, step, **known)


def point_order(point):
    """Return the sort key of a point: the latest one has the highest step, then time, then value, as in MLflow."""
    value, timestamp, step = point[:3]
    return (step, timestamp, 0.0 if math.isnan(value) else value)
