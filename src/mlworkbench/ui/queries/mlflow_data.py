"""What a run's script recorded with MLflow, for its page."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import MlwError
from ...history.store import History
from ...report.mlflow_report import MlflowData, load_mlflow_data, mlflow_run_of
from ...runfiles.mlflow_traces import Span, Trace, find_trace, read_spans, read_traces
from ...sanitize import plain


@dataclass(frozen=True)
class Traces:
    """Traces of a run, newest first. ``problem`` explains why they cannot be read."""

    traces: list[Trace]
    problem: str | None = None


def load(history: History, run_id: str) -> MlflowData:
    return load_mlflow_data(history, history.get(run_id))


def traces(history: History, run_id: str) -> Traces:
    run = history.get(run_id)
    try:
        found = read_traces(history.paths.root.run(run.spec.folder), mlflow_run_of(history, run)[0])
    except MlwError as error:
        return Traces([], plain("; ".join(filter(None, (error.message, error.hint))), 500))
    return Traces(found)


def spans(history: History, run_id: str, trace_id: str) -> tuple[Trace, list[Span]]:
    """Return a trace and its spans; raise ``UnknownName`` if it does not exist."""
    run = history.get(run_id)
    folder = history.paths.root.run(run.spec.folder)
    trace = find_trace(read_traces(folder, mlflow_run_of(history, run)[0]), trace_id)
    return trace, read_spans(folder, trace)
