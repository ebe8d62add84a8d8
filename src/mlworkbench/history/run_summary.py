"""Summarize what a script recorded: latest value and range of each metric, parameters, tags, and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from ..model import DATASET_TAG, LOGGED_MODEL_TAG, JsonDict, Run, Span
from ..remote.shared.metric_limits import rank_number
from .journal_parsing import PARSE_ERRORS, as_float, decode_floats, point_value
from .metric_precedence import shown_names

MAX_METRICS = 100_000
MAX_CHARACTERS = 64 * 1024 * 1024  # Maximum total length of a run's names and values, including nested runs
MAX_CHILDREN = 5_000
_MAX_RECORDS = 10_000  # Maximum number each of parameters, tags, and files
_MAX_TEXT = 6_000  # Maximum length of a value, as in MLflow
_MAX_NAME = 1_000
_NUMBERS = (int, float, bool)
_INT64_LIMIT = 1 << 63
_TEXT_FIELDS = ("name", "status", "parent")
_TIME_FIELDS = ("started", "ended")
_CHILD_FIELDS = (*_TEXT_FIELDS, *_TIME_FIELDS, "same", "deleted")
_ENTRY_OVERHEAD = 100  # characters per entry besides its name and value, such as separators and a metric's span


class _SizeBudget:
    """Remaining size budget for a run's records, with counts of dropped items."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._free: int | None = None  # computed on first use: most lines only add a number to a known metric
        self.left_out = dict(run.over_limit)

    def take(self, size: int, kind: str) -> bool:
        if self._free is None:
            self._free = MAX_CHARACTERS - _run_size(self._run)
        if size > 0 and size > self._free:
            self.reject(kind)
            return False
        self._free -= size
        return True

    def reject(self, kind: str, count: int = 1) -> None:
        self.left_out[kind] = self.left_out.get(kind, 0) + count


class SummaryBuilder:
    """Builder of a run's summary from parsed lines.

    For numbers, the value with the highest step wins, then the one with the latest time, as in MLflow,
    regardless of file order. Strings, parameters, and tags have no timestamp here, so the last one read
    wins.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._budget = _SizeBudget(run)
        self._recorder = self._own_recorder(run)
        self._external = {
            source: self._external_recorder(run, source)
            for source in {source for source, _ in run.metric_sources.values()}
        }
        self._children = {name: _ChildRecorder(self._budget, record) for name, record in run.children.items()}
        self._has_changed = False

    def leave_out(self, kind: str, count: int) -> None:
        """Record that ``count`` items of the given kind were dropped."""
        if count:
            self._has_changed = True
            self._budget.reject(kind, count)

    def _own_recorder(self, run: Run) -> _Recorder:
        own = [name for name in run.metrics if name not in run.metric_sources]
        metrics = {name: run.metrics[name] for name in own}
        spans = {name: run.spans[name] for name in own if name in run.spans}
        return _Recorder(self._budget, metrics, spans, run.params, run.told_tags, run.files)

    def _external_recorder(self, run: Run, source: str) -> _Recorder:
        names = {name: shown for shown, (origin, name) in run.metric_sources.items() if origin == source}
        metrics = {name: run.metrics[shown] for name, shown in names.items() if shown in run.metrics}
        spans = {name: run.spans[shown] for name, shown in names.items() if shown in run.spans}
        return _Recorder(self._budget, metrics, spans, {}, {}, {})

    def take(self, lines: Iterable[JsonDict], source: str = "") -> None:
        """Process parsed lines, skipping invalid ones.

        ``source`` is "" for lines of the in-run library, and otherwise the name of the metrics file.
        """
        if source and source not in self._external:
            self._external[source] = _Recorder(self._budget, {}, {}, {}, {}, {})
        point = (self._external[source] if source else self._recorder).point
        for line in lines:
            self._has_changed = True
            try:
                if "n" in line:
                    point(line["n"], line, line.get("t", 0.0))
                elif "k" in line and not (source and self._is_known(line, source)):
                    self._record(line["k"], line["d"], line.get("t", 0.0))
            except PARSE_ERRORS:
                continue

    def run(self) -> Run:
        """Return the run, updated with all processed lines."""
        if not self._has_changed:
            return self._run
        recorder = self._recorder
        metrics, spans, metric_sources = self._merge_sources()
        return replace(
            self._run,
            metrics=metrics,
            spans=spans,
            metric_sources=metric_sources,
            params=recorder.params,
            told_tags=recorder.tags,
            files=recorder.files,
            children={name: child.to_json() for name, child in self._children.items()},
            over_limit=self._budget.left_out,
        )

    def _merge_sources(self) -> tuple[dict[str, Any], dict[str, Span], dict[str, list[str]]]:
        """Return the metrics of all sources by their shown names, their spans, and the sources."""
        metrics, spans, sources = self._recorder.metrics, self._recorder.spans, {}
        if any(recorder.metrics for recorder in self._external.values()):
            metrics, spans = dict(metrics), dict(spans)
            names = {source: recorder.metrics for source, recorder in self._external.items()}
            for (source, name), shown in shown_names(metrics, names).items():
                recorder = self._external[source]
                metrics[shown], sources[shown] = recorder.metrics[name], [source, name]
                if name in recorder.spans:
                    spans[shown] = recorder.spans[name]
        return metrics, spans, sources

    def _is_known(self, line: JsonDict, source: str) -> bool:
        """Return whether a line is a known parameter, or a known tag of another rank, which rank 0 has set, too.

        The in-run library takes precedence over other sources of parameters.
        """
        data = line["d"]
        if "run" in data:
            return False
        is_known_tag = line["k"] == "tag" and bool(rank_number(source)) and str(data["name"]) in self._recorder.tags
        return is_known_tag or (line["k"] == "param" and str(data["name"]) in self._recorder.params)

    def _record(self, kind: Any, data: JsonDict, when: Any) -> None:
        recorder = self._find_recorder(data.get("run"))
        if recorder is None:
            self._budget.reject("records")
            return
        if kind == "metric":
            recorder.point(data["name"], {"v": data["value"], "s": data.get("step")}, when)
        elif kind == "row":
            for column, value in data["row"].items():
                recorder.point(f"{data['name']}.{column}", {"v": value}, when)
        elif kind == "child" and isinstance(recorder, _ChildRecorder):
            recorder.update(data)
        elif kind == "ended" and isinstance(recorder, _ChildRecorder):
            recorder.update({"status": data["status"], "ended": when})
        elif kind in ("param", "tag", "file", "dataset", "model"):
            getattr(recorder, kind)(data)

    def _find_recorder(self, name: Any) -> _Recorder | None:
        if name is None:
            return self._recorder
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
            return None
        recorder = self._children.get(name)
        if recorder is None and len(self._children) < MAX_CHILDREN:
            recorder = self._children[name] = _ChildRecorder(self._budget, {})
        return recorder


class _Recorder:
    def __init__(
        self,
        budget: _SizeBudget,
        metrics: Mapping[str, Any],
        spans: Mapping[str, Span],
        params: Mapping[str, Any],
        tags: Mapping[str, Any],
        files: Mapping[str, JsonDict],
    ) -> None:
        self._budget = budget
        self.metrics = dict(metrics)
        self.spans = dict(spans)
        self.params = dict(params)
        self.tags = dict(tags)
        self.files = dict(files)

    def point(self, name: Any, line: JsonDict, when: float) -> None:
        if type(name) is not str:
            name = str(name)
        span = self.spans.get(name)
        if "of" in line:
            self._long_value(name, line)
            return
        value = point_value(line)
        if type(value) in _NUMBERS:
            step = line.get("s")
            timestamp = float(when)
            if span is not None or self._fits(self.metrics, name, 0, MAX_METRICS, "metrics"):
                self._number(name, value, timestamp, step if type(step) is int else None, span)
        elif self._fits(self.metrics, name, value, MAX_METRICS, "metrics"):
            self.metrics[name] = value
            self.spans.pop(name, None)

    def _fits(self, kept: Mapping[str, Any], name: str, value: Any, limit: int, kind: str) -> bool:
        """Return whether the value fits; otherwise count it as dropped."""
        if name in kept:
            return self._budget.take(_value_size(value) - _value_size(kept[name]), kind)
        if len(kept) < limit and len(name) <= _MAX_NAME:
            return self._budget.take(_entry_size(name, value), kind)
        self._budget.reject(kind)
        return False

    def _number(self, name: str, value: Any, when: float, step: int | None, span: Span | None) -> None:
        if type(value) is int and not -_INT64_LIMIT < value < _INT64_LIMIT:
            value = as_float(value)
        finite = value if isfinite(value) else None
        if span is None:
            self.spans[name] = Span(1, finite, finite, when, step)
            self.metrics[name] = value
            return
        count, least, largest, last_time, last_step = span
        if finite is not None:
            least = finite if least is None or finite < least else least
            largest = finite if largest is None or finite > largest else largest
        if _is_later(when, step, last_time, last_step):
            self.metrics[name] = value
            last_time, last_step = when, step
        self.spans[name] = Span(count + 1, least, largest, last_time, last_step)

    def _long_value(self, name: str, line: JsonDict) -> None:
        """Record only the type and size of a long value. The run's series contains the value itself."""
        path, start, total = line["of"]
        if path == [] and start == 0 and isinstance(total, int):
            value = {"long": "text" if isinstance(line["v"], str) else "list", "size": total}
            if self._fits(self.metrics, name, value, MAX_METRICS, "metrics"):
                self.metrics[name] = value
                self.spans.pop(name, None)

    def param(self, data: JsonDict) -> None:
        value = data["value"]
        self._keep(self.params, data["name"], "None" if value is None else value)  # None would mean a flag

    def tag(self, data: JsonDict) -> None:
        if data.get("value") is None:
            self.tags.pop(str(data["name"]), None)
        else:
            self._keep(self.tags, data["name"], data["value"])

    def dataset(self, data: JsonDict) -> None:
        parts = [str(data[name]) for name in ("digest", "context") if data.get(name)]
        self._keep(self.tags, f"{DATASET_TAG}{data['name']}", " ".join(parts))

    def model(self, data: JsonDict) -> None:
        """Note that there are logged models. Their records stay in the metric files."""
        self._keep(self.tags, f"{LOGGED_MODEL_TAG}{data['name']}", str(data["id"]))

    def file(self, data: JsonDict) -> None:
        entry = {"as": str(data["as"])[:20]}
        before = self.files.get(str(data["path"]))
        if before and entry["as"] == "file" != before.get("as"):
            return  # MLflow's log_table appends to a table by logging the file again
        if isinstance(data.get("name"), str):
            entry["name"] = data["name"][:_MAX_NAME]
        step = data.get("step")
        self._keep(self.files, data["path"], {**entry, "step": step} if type(step) is int else entry)

    def _keep(self, kept: dict[str, Any], name: Any, value: Any) -> None:
        name, value = str(name), decode_floats(value)
        value = value[:_MAX_TEXT] if isinstance(value, str) else value
        if self._fits(kept, name, value, _MAX_RECORDS, "records"):
            kept[name] = value


class _ChildRecorder(_Recorder):
    """Recorder for a nested run, whose data is stored in its parent's record."""

    def __init__(self, budget: _SizeBudget, record: JsonDict) -> None:
        spans = {name: Span(*span) for name, span in record.get("spans", {}).items()}
        metrics, params, tags, files = (record.get(name, {}) for name in ("metrics", "params", "tags", "files"))
        super().__init__(budget, metrics, spans, params, tags, files)
        self._facts = {name: record[name] for name in _CHILD_FIELDS if name in record}

    def update(self, data: JsonDict) -> None:
        for name in _TEXT_FIELDS:
            if isinstance(data.get(name), str):
                self._facts[name] = data[name][:_MAX_NAME]
        for name in _TIME_FIELDS:
            if isinstance(data.get(name), (int, float)) and 0 <= data[name] < 1e11:
                self._facts[name] = float(data[name])
        if data.get("same") is True:
            self._facts["same"] = True
        if isinstance(data.get("deleted"), bool):
            self._facts["deleted"] = data["deleted"]

    def to_json(self) -> JsonDict:
        # Use lists, as the index does: otherwise, updating one child would make all children seem changed.
        spans = {name: list(span) for name, span in self.spans.items()}
        entries = {"metrics": self.metrics, "spans": spans, "params": self.params, "tags": self.tags}
        return {**self._facts, **{name: kept for name, kept in (*entries.items(), ("files", self.files)) if kept}}


def _is_later(when: float, step: int | None, last_time: float, last_step: int | None) -> bool:
    """Return whether a point follows another one. Without steps, the time alone decides."""
    if step is not None and last_step is not None and step != last_step:
        return step > last_step
    return when >= last_time


def _run_size(run: Run) -> int:
    top_level = (run.metrics, run.params, run.told_tags, run.files)
    nested = [
        record.get(name, {}) for record in run.children.values() for name in ("metrics", "params", "tags", "files")
    ]
    return sum(_entry_size(name, value) for kept in (*top_level, *nested) for name, value in kept.items())


def _entry_size(name: str, value: Any) -> int:
    return 2 * len(name) + _value_size(value) + _ENTRY_OVERHEAD


def _value_size(value: Any) -> int:
    """Return the approximate length of the value in characters."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_value_size, value)) + len(value)
    if isinstance(value, dict):
        return sum(len(name) + _value_size(item) for name, item in value.items()) + len(value)
    return 8 + value.bit_length() // 3 if isinstance(value, int) else 8
